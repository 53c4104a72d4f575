package main

// The flows of today's users, as the suite's scenarios have them: a gate, a daily limit, an inventory, a lock, IDs, and, in sales.go,
// flash sales and the workers for their orders. The users' scripts run byte for byte, and as their libraries send them: EVALSHA, and EVAL after
// NOSCRIPT. The flows keep their known defects. The invariants are what such users rely on all the same: never over 60, never
// negative, never sold twice, each ID once, each order worked once.

import (
	"crypto/sha1"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Script is one of the users' scripts.
type Script struct{ text, sha1 string }

// readScripts reads the users' scripts, by their names.
func readScripts(folder string) (map[string]Script, error) {
	scripts := map[string]Script{}
	for _, name := range []string{"gate_acquire", "gate_release", "seckill_v1", "seckill_v2", "daily_limit", "unlock"} {
		text, err := os.ReadFile(filepath.Join(folder, name+".lua"))
		if err != nil {
			return nil, err
		}
		scripts[name] = Script{string(text), fmt.Sprintf("%x", sha1.Sum(text))}
	}
	return scripts, nil
}

// script calls one of the users' scripts. Its text follows only if the server does not know it; the first call had no effect then.
func (c *Client) script(workload, name string, keys []string, args ...any) *Result {
	script := c.run.scripts[name]
	rest := []any{len(keys)}
	for _, key := range keys {
		rest = append(rest, key)
	}
	rest = append(rest, args...)
	result := c.call(workload, append([]any{"EVALSHA", script.sha1}, rest...)...)
	if result != nil && result.Outcome == failed && strings.HasPrefix(result.text, "NOSCRIPT") {
		result = c.call(workload, append([]any{"EVAL", script.text}, rest...)...)
	}
	return result
}

// usersFlows returns the flows as workloads.
func usersFlows(run *Run) map[string]Workload {
	sales := &usersSales{run: run, name: "users-sale-2", script: "seckill_v2", sales: map[string]*sale{}}
	return map[string]Workload{
		"users-gate":   &usersGate{run: run, histories: map[string]*History{}, gates: map[string]*gate{}},
		"users-sale-1": &usersSales{run: run, name: "users-sale-1", script: "seckill_v1", sales: map[string]*sale{}},
		"users-sale-2": sales,
		"users-limit":  &usersLimit{run: run, counts: map[string]*sent{}},
		"users-stock":  &usersStock{run: run},
		"users-lock":   &usersLock{run: run, histories: map[string]*History{}},
		"users-id":     &counters{run: run, name: "users-id", keys: []string{"icr:order:2026:11:20"}, counts: map[string]*count{}},
		"users-order":  &usersOrders{run: run, sales: sales, desk: newDesk(), troubled: map[string]bool{}},
	}
}

// usersGate: a counter of places that are taken. A caller that is told 60 does not know whether it has the 60th place or none; it
// gives none back, and so do those without a reply. So each gate fills up, and the next one follows.
type usersGate struct {
	run       *Run
	mutex     sync.Mutex
	histories map[string]*History
	made      int
	gates     map[string]*gate
}

// gate is what the callers of one gate know.
type gate struct {
	begin   time.Duration
	granted time.Duration // when the latest grant was sent
	held    []Span        // places that somebody has for sure
	given   []Span        // and had
	// Calls that may have taken a place, or given one back, of which nobody knows.
	maybeTaken, maybeGiven int64
}

const (
	gateLimit = 60
	// gateLife is the life of a gate's key after each grant.
	gateLife = 300 * time.Second
)

func (w *usersGate) step(c *Client) {
	w.mutex.Lock()
	key, history := currentHistory(w.histories, &w.made, "users-gate")
	if g := w.gates[key]; g != nil && w.run.judge.now()-g.begin > gateLife/5 {
		// Its key never ends while it is in use.
		w.made++
		key, history = currentHistory(w.histories, &w.made, "users-gate")
	}
	g := w.gates[key]
	if g == nil {
		g = &gate{begin: w.run.judge.now()}
		w.gates[key] = g
	}
	w.mutex.Unlock()
	for calls := c.random.Intn(6) + 1; calls > 0; calls-- {
		switch kind := c.random.Intn(10); {
		case kind < 7:
			w.acquire(c, key, g, history)
		case kind < 9:
			w.release(c, key, g, history)
		default:
			if read := c.call("users-gate", "GET", key); read != nil {
				history.add(w.run.judge, c.number, read.begin, "get", read.number(), read.Outcome)
			}
		}
	}
}

func (w *usersGate) acquire(c *Client, key string, g *gate, history *History) {
	w.mutex.Lock()
	g.granted = w.run.judge.now()
	w.mutex.Unlock()
	result := c.script("users-gate", "gate_acquire", []string{key}, gateLimit)
	if result == nil {
		return
	}
	history.add(w.run.judge, c.number, result.begin, "acquire", result.number(), result.Outcome)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	switch {
	case result.Outcome == unknown:
		g.maybeTaken++
	case result.Outcome == failed:
	case result.number() < 1 || result.number() > gateLimit:
		w.run.judge.violate("users-gate", "%s has %v places taken (sent at %v to node %d)", key, result.Reply, result.begin, c.node)
	case result.number() == gateLimit:
		g.maybeTaken++
	default:
		g.held = append(g.held, Span{begin: result.end, end: math.MaxInt64})
	}
}

// release gives back a place that somebody has for sure.
func (w *usersGate) release(c *Client, key string, g *gate, history *History) {
	if c.connect() != nil {
		return
	}
	w.mutex.Lock()
	if len(g.held) == 0 {
		w.mutex.Unlock()
		return
	}
	last := len(g.held) - 1
	span := g.held[last]
	g.held = g.held[:last]
	span.end = w.run.judge.now()
	w.mutex.Unlock()
	result := c.script("users-gate", "gate_release", []string{key})
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if result == nil || result.Outcome == failed {
		span.end = math.MaxInt64
		g.held = append(g.held, span)
		return
	}
	g.given = append(g.given, span)
	history.add(w.run.judge, c.number, result.begin, "release", result.number(), result.Outcome)
	if result.Outcome == unknown {
		g.maybeGiven++
	} else if number := result.number(); number < 0 || number >= gateLimit {
		w.run.judge.violate("users-gate", "%s, of which a place was given back, has %v taken (sent at %v to node %d)", key, result.Reply, result.begin, c.node)
	}
}

func (w *usersGate) finish(node int, conn *Conn) error {
	for key, g := range w.gates {
		reply, err := conn.call(patience, "GET", key)
		if err != nil {
			return err
		}
		if reply.isNull() && w.run.judge.now()-g.granted > gateLife/2 {
			continue
		}
		if wrong := g.isWrong(max(reply.number(), 0)); wrong != "" {
			w.run.judge.violate("users-gate", "%s on node %d: %s", key, node, wrong)
		}
	}
	return nil
}

// isWrong says what is wrong with the number of places taken at the end, if anything is.
func (g *gate) isWrong(taken int64) string {
	held := int64(len(g.held))
	if taken > gateLimit || taken < held || taken > held+g.maybeTaken+g.maybeGiven {
		return fmt.Sprintf("%d places are taken of %d: %d for sure, perhaps %d more, and %d that may have been given back", taken, gateLimit, held, g.maybeTaken, g.maybeGiven)
	}
	return ""
}

func (w *usersGate) judgeCalls() (undecided int) {
	for key, g := range w.gates {
		w.run.judge.judgeSpans("users-gate", key, append(g.given, g.held...), gateLimit)
	}
	return w.run.judge.judgeHistories("users-gate", gateModel, w.histories)
}

// usersLimit: so many messages a day for an account. Refused messages count, too.
type usersLimit struct {
	run    *Run
	mutex  sync.Mutex
	counts map[string]*sent
	made   int
}

// sent is what became of the messages of one account.
type sent struct {
	at                                      time.Duration // when the key may have come to be
	begun, answered, open, allowed, refused int64
	isOver                                  bool // somebody was refused
}

const dailyLimit = 25

func (w *usersLimit) step(c *Client) {
	if c.random.Intn(200) == 0 {
		// All clients send the texts again.
		c.call("users-limit", "SCRIPT", "FLUSH")
		return
	}
	w.mutex.Lock()
	key := fmt.Sprintf("DAY_SEND_COUNT20261120:%d", w.made)
	if s := w.counts[key]; s == nil || s.refused >= 10 {
		w.made++
		key = fmt.Sprintf("DAY_SEND_COUNT20261120:%d", w.made)
		w.counts[key] = &sent{at: w.run.judge.now()}
	}
	s := w.counts[key]
	wasOver := s.isOver
	s.begun++
	w.mutex.Unlock()
	result := c.script("users-limit", "daily_limit", []string{key}, 86400, dailyLimit)
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if result == nil || result.Outcome == failed {
		s.begun--
		return
	}
	if wrong := s.told(result.Outcome, result.text, wasOver); wrong != "" {
		w.run.judge.violate("users-limit", "%s: %s (sent at %v to node %d)", key, wrong, result.begin, c.node)
	}
}

// told takes a reply, and says what is wrong with it, if anything is. wasOver: when it was sent, somebody else had been refused.
func (s *sent) told(outcome Outcome, text string, wasOver bool) string {
	if outcome == unknown {
		s.open++
		return ""
	}
	s.answered++
	if text == "0" {
		if s.allowed++; s.allowed > dailyLimit {
			return fmt.Sprintf("%d were allowed of %d", s.allowed, dailyLimit)
		}
		if wasOver {
			return "one was allowed after another was refused"
		}
		return ""
	}
	s.refused++
	s.isOver = true
	if text != "1" {
		return fmt.Sprintf("the reply was %q", text)
	}
	if s.begun <= dailyLimit {
		return fmt.Sprintf("one of %d was refused", s.begun)
	}
	return ""
}

func (w *usersLimit) finish(node int, conn *Conn) error {
	for key, s := range w.counts {
		replies, err := conn.pipeline(patience, [][]any{{"GET", key}, {"TTL", key}})
		if err != nil {
			return err
		}
		count, ttl := max(replies[0].number(), 0), replies[1].number()
		livesWrong := ttl < 1 || ttl > 86400 && w.run.judge.clocksAgreed(s.at, w.run.judge.now())
		if count < s.answered || count > s.answered+s.open || count > 0 && livesWrong {
			w.run.judge.violate("users-limit", "%s is %d on node %d, with %d s to live: %d were answered, %d unknown", key, count, node, ttl, s.answered, s.open)
		}
	}
	return nil
}

// usersStock: units are taken out of a database in segments, under a lock, and sold from a counter. A call that finds too few gives
// back what it took, so the counter is below zero at times. The lock is deleted by all, also by those who did not get it.
type usersStock struct {
	run   *Run
	mutex sync.Mutex
	inventory
}

// inventory is what the sellers know together, in units.
type inventory struct {
	added, addsOpen int64 // put into the counter, and perhaps
	sold, takesOpen int64 // taken from it, and perhaps
}

const segment = 20

func (w *usersStock) step(c *Client) {
	exists := c.call("users-stock", "EXISTS", "stock:counter")
	if exists == nil || exists.Outcome != ok || exists.number() == 1 && w.sell(c, int64(c.random.Intn(3)+1)) {
		return
	}
	if lock := c.call("users-stock", "SET", "stock:lock", fresh(), "NX", "EX", 120); lock != nil && lock.text == "OK" {
		w.refill(c)
	}
	c.call("users-stock", "DEL", "stock:lock")
}

// sell takes units from the counter, and returns false if it has too few.
func (w *usersStock) sell(c *Client, units int64) bool {
	took := c.call("users-stock", "INCRBY", "stock:counter", -units)
	if took == nil || took.Outcome == failed {
		return true
	}
	if took.Outcome == ok && took.number() < 0 {
		back := c.call("users-stock", "INCRBY", "stock:counter", units)
		if back == nil || back.Outcome != ok {
			w.change(func() { w.takesOpen += units })
		}
		return false
	}
	w.change(func() {
		if took.Outcome == unknown {
			w.takesOpen += units
		} else if w.sold += units; w.isOversold() {
			w.run.judge.violate("users-stock", "%d units are sold of %d (sent at %v to node %d)", w.sold, w.added+w.addsOpen, took.begin, c.node)
		}
	})
	return true
}

// refill takes a segment out of the database.
func (w *usersStock) refill(c *Client) {
	w.change(func() { w.addsOpen += segment })
	result := c.call("users-stock", "INCRBY", "stock:counter", segment)
	w.change(func() {
		if result != nil && result.Outcome == unknown {
			return
		}
		w.addsOpen -= segment
		if result != nil && result.Outcome == ok {
			w.added += segment
		}
	})
}

func (w *usersStock) change(do func()) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	do()
}

