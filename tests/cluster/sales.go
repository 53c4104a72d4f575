package main

// Flash sales and the workers for their orders, as today's users have them. A script sells one unit to a buyer, at most one to each,
// and its second version queues the order on a stream in the same step. Workers read the stream as a group, one order at a time.

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	saleTotal  = 30 // units of a voucher
	saleBuyers = 40

	ordersKey   = "stream.orders"
	ordersGroup = "g1"
)

// usersSales: vouchers that are sold out, one after the other.
type usersSales struct {
	run    *Run
	name   string
	script string
	mutex  sync.Mutex
	sales  map[string]*sale
	made   int
}

func (w *usersSales) queues() bool { return w.script == "seckill_v2" }

func (w *usersSales) step(c *Client) {
	s := w.current()
	if !s.isReady.Load() {
		// The key is never there twice, so each client may try.
		if set := c.call(w.name, "SET", "seckill:stock:"+s.voucher, saleTotal, "NX"); set != nil && set.Outcome == ok {
			s.isReady.Store(true)
		}
		return
	}
	if c.random.Intn(8) == 0 {
		w.look(c, s)
		return
	}
	user, order := fmt.Sprintf("user-%d", c.random.Intn(saleBuyers)), fresh()
	s.attempt(user)
	result := c.script(w.name, w.script, nil, s.voucher, user, order)
	if result == nil {
		result = &Result{Outcome: failed} // it was not sent
	}
	if wrong := s.told(user, order, result); wrong != "" {
		w.run.judge.violate(w.name, "%s: %s (on node %d)", s.voucher, wrong, c.node)
	}
}

// current returns the sale of the voucher that is not known to be sold out for long.
func (w *usersSales) current() *sale {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	name := func() string { return fmt.Sprintf("%s-%d", w.script, w.made) }
	if s := w.sales[name()]; s != nil && !s.isStale() {
		return s
	}
	w.made++
	s := newSale(name())
	w.sales[name()] = s
	return s
}

// look reads stock and buyers of one moment.
func (w *usersSales) look(c *Client, s *sale) {
	results := c.calls(w.name, []any{"MULTI"}, []any{"GET", "seckill:stock:" + s.voucher}, []any{"SCARD", "seckill:order:" + s.voucher}, []any{"EXEC"})
	if results == nil || results[3].Outcome != ok || len(results[3].items) != 2 {
		return
	}
	if left, buyers := results[3].items[0].number(), results[3].items[1].number(); left < 0 || left+buyers != saleTotal {
		w.run.judge.violate(w.name, "%s: %d of %d are left, and there are %d buyers (sent at %v to node %d)", s.voucher, left, saleTotal, buyers, results[3].begin, c.node)
	}
}

// finish reads everything in one transaction: a call that was left open may still come.
func (w *usersSales) finish(node int, conn *Conn) error {
	vouchers := sorted(w.sales)
	commands := [][]any{{"MULTI"}, {"XRANGE", ordersKey, "-", "+"}}
	for _, voucher := range vouchers {
		commands = append(commands, []any{"GET", "seckill:stock:" + voucher}, []any{"SMEMBERS", "seckill:order:" + voucher})
	}
	replies, err := conn.pipeline(patience, append(commands, []any{"EXEC"}))
	if err != nil {
		return err
	}
	read := replies[len(replies)-1].items
	if len(read) != len(commands)-1 {
		return fmt.Errorf("EXEC: %v", replies[len(replies)-1])
	}
	orders := map[string][]Order{} // by voucher
	for _, entry := range read[0].items {
		order := orderOf(entry)
		orders[order.voucher] = append(orders[order.voucher], order)
	}
	for i, voucher := range vouchers {
		s, stock, buyers := w.sales[voucher], read[1+2*i], read[2+2*i]
		if s.isReady.Load() {
			faults := s.faults(stock.number(), buyers.items, orders[voucher], w.queues())
			w.run.judge.violateEach(w.name, fmt.Sprintf("%s on node %d, of which %v are left", voucher, node, stock), faults)
		}
	}
	return nil
}

// sale is what the buyers of one voucher know.
type sale struct {
	voucher  string
	isReady  atomic.Bool // the stock is there
	mutex    sync.Mutex
	possible map[string]int      // calls that may have succeeded, or may yet, by user
	sold     map[string]string   // orders that were acknowledged, by user
	open     map[string][]string // orders without a reply, by user
	refusals int                 // for want of stock
	over     time.Duration       // when the first of them was known
}

