package main

// The judge itself is judged: each of these histories breaks one promise, and one breaks none.

import (
	"fmt"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

func TestLocks(t *testing.T) {
	acquire := func(client int, owner string, begin, end int64, output any) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: lockInput{"acquire", owner}, Call: begin, Output: output, Return: end}
	}
	release := func(client int, owner string, begin, end int64, output any) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: lockInput{"release", owner}, Call: begin, Output: output, Return: end}
	}
	granted := func(token int64) lockOutput { return lockOutput{true, token} }
	refused := lockOutput{}
	const open = 1 << 62
	for name, test := range map[string]struct {
		good    bool
		history []porcupine.Operation
	}{
		"one after the other": {true, []porcupine.Operation{
			acquire(1, "a", 0, 10, granted(1)), acquire(2, "b", 11, 12, refused), release(1, "a", 13, 14, granted(1)), acquire(2, "b", 15, 16, granted(2)),
		}},
		"an unknown grant explains a refusal": {true, []porcupine.Operation{
			acquire(1, "a", 0, open, nil), acquire(2, "b", 11, 12, refused), acquire(1, "a", 13, 14, granted(7)),
		}},
		"two owners": {false, []porcupine.Operation{acquire(1, "a", 0, 10, granted(1)), acquire(2, "b", 11, 12, granted(2))}},
		"a token goes back": {false, []porcupine.Operation{
			acquire(1, "a", 0, 10, granted(2)), release(1, "a", 13, 14, granted(2)), acquire(2, "b", 15, 16, granted(2)),
		}},
		"a grant is lost":            {false, []porcupine.Operation{acquire(1, "a", 0, 10, granted(1)), release(1, "a", 11, 12, refused)}},
		"a refusal without an owner": {false, []porcupine.Operation{acquire(1, "a", 0, 10, refused)}},
	} {
		if porcupine.CheckOperations(lockModel, test.history) != test.good {
			t.Errorf("%s: the verdict should be %v", name, test.good)
		}
	}
}

func TestRegisters(t *testing.T) {
	set := func(value string, begin, end int64) porcupine.Operation {
		return porcupine.Operation{ClientId: 1, Input: registerInput{kind: "set", new: value}, Call: begin, Return: end}
	}
	get := func(value string, begin, end int64) porcupine.Operation {
		return porcupine.Operation{ClientId: 2, Input: registerInput{kind: "get"}, Call: begin, Output: value, Return: end}
	}
	if !porcupine.CheckOperations(registerModel, []porcupine.Operation{set("1", 0, 10), set("2", 20, 1<<62), get("1", 30, 40), get("2", 50, 60)}) {
		t.Error("a write whose end is unknown may happen late")
	}
	if porcupine.CheckOperations(registerModel, []porcupine.Operation{set("1", 0, 10), set("2", 20, 30), get("1", 40, 50)}) {
		t.Error("a stale read")
	}
}

