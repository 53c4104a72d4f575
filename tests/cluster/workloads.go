package main

// What clients do, each with the invariants of its replies and of the data at the end. A client connects to the node that says it
// leads. It may rely on "all connections of a leader end with its reign": whatever comes on this connection is from a leader.

import (
	"errors"
	"fmt"
	"math/rand"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	callTimeout = 2 * time.Second
	// clockMargin covers what the clocks of a server and of this program may differ by, on one machine.
	clockMargin = 20 * time.Millisecond
)

// Client is one client's connection to the leader.
type Client struct {
	number int
	run    *Run
	random *rand.Rand
	conn   *Conn
	node   int           // the node that it is connected to
	next   int           // which of the members it asks next
	blocks time.Duration // how long its next call may wait at the server
}

// connect finds the leader. Nothing has been sent when it fails.
func (c *Client) connect() error {
	if c.conn != nil {
		return nil
	}
	members := c.run.group.members()
	c.next = (c.next + 1) % len(members)
	number := members[c.next]
	if c.run.group.sentinel {
		var err error
		if number, err = c.run.group.askSentinel(number); err != nil {
			return err
		}
	}
	conn, err := c.run.group.network.dial(number, port)
	if err != nil {
		return err
	}
	role, err := conn.call(callTimeout, "ROLE")
	if err == nil && (len(role.items) == 0 || role.items[0].text != "master") {
		err = errors.New("this node does not lead")
	}
	if err != nil {
		conn.close()
		return err
	}
	c.conn, c.node = conn, number
	return nil
}

func (c *Client) disconnect() {
	if c.conn != nil {
		c.conn.close()
		c.conn = nil
	}
}

// Result is what became of a call.
type Result struct {
	Outcome
	Reply
	begin, end time.Duration
}

// call sends one command. It returns nil if no leader was found, so that nothing was sent.
func (c *Client) call(workload string, args ...any) *Result {
	results := c.calls(workload, args)
	if results == nil {
		return nil
	}
	return &results[0]
}

// calls sends several commands at once.
func (c *Client) calls(workload string, commands ...[]any) []Result {
	if c.connect() != nil {
		time.Sleep(10 * time.Millisecond)
		return nil
	}
	judge := c.run.judge
	begin := judge.now()
	replies, err := c.conn.pipeline(callTimeout+c.blocks, commands)
	end := judge.now()
	results := make([]Result, len(commands))
	tally := judge.tally(workload)
	for i := range results {
		results[i] = Result{Outcome: unknown, begin: begin, end: end}
		if i < len(replies) {
			results[i].Reply, results[i].Outcome = replies[i], ok
			if replies[i].isError() {
				results[i].Outcome = failed
				judge.refusal(replies[i].text)
			} else if (workload == "counter" || workload == "unique") && i == len(results)-1 {
				judge.acknowledge(begin) // a change for sure: others may be answered by a lease
			}
		}
		tally[results[i].Outcome].Add(1)
	}
	if err != nil {
		c.disconnect()
	}
	for _, reply := range replies {
		for _, beginning := range []string{"READONLY", "LOADING", "MASTERDOWN", "NOREPLICAS"} {
			if strings.HasPrefix(reply.text, beginning) && reply.isError() {
				c.disconnect()
			}
		}
	}
	return results
}

// Workload is something that clients do again and again.
type Workload interface {
	step(c *Client)
	// finish judges the data at the end, read from one node.
	finish(node int, conn *Conn) error
}

// Judged is a workload that is judged by its calls, too. Returns for how many keys there is no verdict.
type Judged interface {
	judgeCalls() (undecided int)
}