func (w *usersStock) finish(node int, conn *Conn) error {
	reply, err := conn.call(patience, "GET", "stock:counter")
	if err != nil {
		return err
	}
	if left, _ := strconv.ParseInt(reply.text, 10, 64); !w.isPossible(left) {
		w.run.judge.violate("users-stock", "%d units are left on node %d: %+v", left, node, w.inventory)
	}
	return nil
}

func (i *inventory) isOversold() bool { return i.sold > i.added+i.addsOpen }

// isPossible returns whether so many units may be left at the end.
func (i *inventory) isPossible(left int64) bool {
	return left >= i.added-i.sold-i.takesOpen && left <= i.added+i.addsOpen-i.sold
}

// usersLock: SET NX EX with a lease that outlives the run, so that each refusal can be explained, and unlock by the owner. A caller
// without a reply unlocks, too, in case it has the lock.
type usersLock struct {
	run       *Run
	mutex     sync.Mutex
	histories map[string]*History
	made      int
}

func (w *usersLock) step(c *Client) {
	w.mutex.Lock()
	key, history := currentHistory(w.histories, &w.made, "users-lock")
	w.mutex.Unlock()
	owner := fresh()
	add := func(kind string, result *Result) {
		history.add(w.run.judge, c.number, result.begin, mutexInput{kind, owner}, result.text, result.Outcome)
	}
	taken := c.call("users-lock", "SET", key, owner, "NX", "EX", 36_000)
	if taken == nil || taken.Outcome == failed {
		return
	}
	add("take", taken)
	if taken.Outcome == ok && taken.isNull() {
		return
	}
	if read := c.call("users-lock", "GET", key); read != nil {
		add("get", read)
	}
	c.pause(3)
	for !w.run.stopped() {
		done := c.script("users-lock", "unlock", []string{key}, owner)
		if done == nil {
			continue
		}
		add("unlock", done)
		if done.Outcome == ok {
			return
		}
	}
}

func (w *usersLock) finish(_ int, conn *Conn) error {
	return readAtEnd(w.run.judge, w.histories, conn, mutexInput{kind: "get"})
}

func (w *usersLock) judgeCalls() (undecided int) {
	return w.run.judge.judgeHistories("users-lock", mutexModel, w.histories)
}