func newSale(voucher string) *sale {
	return &sale{voucher: voucher, possible: map[string]int{}, sold: map[string]string{}, open: map[string][]string{}}
}

func (s *sale) isStale() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.refusals >= saleTotal
}

// attempt notes that a user's call is about to be sent.
func (s *sale) attempt(user string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.possible[user]++
}

// told takes the outcome of a user's call. Returns what is wrong with it, if anything is.
func (s *sale) told(user, order string, result *Result) string {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if result.Outcome == unknown {
		s.open[user] = append(s.open[user], order)
		return ""
	}
	if result.Outcome == ok && result.text == "0" {
		before, isSold := s.sold[user]
		s.sold[user] = order
		switch {
		case isSold:
			return fmt.Sprintf("%s bought twice: %s and %s", user, before, order)
		case s.over != 0 && result.begin > s.over:
			return fmt.Sprintf("%s bought at %v, after it was sold out at %v", user, result.end, s.over)
		case len(s.sold) > saleTotal:
			return fmt.Sprintf("%d of %d were sold", len(s.sold), saleTotal)
		}
		return ""
	}
	if s.possible[user]--; s.possible[user] == 0 {
		delete(s.possible, user)
	}
	switch {
	case result.Outcome == failed:
		return ""
	case result.text == "1":
		s.refusals++
		if s.over == 0 || result.end < s.over {
			s.over = result.end
		}
		if len(s.possible) < saleTotal {
			return fmt.Sprintf("%s found it sold out, after no more than %d users of %d", user, len(s.possible), saleTotal)
		}
	case result.text == "2":
		if s.possible[user] == 0 {
			return fmt.Sprintf("%s has bought already, but never did", user)
		}
	default:
		return fmt.Sprintf("the reply was %v", result.Reply)
	}
	return ""
}

// faults compares the data with what the buyers know.
func (s *sale) faults(left int64, buyers []Reply, orders []Order, queues bool) map[string][]string {
	faults := map[string][]string{}
	note := func(kind, what string) { faults[kind] = append(faults[kind], what) }
	if left < 0 || left+int64(len(buyers)) != saleTotal {
		note("buyers, which do not make up for what is left", fmt.Sprint(len(buyers)))
	}
	isBuyer, queued := map[string]bool{}, map[string]int{}
	for _, buyer := range buyers {
		isBuyer[buyer.text] = true
		if s.sold[buyer.text] == "" && len(s.open[buyer.text]) == 0 {
			note("buyers that never were", buyer.text)
		}
	}
	for user := range s.sold {
		if !isBuyer[user] {
			note("lost buyers", user)
		}
	}
	for _, order := range orders {
		queued[order.user]++
		isOurs := order.id == s.sold[order.user]
		for _, open := range s.open[order.user] {
			isOurs = isOurs || s.sold[order.user] == "" && order.id == open
		}
		if !isOurs || !isBuyer[order.user] {
			note("orders that never were", order.id)
		}
	}
	for user := range isBuyer {
		if queues && queued[user] != 1 {
			note("buyers without exactly one order", user)
		}
	}
	return faults
}

// usersOrders: workers take the orders of the second version's sales, work each and acknowledge it. After an error a worker reads what
// is pending for it, until nothing is. A record of the order keeps it from being worked twice.
type usersOrders struct {
	run   *Run
	sales *usersSales
	mutex sync.Mutex
	desk
	troubled map[string]bool // consumers after an error
}

const (
	blockMs = 2000
	// workers are clients that do nothing else. The others take an order now and then.
	workers = 2
	// workOnce counts an order, and returns its number, which stays when the order comes again.
	workOnce = "local number = redis.call('hget', KEYS[1], ARGV[1]) " +
		"if not number then number = redis.call('incr', KEYS[2]) redis.call('hset', KEYS[1], ARGV[1], number) end return tonumber(number)"
)

// Order is an entry of the stream.
type Order struct{ entry, user, voucher, id string }

func orderOf(entry Reply) Order {
	fields := Reply{items: append([]Reply{{}}, entry.items[1].items...)}
	return Order{entry.items[0].text, fields.field("userId").text, fields.field("voucherId").text, fields.field("id").text}
}