// workloads returns what clients do: as today's users, with Redis' commands, and with our own.
func workloads(run *Run) map[string]Workload {
	all := usersFlows(run)
	for name, workload := range map[string]Workload{
		"counter":  &counters{run: run, name: "counter", keys: []string{"counter:0", "counter:1", "counter:script"}, counts: map[string]*count{}},
		"unique":   &unique{run: run, seen: map[string]map[string]Outcome{}},
		"register": &registers{run: run, histories: map[string]*History{}},
		"transfer": &transfers{run: run},
		"stream":   &streams{run: run, added: map[string]string{}, refused: map[string]bool{}, read: map[string]int{}, done: map[string]bool{}, ackOpen: map[string]bool{}},
		"expiry":   &expiry{run: run},
		"setnx":    &leases{run: run, name: "setnx", limit: 1, spans: map[string][]Span{}, tokens: map[string]int64{}},
	} {
		all[name] = workload
	}
	if !run.group.sentinel {
		all["lock"] = &locks{run: run, histories: map[string]*History{}}
		all["lease"] = &leases{run: run, name: "lease", limit: 1, spans: map[string][]Span{}, tokens: map[string]int64{}}
		all["gate"] = &leases{run: run, name: "gate", limit: 3, spans: map[string][]Span{}, tokens: map[string]int64{}}
		all["stock"] = &stocks{run: run, stocks: map[string]*stock{}}
		all["once"] = &once{run: run, seen: map[int64]string{}}
		all["id"] = &ids{run: run}
	}
	return all
}

// unused numbers make names that nothing else has.
var unused atomic.Int64

func fresh() string { return fmt.Sprintf("n%d", unused.Add(1)) }

// counters: INCR returns more than whatever was returned, or seen anywhere, before it was sent, and nothing twice.
type counters struct {
	run     *Run
	name    string
	keys    []string
	mutex   sync.Mutex
	counts  map[string]*count
	history []shown // of counter:0
}

// shown is a value that somebody had seen by a time.
type shown struct {
	at    time.Duration
	value int64
}

type count struct {
	shown       int64 // the highest value that anybody saw
	acked, open int64
	returned    map[int64]bool
}

const incrementByScript = "return redis.call('incr', KEYS[1])"

func (w *counters) count(key string) *count {
	if w.counts[key] == nil {
		w.counts[key] = &count{returned: map[int64]bool{}}
	}
	return w.counts[key]
}

func (w *counters) step(c *Client) {
	key := w.keys[c.random.Intn(len(w.keys))]
	w.mutex.Lock()
	before := w.count(key).shown
	w.mutex.Unlock()
	args := []any{"INCR", key}
	if key == "counter:script" {
		args = []any{"EVAL", incrementByScript, 1, key}
	}
	result := c.call(w.name, args...)
	if result == nil {
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	count := w.count(key)
	switch result.Outcome {
	case unknown:
		count.open++
	case ok:
		count.acked++
		value := result.number()
		if value <= before {
			w.run.judge.violate(w.name, "%s returned %d, after %d was known (sent at %v to node %d)", key, value, before, result.begin, c.node)
		}
		if count.returned[value] {
			w.run.judge.violate(w.name, "%s returned %d twice", key, value)
		}
		count.returned[value] = true
		w.show(key, value)
	}
}

// show notes that a value is known from now on.
func (w *counters) show(key string, value int64) {
	if count := w.count(key); value > count.shown {
		count.shown = value
		if key == "counter:0" {
			w.history = append(w.history, shown{w.run.judge.now(), value})
		}
	}
}

// shownAt returns the highest value of counter:0 that was known at a time.
func (w *counters) shownAt(at time.Duration) int64 {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	later := sort.Search(len(w.history), func(i int) bool { return w.history[i].at > at })
	if later == 0 {
		return 0
	}
	return w.history[later-1].value
}

// observe takes a value that a follower showed: it shows nothing that may still be lost.
func (w *counters) observe(key string, value int64) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.show(key, value)
}

func (w *counters) finish(node int, conn *Conn) error {
	for key, count := range w.counts {
		reply, err := conn.call(patience, "GET", key)
		if err != nil {
			return err
		}
		if value := max(reply.number(), 0); value < count.acked || value > count.acked+count.open || value < count.shown {
			w.run.judge.violate(w.name, "%s is %d on node %d: acknowledged %d, unknown %d, seen %d", key, value, node, count.acked, count.open, count.shown)
		}
	}
	return nil
}

// unique: each element that was acknowledged is there once, none that was refused, and those of a transaction together.
type unique struct {
	run   *Run
	mutex sync.Mutex
	seen  map[string]map[string]Outcome
}

