package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// patience bounds the time in which a client must find the leader. Usually it takes a fraction of a second.
const patience = time.Minute

// followLeader uses a client all the time, while ../group kills the leader and hands leadership over.
func followLeader(mode string) []check {
	var client redis.UniversalClient
	if mode == "sentinel" {
		client = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "mymaster", SentinelAddrs: addresses("SENTINELS")})
	} else {
		// Without MOVED, which a dead leader does not say, the client asks for the leader only at this interval: by default 60 s.
		client = redis.NewClusterClient(&redis.ClusterOptions{Addrs: addresses("NODES"), ClusterStateReloadInterval: time.Second})
	}
	counter := &counter{client: client}
	go counter.run()
	name := "go-redis " + mode
	return []check{
		{name + ": follows the leader after a kill", func() error {
			return counter.goesOn(name, "kill-leader")
		}},
		{name + ": follows a transfer to the restarted node", func() error {
			return errors.Join(counter.goesOn(name, "restart"), counter.goesOn(name, "transfer"))
		}},
	}
}

// counter increments a key again and again. A reply that is no higher than an earlier one shows that a change was lost.
type counter struct {
	client       redis.UniversalClient
	acknowledged atomic.Int64
	lost         atomic.Bool
	pause        atomic.Int64 // the longest time between two replies, in nanoseconds
	failure      atomic.Value
}

func (c *counter) run() {
	last, at := int64(0), time.Now()
	for ; ; time.Sleep(time.Millisecond) {
		value, err := c.client.Incr(context.Background(), "counter").Result()
		if err != nil {
			c.failure.Store(err.Error())
			continue
		}
		if value <= last {
			c.lost.Store(true)
		}
		c.pause.Store(max(c.pause.Load(), time.Since(at).Nanoseconds()))
		last, at = value, time.Now()
		c.acknowledged.Add(1)
	}
}

// goesOn asks ../group for a change, and waits until changes are acknowledged before and after it.
func (c *counter) goesOn(name, change string) error {
	if err := c.isServed(); err != nil {
		return err
	}
	c.pause.Store(0)
	command := exec.Command(os.Getenv("GROUP"), change)
	command.Stderr = os.Stderr
	if err := errors.Join(command.Run(), c.isServed()); err != nil {
		return fmt.Errorf("%s: %w", change, err)
	}
	fmt.Printf("%s: %s: no reply for %v\n", name, change, time.Duration(c.pause.Load()))
	return expect("a change was lost", c.lost.Load(), false)
}

func (c *counter) isServed() error {
	enough := c.acknowledged.Load() + 20
	for end := time.Now().Add(patience); c.acknowledged.Load() < enough; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("the client finds no leader: %v", c.failure.Load())
		}
	}
	return nil
}

func addresses(variable string) []string { return strings.Fields(os.Getenv(variable)) }