func (w *usersOrders) step(c *Client) {
	w.turn(c, fmt.Sprintf("c%d", c.number), c.number > *clients)
}

// turn is one turn of a consumer. Returns whether it got an order.
func (w *usersOrders) turn(c *Client, consumer string, waits bool) bool {
	isTroubled := w.isTroubled(consumer)
	args := []any{"XREADGROUP", "GROUP", ordersGroup, consumer, "COUNT", 1}
	if waits && !isTroubled {
		args = append(args, "BLOCK", blockMs)
		c.blocks = blockMs * time.Millisecond
	}
	args = append(args, "STREAMS", ordersKey, map[bool]string{true: "0", false: ">"}[isTroubled])
	result := c.call("users-order", args...)
	c.blocks = 0
	switch {
	case result == nil:
		return false
	case result.Outcome != ok:
		w.setTroubled(consumer, true)
		return false
	case result.isNull() || len(result.items[0].items[1].items) == 0:
		w.setTroubled(consumer, false)
		return false
	}
	order := orderOf(result.items[0].items[1].items[0])
	w.judge(c, result, func() string { return w.deliver(order, consumer, isTroubled) })
	failsAtWork := c.random.Intn(20) == 0
	if failsAtWork || !w.work(c, order) || !w.acknowledge(c, order) {
		w.setTroubled(consumer, true)
	}
	return true
}

func (w *usersOrders) isTroubled(consumer string) bool {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.troubled[consumer]
}

func (w *usersOrders) setTroubled(consumer string, isTroubled bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.troubled[consumer] = isTroubled
}

// judge lets the desk note a result.
func (w *usersOrders) judge(c *Client, result *Result, note func() (wrong string)) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if wrong := note(); wrong != "" {
		w.run.judge.violate("users-order", "%s (sent at %v to node %d)", wrong, result.begin, c.node)
	}
}

// work does the work for an order, unless it is done, and returns whether that was answered.
func (w *usersOrders) work(c *Client, order Order) bool {
	args := []any{"ONCE", "order:" + order.id, "EX", 86400, "INCR", "orders:worked"}
	if w.run.group.sentinel {
		args = []any{"EVAL", workOnce, 2, "orders:numbers", "orders:worked", order.id}
	}
	result := c.call("users-order", args...)
	if result == nil {
		return false
	}
	w.judge(c, result, func() string { return w.worked(order.id, result.Outcome, result.number()) })
	return result.Outcome == ok
}

func (w *usersOrders) acknowledge(c *Client, order Order) bool {
	result := c.call("users-order", "XACK", ordersKey, ordersGroup, order.entry)
	if result == nil {
		return false
	}
	w.judge(c, result, func() string { return w.acknowledged(order.entry, result.Outcome, result.number()) })
	return result.Outcome == ok
}

// drain works all that is left when nobody buys any more. It plays each consumer that still has an order.
func (w *usersOrders) drain(c *Client) {
	for begin := time.Now(); time.Since(begin) < patience; {
		pending := c.call("users-order", "XPENDING", ordersKey, ordersGroup, "-", "+", 1)
		if pending == nil || pending.Outcome != ok {
			continue
		}
		consumer, isPending := "last", len(pending.items) > 0
		if isPending {
			consumer = pending.items[0].items[1].text
		}
		w.setTroubled(consumer, isPending)
		if w.turn(c, consumer, false) {
			begin = time.Now()
		} else if !isPending && !w.isTroubled(consumer) && c.conn != nil {
			c.disconnect()
			return
		}
	}
	w.run.judge.violate("users-order", "orders are left, and no worker gets one for %v", patience)
}

func (w *usersOrders) finish(node int, conn *Conn) error {
	replies, err := conn.pipeline(patience, [][]any{
		{"MULTI"}, {"XRANGE", ordersKey, "-", "+"}, {"XPENDING", ordersKey, ordersGroup, "-", "+", 1_000_000}, {"GET", "orders:worked"}, {"EXEC"},
	})
	if err != nil {
		return err
	}
	read := replies[len(replies)-1].items
	if len(read) != 3 {
		return fmt.Errorf("EXEC: %v", replies[len(replies)-1])
	}
	var orders []Order
	for _, entry := range read[0].items {
		orders = append(orders, orderOf(entry))
	}
	var pending, sold []string
	for _, entry := range read[1].items {
		pending = append(pending, entry.items[0].text)
	}
	for _, s := range w.sales.sales {
		for _, order := range s.sold {
			sold = append(sold, order)
		}
	}
	w.run.judge.violateEach("users-order", fmt.Sprintf("the orders on node %d", node), w.faults(orders, pending, sold, max(read[2].number(), 0)))
	return nil
}