func TestSpans(t *testing.T) {
	judge, err := newJudge(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	judge.judgeSpans("gate", "key", []Span{{begin: 0, end: 10}, {begin: 10, end: 20}, {begin: 15, end: 25}}, 2)
	if len(judge.violations) != 0 {
		t.Error(judge.violations)
	}
	judge.judgeSpans("gate", "key", []Span{{begin: 0, end: 10}, {begin: 5, end: 20}, {begin: 9, end: 25}}, 2)
	if len(judge.violations) != 1 {
		t.Error("three held two places")
	}
}

func TestGates(t *testing.T) {
	call := func(kind string, begin, end int64, output any) porcupine.Operation {
		return porcupine.Operation{ClientId: 1, Input: kind, Call: begin, Output: output, Return: end}
	}
	full := func(more ...porcupine.Operation) []porcupine.Operation {
		var history []porcupine.Operation
		for i := int64(1); i <= gateLimit; i++ {
			history = append(history, call("acquire", i*10, i*10+5, i))
		}
		return append(history, more...)
	}
	const open = 1 << 62
	for name, test := range map[string]struct {
		good    bool
		history []porcupine.Operation
	}{
		"a refusal looks like the last grant": {true, full(call("acquire", 700, 710, int64(60)), call("get", 720, 730, int64(60)))},
		"no key yet":                          {true, []porcupine.Operation{call("get", 0, 5, int64(-1)), call("release", 6, 9, int64(-1)), call("acquire", 10, 15, int64(1))}},
		"an unknown grant explains a gap":     {true, []porcupine.Operation{call("acquire", 0, open, nil), call("acquire", 10, 15, int64(2))}},
		"an unknown return":                   {true, full(call("release", 700, open, nil), call("get", 710, 720, int64(59)))},
		"over 60":                             {false, full(call("acquire", 700, 710, int64(61)))},
		"a place is given twice":              {false, []porcupine.Operation{call("acquire", 0, 5, int64(1)), call("acquire", 10, 15, int64(1))}},
		"a grant is lost":                     {false, full(call("get", 700, 710, int64(59)))},
		"a return is lost":                    {false, full(call("release", 700, 710, int64(59)), call("get", 720, 730, int64(60)))},
		"a key that is gone":                  {false, full(call("release", 700, 710, int64(-1)))},
	} {
		if porcupine.CheckOperations(gateModel, test.history) != test.good {
			t.Errorf("%s: the verdict should be %v", name, test.good)
		}
	}
	two := gate{held: make([]Span, 2), maybeTaken: 1, maybeGiven: 1}
	for taken, good := range map[int64]bool{1: false, 2: true, 4: true, 5: false} {
		if wrong := two.isWrong(taken); (wrong == "") != good {
			t.Errorf("%d places taken: %q", taken, wrong)
		}
	}
	if over := (gate{held: make([]Span, 61)}); over.isWrong(61) == "" {
		t.Error("61 places are taken")
	}
}

func TestUsersLocks(t *testing.T) {
	call := func(kind, owner string, begin, end int64, output any) porcupine.Operation {
		return porcupine.Operation{ClientId: 1, Input: mutexInput{kind, owner}, Call: begin, Output: output, Return: end}
	}
	const open = 1 << 62
	for name, test := range map[string]struct {
		good    bool
		history []porcupine.Operation
	}{
		"one after the other": {true, []porcupine.Operation{
			call("take", "a", 0, 5, "OK"), call("take", "b", 6, 7, ""), call("get", "a", 8, 9, "a"), call("unlock", "a", 10, 11, "1"), call("take", "c", 12, 13, "OK"),
		}},
		"an unknown unlock explains 0": {true, []porcupine.Operation{
			call("take", "a", 0, 5, "OK"), call("unlock", "a", 6, open, nil), call("unlock", "a", 10, 11, "0"), call("take", "b", 12, 13, "OK"),
		}},
		"two owners":               {false, []porcupine.Operation{call("take", "a", 0, 5, "OK"), call("take", "b", 6, 7, "OK")}},
		"a lock that is lost":      {false, []porcupine.Operation{call("take", "a", 0, 5, "OK"), call("unlock", "a", 6, 7, "0")}},
		"another's lock is seen":   {false, []porcupine.Operation{call("take", "a", 0, 5, "OK"), call("get", "a", 6, 7, "")}},
		"an unlock that is undone": {false, []porcupine.Operation{call("take", "a", 0, 5, "OK"), call("unlock", "a", 6, 7, "1"), call("take", "b", 8, 9, "")}},
		"nobody is the owner":      {false, []porcupine.Operation{call("take", "a", 0, 5, "")}},
	} {
		if porcupine.CheckOperations(mutexModel, test.history) != test.good {
			t.Errorf("%s: the verdict should be %v", name, test.good)
		}
	}
}

func TestLimits(t *testing.T) {
	over := sent{begun: dailyLimit + 1, allowed: dailyLimit}
	for name, wrong := range map[string]string{
		"one is allowed over the limit":  over.told(ok, "0", false),
		"one is allowed after a refusal": (&sent{begun: 3}).told(ok, "0", true),
		"one is refused below the limit": (&sent{begun: dailyLimit}).told(ok, "1", false),
		"neither allowed nor refused":    (&sent{begun: dailyLimit + 1}).told(ok, "", false),
	} {
		if wrong == "" {
			t.Error(name)
		}
	}
	good := sent{begun: dailyLimit + 1, allowed: dailyLimit - 1}
	if wrong := good.told(unknown, "", false) + good.told(ok, "0", false) + good.told(ok, "1", true); wrong != "" {
		t.Error(wrong)
	}
}

func TestInventories(t *testing.T) {
	known := inventory{added: 40, addsOpen: 20, sold: 30, takesOpen: 3}
	for left, good := range map[int64]bool{6: false, 7: true, 10: true, 30: true, 31: false} {
		if known.isPossible(left) != good {
			t.Errorf("%d units are left", left)
		}
	}
	known.sold = 60
	if known.isOversold() {
		t.Error("all units are sold")
	}
	if known.sold++; !known.isOversold() {
		t.Error("sold twice")
	}
}

// reply is the result of a call from one time to another.
func reply(text string, begin, end time.Duration) *Result {
	return &Result{Outcome: ok, Reply: Reply{kind: ':', text: text}, begin: begin, end: end}
}

// soldOut returns a sale whose units all went, to users 0, 1, and so on, and a call that was refused after that.
func soldOut(t *testing.T) *sale {
	s := newSale("voucher")
	for i := 0; i <= saleTotal; i++ {
		user, code := fmt.Sprint(i), "0"
		if i == saleTotal {
			code = "1"
		}
		s.attempt(user)
		if wrong := s.told(user, "order-"+user, reply(code, time.Duration(2*i), time.Duration(2*i+1))); wrong != "" {
			t.Error(wrong)
		}
	}
	return s
}

func TestSalesAsTold(t *testing.T) {
	some := newSale("voucher")
	some.attempt("a")
	some.attempt("b")
	if wrong := some.told("a", "1", reply("0", 1, 2)) + some.told("b", "2", &Result{Outcome: unknown}); wrong != "" {
		t.Error(wrong)
	}
	for user, code := range map[string]string{"a": "0", "c": "2", "d": "1", "e": "3"} {
		some.attempt(user)
		if some.told(user, "3", reply(code, 3, 4)) == "" {
			t.Errorf("%s was told %s", user, code)
		}
	}
	for _, user := range []string{"a", "b"} {
		some.attempt(user)
		if wrong := some.told(user, "4", reply("2", 3, 4)); wrong != "" {
			t.Error(wrong)
		}
	}
	late := soldOut(t)
	late.attempt("late")
	if late.told("late", "5", reply("0", 1000, 1001)) == "" {
		t.Error("bought after it was sold out")
	}
}

func TestSalesByData(t *testing.T) {
	var all []Reply
	var queue []Order
	for i := 0; i < saleTotal; i++ {
		all = append(all, Reply{text: fmt.Sprint(i)})
		queue = append(queue, Order{user: fmt.Sprint(i), voucher: "voucher", id: fmt.Sprintf("order-%d", i)})
	}
	with := func(orders []Order, more Order) []Order { return append(append([]Order{}, orders...), more) }
	for name, test := range map[string]struct {
		good   bool
		left   int64
		buyers []Reply
		orders []Order
	}{
		"all is there":           {true, 0, all, queue},
		"negative":               {false, -1, all, queue},
		"a unit is left":         {false, 1, all, queue},
		"a buyer is lost":        {false, 1, all[1:], queue[1:]},
		"a buyer that never was": {false, -1, append(all[:saleTotal:saleTotal], Reply{text: "x"}), with(queue, Order{user: "x", id: "x"})},
		"an order is lost":       {false, 0, all, queue[1:]},
		"two orders":             {false, 0, all, with(queue, queue[0])},
		"another order":          {false, 0, all, with(queue[1:], Order{user: "0", id: "order-1"})},
	} {
		if faults := soldOut(t).faults(test.left, test.buyers, test.orders, true); (len(faults) == 0) != test.good {
			t.Errorf("%s: %v", name, faults)
		}
	}
	open := soldOut(t)
	delete(open.sold, "0")
	open.open["0"] = []string{"order-0"}
	if faults := open.faults(0, all, queue, true); len(faults) != 0 {
		t.Error("an open call has sold the unit:", faults)
	}
	if faults := open.faults(1, all[1:], queue[1:], true); len(faults) != 0 {
		t.Error("an open call has not sold the unit:", faults)
	}
}

func TestOrders(t *testing.T) {
	order := Order{"1-1", "user", "voucher", "a"}
	worker := newDesk()
	for _, wrong := range []string{
		worker.deliver(order, "c1", false), worker.worked("a", unknown, 0), worker.deliver(order, "c1", true),
		worker.worked("a", ok, 1), worker.acknowledged("1-1", unknown, 0), worker.deliver(order, "c1", true),
		worker.worked("a", ok, 1), worker.acknowledged("1-1", ok, 0),
	} {
		if wrong != "" {
			t.Error(wrong)
		}
	}
	if faults := worker.faults([]Order{order}, nil, []string{"a"}, 1); len(faults) != 0 {
		t.Error(faults)
	}
	for name, wrong := range map[string]string{
		"delivered after XACK": worker.deliver(order, "c1", true),
		"worked twice":         worker.worked("a", ok, 2),
		"two with one number":  worker.worked("b", ok, 1),
		"a part of an order":   worker.deliver(Order{entry: "1-2", id: "c"}, "c1", false),
		"not there for XACK":   worker.acknowledged("1-3", ok, 0),
	} {
		if wrong == "" {
			t.Error(name)
		}
	}
	twice := newDesk()
	if twice.deliver(order, "c1", false); twice.deliver(order, "c2", true) == "" || twice.deliver(order, "c2", false) == "" {
		t.Error("delivered to two consumers")
	}
	for name, test := range map[string]struct {
		change  func(*desk)
		orders  []Order
		pending []string
		sold    []string
		worked  int64
	}{
		"there twice":                  {orders: []Order{order, order}, worked: 1},
		"worked and lost":              {worked: 1},
		"sold and never worked":        {orders: []Order{order}, sold: []string{"b"}, worked: 1},
		"delivered and never worked":   {change: func(d *desk) { delete(d.numbers, "a") }, orders: []Order{order}},
		"pending after XACK":           {orders: []Order{order}, pending: []string{"1-1"}, worked: 1},
		"worked more often than known": {orders: []Order{order}, worked: 2},
		"the work is lost":             {orders: []Order{order}, worked: 0},
	} {
		d := newDesk()
		d.deliver(order, "c1", false)
		d.worked("a", ok, 1)
		d.acknowledged("1-1", ok, 1)
		if test.change != nil {
			test.change(&d)
		}
		if faults := d.faults(test.orders, test.pending, test.sold, test.worked); len(faults) == 0 {
			t.Error(name)
		}
	}
}

func TestTime(t *testing.T) {
	for name, test := range map[string]struct {
		good       bool
		ms, leftMs int64
	}{
		"time passes":        {true, 1001, lifeMs},
		"it stands":          {true, 1000, lifeMs},
		"it goes back":       {false, 999, lifeMs},
		"a key lives longer": {false, 1001, lifeMs + 1},
	} {
		keeper := timekeeper{ms: 1000}
		if wrong := keeper.told(test.ms, test.leftMs); (wrong == "") != test.good {
			t.Errorf("%s: %q", name, wrong)
		}
	}
}

func TestClocks(t *testing.T) {
	judge, err := newJudge(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	before := judge.now()
	agree := judge.clocksDiffer()
	if !judge.clocksAgreed(0, before-1) || judge.clocksAgreed(0, time.Hour) || judge.clocksAgreed(time.Hour, 2*time.Hour) {
		t.Error("a clock is wrong from now on")
	}
	agree(time.Minute)
	right := judge.now() + time.Second
	if judge.clocksAgreed(0, time.Hour) || !judge.clocksAgreed(right, time.Hour) {
		t.Error("the clocks are right from now on")
	}
	if judge.timeWasReal(right+time.Minute, time.Hour) || !judge.timeWasReal(right+3*time.Minute, time.Hour) {
		t.Error("the group's time takes two minutes to be right")
	}
}
