package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// redsyncLocks lets goroutines take turns by locks, which are extended and given back.
func redsyncLocks() []check {
	return []check{
		{"redsync: goroutines take turns, and a lock is extended", func() error {
			ctx := context.Background()
			client := redis.NewClient(&redis.Options{Addr: address()})
			defer client.Close()
			locks := redsync.New(goredis.NewPool(client))
			patient := []redsync.Option{
				redsync.WithExpiry(time.Minute), redsync.WithTries(100_000), redsync.WithRetryDelay(2 * time.Millisecond),
			}
			const each, workers = 10, 8
			count := 0
			failures := make([]error, workers)
			var group sync.WaitGroup
			for worker := range workers {
				group.Go(func() {
					for range each {
						lock := locks.NewMutex("redsync:count", patient...)
						if failures[worker] = lock.LockContext(ctx); failures[worker] != nil {
							return
						}
						before := count
						time.Sleep(time.Millisecond)
						count = before + 1
						if _, failures[worker] = lock.UnlockContext(ctx); failures[worker] != nil {
							return
						}
					}
				})
			}
			group.Wait()
			if err := errors.Join(failures...); err != nil {
				return err
			}
			if err := expect("counted", count, each*workers); err != nil {
				return err
			}
			held := locks.NewMutex("redsync:held", redsync.WithExpiry(time.Minute))
			if err := held.LockContext(ctx); err != nil {
				return err
			}
			if extended, err := held.ExtendContext(ctx); err != nil || !extended {
				return errors.Join(errors.New("it is not extended"), err)
			}
			other := locks.NewMutex("redsync:held", redsync.WithTries(1))
			if other.LockContext(ctx) == nil {
				return errors.New("it has two holders")
			}
			if released, err := held.UnlockContext(ctx); err != nil || !released {
				return errors.Join(errors.New("it is not released"), err)
			}
			return other.LockContext(ctx)
		}},
	}
}