// desk is what the workers know.
type desk struct {
	consumers map[string]string  // of entries that were delivered
	acks      map[string]Outcome // of entries: what became of XACK
	numbers   map[string]int64   // of orders that were worked
	byNumber  map[int64]string   // and the other way round
	open      map[string]bool    // orders that may have been worked
}

func newDesk() desk {
	return desk{consumers: map[string]string{}, acks: map[string]Outcome{}, numbers: map[string]int64{}, byNumber: map[int64]string{}, open: map[string]bool{}}
}

// deliver notes that a consumer got an order, as a new one or one that is pending. Returns what is wrong with that, if anything is.
func (d *desk) deliver(order Order, consumer string, isPending bool) string {
	before, wasDelivered := d.consumers[order.entry]
	outcome, wasSent := d.acks[order.entry]
	d.consumers[order.entry] = consumer
	switch {
	case order.id == "" || order.user == "" || order.voucher == "":
		return fmt.Sprintf("a part of an order: %+v", order)
	case wasSent && outcome == ok:
		return fmt.Sprintf("%+v came again to %s after XACK", order, consumer)
	case wasDelivered && (before != consumer || !isPending):
		return fmt.Sprintf("%+v was delivered to %s and then to %s", order, before, consumer)
	}
	return ""
}

// worked notes the number that an order got.
func (d *desk) worked(order string, outcome Outcome, number int64) string {
	if outcome != ok {
		d.open[order] = d.open[order] || outcome == unknown
		return ""
	}
	before, wasWorked := d.numbers[order]
	other, isTaken := d.byNumber[number]
	d.numbers[order], d.byNumber[number] = number, order
	switch {
	case wasWorked && before != number:
		return fmt.Sprintf("%s was worked twice, as %d and as %d", order, before, number)
	case isTaken && other != order:
		return fmt.Sprintf("%s and %s were both worked as %d", other, order, number)
	}
	return ""
}

// acknowledged notes what became of XACK.
func (d *desk) acknowledged(entry string, outcome Outcome, count int64) string {
	_, wasSent := d.acks[entry]
	if outcome == failed {
		return ""
	}
	d.acks[entry] = outcome
	if outcome == ok && count != 1 && !wasSent {
		return fmt.Sprintf("XACK of %s, which had been delivered, returned %d", entry, count)
	}
	return ""
}

// faults compares the data, when all has been worked, with what the workers know and which orders were acknowledged as sold.
func (d *desk) faults(orders []Order, pending, sold []string, worked int64) map[string][]string {
	faults := map[string][]string{}
	note := func(kind, what string) { faults[kind] = append(faults[kind], what) }
	isThere := map[string]bool{}
	for _, order := range orders {
		if isThere[order.id] {
			note("orders that are there twice", order.id)
		}
		isThere[order.id] = true
		if _, isWorked := d.numbers[order.id]; !isWorked && d.consumers[order.entry] != "" {
			note("orders that were delivered and never worked", order.id)
		}
	}
	for _, order := range sold {
		if _, isWorked := d.numbers[order]; !isWorked {
			note("orders that were sold and never worked", order)
		}
	}
	for order := range d.numbers {
		if !isThere[order] {
			note("orders that were worked and are lost", order)
		}
	}
	for _, entry := range pending {
		if outcome, wasSent := d.acks[entry]; wasSent && outcome == ok {
			note("entries that are pending after XACK", entry)
		}
	}
	known, open := int64(len(d.numbers)), int64(0)
	for order := range d.open {
		if _, isWorked := d.numbers[order]; !isWorked {
			open++
		}
	}
	if worked < known || worked > known+open {
		note("the number of orders worked, by the workers from ... to ...", fmt.Sprintf("%d: %d to %d", worked, known, known+open))
	}
	return faults
}