func (w *unique) step(c *Client) {
	id := fresh()
	key := []string{"unique:set", "unique:list", "unique:hash", "unique:zset", "unique:multi"}[c.random.Intn(5)]
	var commands [][]any
	elements := []string{id}
	switch key {
	case "unique:set":
		commands = [][]any{{"SADD", key, id}}
	case "unique:list":
		commands = [][]any{{"RPUSH", key, id}}
	case "unique:hash":
		commands = [][]any{{"HSET", key, id, "value"}}
	case "unique:zset":
		commands = [][]any{{"ZADD", key, id[1:], id}}
	default:
		elements = []string{id + ".a", id + ".b"}
		commands = [][]any{{"MULTI"}, {"SADD", key, elements[0]}, {"SADD", key, elements[1]}, {"EXEC"}}
	}
	results := c.calls("unique", commands...)
	if results == nil {
		return
	}
	last := results[len(results)-1]
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.seen[key] == nil {
		w.seen[key] = map[string]Outcome{}
	}
	for _, element := range elements {
		w.seen[key][element] = last.Outcome
	}
}

func (w *unique) finish(node int, conn *Conn) error {
	read := map[string][]any{
		"unique:set": {"SMEMBERS", "unique:set"}, "unique:list": {"LRANGE", "unique:list", 0, -1},
		"unique:hash": {"HKEYS", "unique:hash"}, "unique:zset": {"ZRANGE", "unique:zset", 0, -1},
		"unique:multi": {"SMEMBERS", "unique:multi"},
	}
	for key, seen := range w.seen {
		reply, err := conn.call(patience, read[key]...)
		if err != nil {
			return err
		}
		present := map[string]int{}
		for _, item := range reply.items {
			present[item.text]++
		}
		var lost, twice, refused, alien, torn []string
		for element, outcome := range seen {
			switch {
			case outcome == ok && present[element] == 0:
				lost = append(lost, element)
			case outcome == failed && present[element] > 0:
				refused = append(refused, element)
			}
			if partner, isFirst := strings.CutSuffix(element, ".a"); isFirst && present[element] != present[partner+".b"] {
				torn = append(torn, element)
			}
		}
		for element, times := range present {
			if times > 1 {
				twice = append(twice, element)
			}
			if _, isOurs := seen[element]; !isOurs {
				alien = append(alien, element)
			}
		}
		w.run.judge.violateEach("unique", fmt.Sprintf("%s on node %d", key, node), map[string][]string{
			"lost": lost, "there twice": twice, "there though refused": refused, "never added": alien, "torn": torn,
		})
	}
	return nil
}

// registers: GET, SET, and compare-and-set by script, on keys that change before their histories get long.
type registers struct {
	run       *Run
	mutex     sync.Mutex
	histories map[string]*History
	made      int
}

const compareAndSet = "if redis.call('get', KEYS[1]) == ARGV[1] then redis.call('set', KEYS[1], ARGV[2]) return 1 end return 0"

func currentHistory(histories map[string]*History, made *int, prefix string) (string, *History) {
	key := fmt.Sprintf("%s-%d", prefix, *made)
	if history := histories[key]; history != nil && !history.isFull() {
		return key, history
	}
	*made++
	key = fmt.Sprintf("%s-%d", prefix, *made)
	histories[key] = &History{}
	return key, histories[key]
}

func (w *registers) step(c *Client) {
	w.mutex.Lock()
	key, history := currentHistory(w.histories, &w.made, "register")
	w.mutex.Unlock()
	read := c.call("register", "GET", key)
	if read == nil {
		return
	}
	history.add(w.run.judge, c.number, read.begin, registerInput{kind: "get"}, read.text, read.Outcome)
	value := fresh()
	var result *Result
	input := registerInput{kind: "set", new: value}
	if c.random.Intn(2) == 0 || read.Outcome != ok || read.isNull() {
		result = c.call("register", "SET", key, value)
	} else {
		input = registerInput{kind: "cas", from: read.text, new: value}
		result = c.call("register", "EVAL", compareAndSet, 1, key, read.text, value)
	}
	if result != nil {
		history.add(w.run.judge, c.number, result.begin, input, result.text, result.Outcome)
	}
}

