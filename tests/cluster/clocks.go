package main

// Wall clocks that are set, and what that does to promises. The clock of a node is set by a library that is loaded before the C
// library; clocks that measure durations stay as they are.
//
// Leases and expiry go by the leader's wall clock. If it is set forward they end early. When it is set right, the group's time goes
// at half speed until the real time is there, so they end late, but not early. So nothing is said about the end of a lease that
// lives while clocks differ, and nothing about late ends until the two times have met. What must hold all the time: fencing tokens
// grow, nothing is lost, and no node shows a time before one that was shown.

import (
	encoding "encoding/binary" // `binary` is the server under test
	"errors"
	"math"
	"os"
	"time"
)

// clock names the file by which the library sets the node's wall clock, and counts the readings that were changed.
func (n *Node) clock() string { return n.dir + ".clock" }

// makeClock makes that file, unless it is there.
func (n *Node) makeClock() error {
	file, err := os.OpenFile(n.clock(), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(make([]byte, 16))
	return err
}

// setClock sets the node's wall clock ahead of the real one, or behind.
func (n *Node) setClock(ahead time.Duration) error {
	file, err := os.OpenFile(n.clock(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = file.Write(encoding.NativeEndian.AppendUint64(nil, uint64(ahead)))
	return err
}

// changedReadings returns how many readings of the node's wall clock were changed so far.
func (n *Node) changedReadings() int64 {
	bytes, err := os.ReadFile(n.clock())
	if err != nil || len(bytes) != 16 {
		return 0
	}
	return int64(encoding.NativeEndian.Uint64(bytes[8:]))
}

// wrongClocks is a time during which clocks were wrong, and when the group's time was the real one again.
type wrongClocks struct {
	begin, end, met time.Duration
}

// clocksDiffer notes that clocks are going to be set. The function that it returns notes that all are right again.
func (j *Judge) clocksDiffer() (agree func(ahead time.Duration)) {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	at := len(j.clocks)
	j.clocks = append(j.clocks, wrongClocks{begin: j.now(), end: math.MaxInt64, met: math.MaxInt64})
	return func(ahead time.Duration) {
		j.mutex.Lock()
		defer j.mutex.Unlock()
		j.clocks[at].end = j.now()
		j.clocks[at].met = j.now() + 2*max(ahead, 0) + time.Second
	}
}

// clocksAgreed returns whether no clock was wrong at any time of a span.
func (j *Judge) clocksAgreed(begin, end time.Duration) bool {
	return j.noneOf(begin, end, func(wrong wrongClocks) time.Duration { return wrong.end })
}

// timeWasReal returns whether the group's time was the real one at any time of a span.
func (j *Judge) timeWasReal(begin, end time.Duration) bool {
	return j.noneOf(begin, end, func(wrong wrongClocks) time.Duration { return wrong.met })
}

func (j *Judge) noneOf(begin, end time.Duration, until func(wrongClocks) time.Duration) bool {
	j.mutex.Lock()
	defer j.mutex.Unlock()
	for _, wrong := range j.clocks {
		if wrong.begin <= end && begin <= until(wrong) {
			return false
		}
	}
	return true
}

// clockJump sets the wall clock of one node forward or back, by up to two minutes, and then right again. It may lead all the time,
// or only for some of it.
func clockJump(r *Run) (bool, error) {
	number := r.shuffled()[0]
	if r.random.Intn(2) == 0 {
		number = r.leader()
	}
	node := r.group.node(number)
	ahead := time.Second << r.random.Intn(8)
	if ahead = min(ahead, 2*time.Minute); r.random.Intn(3) == 0 {
		ahead = -ahead
	}
	before := node.changedReadings()
	agree := r.judge.clocksDiffer()
	for _, by := range []time.Duration{ahead, 0} {
		r.judge.event("clock: node %d is ahead by %v", number, by)
		if err := node.setClock(by); err != nil {
			return false, err
		}
		r.hold(true)
		if others := r.group.others(r.leader()); r.random.Intn(2) == 0 {
			if err := r.group.manage("TRANSFER", others[r.random.Intn(len(others))]); err != nil {
				return false, err
			}
		}
		r.hold(true)
	}
	agree(ahead)
	return node.changedReadings() > before, nil
}

// timeScript changes something, and returns the time of that in milliseconds, and the time that is left to an earlier change.
const timeScript = "local now, left = redis.call('time'), redis.call('pttl', KEYS[1]) " +
	"redis.call('set', KEYS[1], 'value', 'px', ARGV[1]) return {now[1] * 1000 + math.floor(now[2] / 1000), left}"

// lifeMs is longer than any fault.
const lifeMs = 600_000

// timekeeper is the group's time that a client saw with its last change.
type timekeeper struct {
	ms int64
}

// watchTime is a client that asks for the time again and again, together with a change.
func watchTime(run *Run) {
	c, keeper := run.newClient(*clients+workers+1), timekeeper{}
	for ; !run.stopped(); time.Sleep(5 * time.Millisecond) {
		result := c.call("time", "EVAL", timeScript, 1, "time", lifeMs)
		if result == nil || result.Outcome != ok || len(result.items) != 2 {
			continue
		}
		if wrong := keeper.told(result.items[0].number(), result.items[1].number()); wrong != "" {
			run.judge.violate("time", "%s (sent at %v to node %d)", wrong, result.begin, c.node)
		}
	}
	c.disconnect()
}

// told takes the time of a change, and returns what is wrong with it.
func (k *timekeeper) told(ms, leftMs int64) (wrong string) {
	switch {
	case ms < k.ms:
		wrong = "time went back"
	case leftMs > lifeMs:
		wrong = "a key lives longer"
	}
	k.ms = ms
	return wrong
}