func (w *registers) finish(_ int, conn *Conn) error {
	return readAtEnd(w.run.judge, w.histories, conn, registerInput{kind: "get"})
}

// readAtEnd adds a last read of each key to its history.
func readAtEnd(judge *Judge, histories map[string]*History, conn *Conn, input any) error {
	for key, history := range histories {
		begin := judge.now()
		reply, err := conn.call(patience, "GET", key)
		if err != nil {
			return err
		}
		history.add(judge, 0, begin, input, reply.text, ok)
	}
	return nil
}

func (w *registers) judgeCalls() (undecided int) {
	return w.run.judge.judgeHistories("register", registerModel, w.histories)
}

// locks: LOCK.ACQUIRE and LOCK.RELEASE with leases that outlive the run, so that each refusal can be explained, too.
type locks struct {
	run       *Run
	mutex     sync.Mutex
	histories map[string]*History
	made      int
}

func (w *locks) step(c *Client) {
	w.mutex.Lock()
	key, history := currentHistory(w.histories, &w.made, "lock")
	w.mutex.Unlock()
	owner := fmt.Sprintf("client-%d", c.number)
	add := func(kind string, result *Result) {
		out := lockOutput{granted: result.granted(), token: result.field("token").number()}
		history.add(w.run.judge, c.number, result.begin, lockInput{kind, owner}, out, result.Outcome)
	}
	for !history.isFull() && !w.run.stopped() {
		result := c.call("lock", "LOCK.ACQUIRE", key, owner, "PX", 36_000_000)
		if result == nil {
			continue
		}
		add("acquire", result)
		if result.Outcome == ok {
			if !result.granted() {
				return
			}
			break
		}
	}
	c.pause(3)
	for !w.run.stopped() {
		result := c.call("lock", "LOCK.RELEASE", key, owner)
		if result == nil {
			continue
		}
		add("release", result)
		if result.Outcome == ok {
			return
		}
	}
}

func (w *locks) finish(int, *Conn) error { return nil }

func (w *locks) judgeCalls() (undecided int) {
	return w.run.judge.judgeHistories("lock", lockModel, w.histories)
}

// pause waits for up to so many milliseconds.
func (c *Client) pause(ms int) { time.Sleep(time.Duration(c.random.Intn(ms*1000)) * time.Microsecond) }

// leases: places with short leases, some released, some left to end: LOCK, GATE, and the lock of SET NX.
type leases struct {
	run    *Run
	name   string
	limit  int
	mutex  sync.Mutex
	spans  map[string][]Span
	tokens map[string]int64
}

func (w *leases) step(c *Client) {
	key := fmt.Sprintf("%s:%d", w.name, c.random.Intn(2))
	holder, lease := fresh(), []int{150, 300, 800, 1500}[c.random.Intn(4)]
	acquire := map[string][]any{
		"lease": {"LOCK.ACQUIRE", key, holder, "PX", lease}, "gate": {"GATE.ACQUIRE", key, holder, "LIMIT", w.limit, "PX", lease},
		"setnx": {"SET", key, holder, "NX", "PX", lease},
	}
	release := func() *Result {
		switch w.name {
		case "lease":
			return c.call(w.name, "LOCK.RELEASE", key, holder)
		case "gate":
			return c.call(w.name, "GATE.RELEASE", key, holder)
		default:
			return c.script(w.name, "unlock", []string{key}, holder)
		}
	}
	w.mutex.Lock()
	before := w.tokens[key]
	w.mutex.Unlock()
	result := c.call(w.name, acquire[w.name]...)
	if result == nil || result.Outcome != ok || !(result.granted() || result.text == "OK") {
		return
	}
	token := result.field("token").number()
	if w.name != "setnx" {
		w.mutex.Lock()
		if token <= before {
			w.run.judge.violate(w.name, "%s gave the token %d, after %d was known (sent at %v to node %d)", key, token, before, result.begin, c.node)
		}
		w.tokens[key] = max(w.tokens[key], token)
		w.mutex.Unlock()
	}
	end := result.begin + time.Duration(lease)*time.Millisecond - clockMargin
	c.pause([]int{2, 20, 60, 2 * lease}[c.random.Intn(4)])
	released := w.run.judge.now()
	w.mutex.Lock()
	w.spans[key] = append(w.spans[key], Span{result.end, min(end, released), holder, token})
	w.mutex.Unlock()
	wasOpen := false
	for w.run.judge.now() < end && !w.run.stopped() {
		done := release()
		if done == nil {
			continue
		}
		if done.Outcome == ok {
			if !done.granted() && done.number() != 1 && !wasOpen && done.end < end && w.run.judge.clocksAgreed(result.begin, done.end) {
				w.run.judge.violate(w.name, "%s of %s was lost before its lease ended: granted at %v for %d ms, gone at %v", key, holder, result.begin, lease, done.end)
			}
			return
		}
		wasOpen = wasOpen || done.Outcome == unknown
	}
}

func (w *leases) finish(int, *Conn) error { return nil }

func (w *leases) judgeCalls() (undecided int) {
	for key, spans := range w.spans {
		var certain []Span
		for _, span := range spans {
			if w.run.judge.clocksAgreed(span.begin, span.end) {
				certain = append(certain, span)
			}
		}
		w.run.judge.judgeSpans(w.name, key, certain, w.limit)
	}
	return 0
}

// stocks: small stocks that are sold out, one after the other.
type stocks struct {
	run    *Run
	mutex  sync.Mutex
	stocks map[string]*stock
	made   int
}

type stock struct {
	refusals, sold, open int64  // refused reservations; units whose sale was acknowledged, and is unknown
	dump                 string // the value at the end, on the first node that was asked
}

const stockTotal = 30

func (w *stocks) step(c *Client) {
	w.mutex.Lock()
	if s := w.stocks[fmt.Sprintf("stock:%d", w.made)]; s == nil || s.refusals >= 10 {
		w.made++
		w.stocks[fmt.Sprintf("stock:%d", w.made)] = &stock{}
	}
	key := fmt.Sprintf("stock:%d", w.made)
	s := w.stocks[key]
	w.mutex.Unlock()
	order, units := fresh(), c.random.Intn(3)+1
	reserved := c.call("stock", "STOCK.RESERVE", key, order, "UNITS", units, "PX", 36_000_000)
	if reserved == nil || reserved.Outcome != ok {
		return
	}
	if !reserved.granted() {
		if reserved.field("reason").text == "no-stock" {
			c.call("stock", "STOCK.SET", key, stockTotal)
			return
		}
		w.mutex.Lock()
		s.refusals++
		w.mutex.Unlock()
		return
	}
	if c.random.Intn(3) == 0 {
		if done := c.call("stock", "STOCK.CANCEL", key, order); done != nil && done.Outcome == ok && !done.granted() {
			w.run.judge.violate("stock", "%s: the order %s was reserved, and is not there to be cancelled: %v", key, order, done.Reply)
		}
		return
	}
	wasOpen := false
	for attempt := 0; attempt < 5; attempt++ {
		done := c.call("stock", "STOCK.COMMIT", key, order)
		if done == nil {
			continue
		}
		if done.Outcome == ok {
			if !done.granted() {
				w.run.judge.violate("stock", "%s: the order %s was reserved, and can't be sold: %v", key, order, done.Reply)
				return
			}
			w.mutex.Lock()
			s.sold += int64(units)
			w.mutex.Unlock()
			return
		}
		wasOpen = wasOpen || done.Outcome == unknown
	}
	if wasOpen {
		w.mutex.Lock()
		s.open += int64(units)
		w.mutex.Unlock()
	}
}

// finish asks the leader, which alone answers such questions, and compares what all nodes have.
func (w *stocks) finish(node int, conn *Conn) error {
	for key, stock := range w.stocks {
		dump, err := conn.call(patience, "DUMP", key)
		if err != nil {
			return err
		}
		if stock.dump == "" {
			stock.dump = dump.text
		} else if stock.dump != dump.text {
			w.run.judge.violate("stock", "%s on node %d is not what other nodes have: %q and %q", key, node, dump.text, stock.dump)
		}
		reply, err := conn.call(patience, "STOCK.INFO", key)
		if err != nil {
			return err
		}
		if reply.isError() && strings.HasPrefix(reply.text, "READONLY") {
			continue
		}
		get := func(name string) int64 { return max(reply.field(name).number(), 0) }
		if sold := get("sold"); sold < stock.sold || sold > stock.sold+stock.open || sold > stockTotal ||
			get("available")+get("held")+sold != get("total") {
			w.run.judge.violate("stock", "%s on node %d: %v; acknowledged %d, unknown %d of %d", key, node, reply, stock.sold, stock.open, stockTotal)
		}
	}
	return nil
}

// once: an INCR that is tried again under one id until it is answered happens once.
type once struct {
	run        *Run
	mutex      sync.Mutex
	seen       map[int64]string
	done, open int64
}

func (w *once) step(c *Client) {
	id := "once:" + fresh()
	wasSent := false
	for !w.run.stopped() {
		result := c.call("once", "ONCE", id, "EX", 3600, "INCR", "counter:once")
		if result == nil {
			continue
		}
		wasSent = wasSent || result.Outcome == unknown
		if result.Outcome != ok {
			continue
		}
		again := c.call("once", "ONCE", id, "EX", 3600, "INCR", "counter:once")
		if again != nil && again.Outcome == ok && again.number() != result.number() {
			w.run.judge.violate("once", "%s returned %d, and then %d", id, result.number(), again.number())
		}
		w.mutex.Lock()
		defer w.mutex.Unlock()
		if other := w.seen[result.number()]; other != "" {
			w.run.judge.violate("once", "%s and %s both returned %d", id, other, result.number())
		}
		w.seen[result.number()] = id
		w.done++
		return
	}
	if wasSent {
		w.mutex.Lock()
		w.open++
		w.mutex.Unlock()
	}
}

func (w *once) finish(node int, conn *Conn) error {
	reply, err := conn.call(patience, "GET", "counter:once")
	if value := max(reply.number(), 0); err == nil && (value < w.done || value > w.done+w.open) {
		w.run.judge.violate("once", "the counter is %d on node %d: %d ids were answered, %d were not", value, node, w.done, w.open)
	}
	return err
}

// ids: ID.NEXT returns more than whatever was returned before it was sent.
type ids struct {
	run   *Run
	mutex sync.Mutex
	shown int64
}

func (w *ids) step(c *Client) {
	w.mutex.Lock()
	before := w.shown
	w.mutex.Unlock()
	result := c.call("id", "ID.NEXT", "id", "COUNT", c.random.Intn(5)+1)
	if result == nil || result.Outcome != ok {
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if first := result.field("first").number(); first <= before {
		w.run.judge.violate("id", "%d was returned, after %d was known (sent at %v to node %d)", first, before, result.begin, c.node)
	}
	w.shown = max(w.shown, result.field("last").number())
}

func (w *ids) finish(int, *Conn) error { return nil }

// transfers: amounts move between accounts, by transaction, script, or WATCH. Their sum stays.
type transfers struct {
	run *Run
}

const (
	accounts         = 6
	transferByScript = "redis.call('decrby', KEYS[1], ARGV[1]) return redis.call('incrby', KEYS[2], ARGV[1])"
)

func (w *transfers) step(c *Client) {
	from := c.random.Intn(accounts)
	to := (from + 1 + c.random.Intn(accounts-1)) % accounts
	one, two := fmt.Sprintf("account:%d", from), fmt.Sprintf("account:%d", to)
	amount := c.random.Intn(20) + 1
	switch c.random.Intn(3) {
	case 0:
		c.calls("transfer", []any{"MULTI"}, []any{"DECRBY", one, amount}, []any{"INCRBY", two, amount}, []any{"EXEC"})
	case 1:
		c.call("transfer", "EVAL", transferByScript, 2, one, two, amount)
	default:
		read := c.calls("transfer", []any{"WATCH", one, two}, []any{"GET", one}, []any{"GET", two})
		if read == nil || read[1].Outcome != ok || read[2].Outcome != ok || c.conn == nil {
			return
		}
		value := func(r Result) int { n, _ := strconv.Atoi(r.text); return n }
		c.calls("transfer", []any{"MULTI"}, []any{"SET", one, value(read[1]) - amount}, []any{"SET", two, value(read[2]) + amount}, []any{"EXEC"})
	}
}

func (w *transfers) finish(node int, conn *Conn) error {
	sum := int64(0)
	for i := 0; i < accounts; i++ {
		reply, err := conn.call(patience, "GET", fmt.Sprintf("account:%d", i))
		if err != nil {
			return err
		}
		n, _ := strconv.ParseInt(reply.text, 10, 64)
		sum += n
	}
	if sum != 0 {
		w.run.judge.violate("transfer", "the accounts' sum is %d on node %d", sum, node)
	}
	return nil
}

// streams: what XADD acknowledged is there, in order, and a group delivers it to one consumer, until that acknowledges it.
type streams struct {
	run           *Run
	mutex         sync.Mutex
	added         map[string]string // element by id
	refused       map[string]bool   // elements
	read          map[string]int    // the client that an id was delivered to
	done, ackOpen map[string]bool   // ids whose XACK is acknowledged, or open
	last          [2]int64
}

func streamID(text string) (id [2]int64) {
	fmt.Sscanf(text, "%d-%d", &id[0], &id[1])
	return id
}

func isLess(a, b [2]int64) bool { return a[0] < b[0] || a[0] == b[0] && a[1] < b[1] }

func (w *streams) step(c *Client) {
	if c.random.Intn(2) == 0 {
		w.add(c)
		return
	}
	result := c.call("stream", "XREADGROUP", "GROUP", "group", fmt.Sprintf("client-%d", c.number), "COUNT", c.random.Intn(8)+1, "STREAMS", "stream", ">")
	if result == nil || result.Outcome != ok || result.isNull() || len(result.items) == 0 {
		return
	}
	ack := []any{"XACK", "stream", "group"}
	var ids []string
	w.mutex.Lock()
	for _, entry := range result.items[0].items[1].items {
		id := entry.items[0].text
		if other, isThere := w.read[id]; isThere {
			w.run.judge.violate("stream", "%s was delivered to client %d and to client %d (sent at %v to node %d)", id, other, c.number, result.begin, c.node)
		}
		w.read[id] = c.number
		ids, ack = append(ids, id), append(ack, id)
	}
	w.mutex.Unlock()
	if c.random.Intn(20) == 0 {
		return // these stay pending
	}
	result = c.call("stream", ack...)
	if result == nil || result.Outcome == failed {
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for _, id := range ids {
		w.done[id], w.ackOpen[id] = result.Outcome == ok, result.Outcome == unknown
	}
	if result.Outcome == ok && result.number() != int64(len(ids)) {
		w.run.judge.violate("stream", "XACK of %v, which had been delivered, returned %d", ids, result.number())
	}
}

func (w *streams) add(c *Client) {
	element := fresh()
	w.mutex.Lock()
	before := w.last
	w.mutex.Unlock()
	result := c.call("stream", "XADD", "stream", "*", "element", element)
	if result == nil {
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	switch result.Outcome {
	case failed:
		w.refused[element] = true
	case ok:
		id := streamID(result.text)
		if !isLess(before, id) {
			w.run.judge.violate("stream", "XADD returned %s, after %v was known", result.text, before)
		}
		if isLess(w.last, id) {
			w.last = id
		}
		w.added[result.text] = element
	}
}

func (w *streams) finish(node int, conn *Conn) error {
	entries, err := conn.call(patience, "XRANGE", "stream", "-", "+")
	if err != nil {
		return err
	}
	pending, err := conn.call(patience, "XPENDING", "stream", "group", "-", "+", 1_000_000)
	if err != nil {
		return err
	}
	faults := map[string][]string{}
	note := func(kind, what string) { faults[kind] = append(faults[kind], what) }
	present, times := map[string]string{}, map[string]int{}
	for _, entry := range entries.items {
		element := entry.items[1].items[1].text
		present[entry.items[0].text] = element
		if times[element]++; times[element] > 1 {
			note("there twice", element)
		}
		if w.refused[element] {
			note("there though refused", element)
		}
	}
	for id, element := range w.added {
		if present[id] != element {
			note("lost", id)
		}
	}
	isPending := map[string]bool{}
	for _, entry := range pending.items {
		id := entry.items[0].text
		isPending[id] = true
		if w.done[id] {
			note("pending after XACK", id)
		}
	}
	for id := range w.read {
		if !isPending[id] && !w.done[id] && !w.ackOpen[id] {
			note("delivered and not pending", id)
		}
	}
	w.run.judge.violateEach("stream", fmt.Sprintf("the stream on node %d", node), faults)
	return nil
}

// expiry: a key is there until its time, as far as a client can tell, and not afterwards.
type expiry struct {
	run *Run
}

func (w *expiry) step(c *Client) {
	key, ms := "expiry:"+fresh(), []int{50, 200, 600}[c.random.Intn(3)]
	set := c.call("expiry", "SET", key, "value", "PX", ms)
	if set == nil || set.Outcome != ok {
		return
	}
	lease := time.Duration(ms) * time.Millisecond
	for !w.run.stopped() {
		c.pause(ms)
		get := c.call("expiry", "GET", key)
		if get == nil || get.Outcome != ok {
			continue
		}
		if !w.run.judge.clocksAgreed(set.begin, get.end) {
			return
		}
		isReal := w.run.judge.timeWasReal(set.begin, get.end)
		if get.isNull() && get.end < set.begin+lease-clockMargin {
			w.run.judge.violate("expiry", "%s was set at %v for %d ms, and is gone at %v", key, set.begin, ms, get.end)
		}
		if isReal && !get.isNull() && get.begin > set.end+lease+clockMargin {
			w.run.judge.violate("expiry", "%s was set at %v for %d ms, and is there at %v", key, set.end, ms, get.begin)
		}
		if get.isNull() {
			return
		}
	}
}

func (w *expiry) finish(_ int, conn *Conn) error { return nil }

// watchNode reads a counter on one node, whether it leads or not, again and again. On one connection the counter never goes back, and
// it shows only what is kept. It is no older than the node says it may be; on a leader it is not old at all.
func watchNode(run *Run, place int, counters *counters) {
	const key = "counter:0"
	for ; !run.stopped(); time.Sleep(10 * time.Millisecond) {
		members := run.group.members()
		node := members[place%len(members)]
		conn, err := run.group.network.dial(node, port)
		if err != nil {
			continue
		}
		for last := int64(0); !run.stopped(); time.Sleep(5 * time.Millisecond) {
			begin := run.judge.now()
			replies, err := conn.pipeline(callTimeout, [][]any{{"INFO", "replication"}, {"GET", key}})
			if err != nil || replies[0].isError() || replies[1].isError() {
				break
			}
			value := max(replies[1].number(), 0)
			if value < last {
				run.judge.violate("watched", "%s was %d and then %d on one connection to node %d", key, last, value, node)
			}
			last = value
			if age, isKnown := ageOf(replies[0].text); isKnown {
				if due := counters.shownAt(begin - age); value < due {
					run.judge.violate("watched", "%s is %d on node %d, which says that its data are at most %v old: %d was known before that", key, value, node, age, due)
				}
			}
			counters.observe(key, value)
			run.judge.tally("watched")[ok].Add(1)
		}
		conn.close()
	}
}

// ageOf returns how old the data of a node may be, by its INFO.
func ageOf(info string) (age time.Duration, isKnown bool) {
	if strings.Contains(info, "role:master") {
		return 0, true
	}
	_, rest, _ := strings.Cut(info, "slave_lag_ms:")
	text, _, _ := strings.Cut(rest, "\r\n")
	ms, err := strconv.Atoi(text)
	// A node that follows a leader that is cut off may be wrong by 0.3 s.
	return time.Duration(ms)*time.Millisecond + 300*time.Millisecond, err == nil && ms >= 0
}
