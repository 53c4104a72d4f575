package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// expect returns an error unless both are equal.
func expect[T any](what string, got, want T) error {
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s: got %v, want %v", what, got, want)
	}
	return nil
}

func goRedis() []check {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: address(), PoolSize: 50, ContextTimeoutEnabled: true})
	return []check{
		{"go-redis: pipelines and transactions", func() error {
			client.Del(ctx, "go:n")
			pipe := client.Pipeline()
			var last *redis.IntCmd
			for range 5000 {
				last = pipe.Incr(ctx, "go:n")
			}
			if _, err := pipe.Exec(ctx); err != nil {
				return err
			}
			// Optimistic increments by many goroutines: each finally succeeds once.
			increment := func() error {
				for {
					err := client.Watch(ctx, func(tx *redis.Tx) error {
						n, err := tx.Get(ctx, "go:n").Int()
						if err != nil {
							return err
						}
						_, err = tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
							pipe.Set(ctx, "go:n", n+1, 0)
							return nil
						})
						return err
					}, "go:n")
					if !errors.Is(err, redis.TxFailedErr) {
						return err
					}
				}
			}
			var group sync.WaitGroup
			var failure atomic.Value
			for range 20 {
				group.Go(func() {
					if err := increment(); err != nil {
						failure.Store(err)
					}
				})
			}
			group.Wait()
			if err, ok := failure.Load().(error); ok {
				return err
			}
			n, err := client.Get(ctx, "go:n").Int64()
			return errors.Join(err, expect("increments", n, last.Val()+20))
		}},
		{"go-redis: scripts and locks", func() error {
			unlock := redis.NewScript(`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`)
			client.ScriptFlush(ctx)
			client.Del(ctx, "go:lock")
			var inside, most, granted atomic.Int64
			var group sync.WaitGroup
			for worker := range 16 {
				group.Go(func() {
					owner := fmt.Sprint(worker)
					for done := 0; done < 5; {
						if !client.SetNX(ctx, "go:lock", owner, time.Minute).Val() {
							time.Sleep(time.Millisecond)
							continue
						}
						if now := inside.Add(1); now > most.Load() {
							most.Store(now)
						}
						inside.Add(-1)
						granted.Add(unlock.Run(ctx, client, []string{"go:lock"}, owner).Val().(int64))
						done++
					}
				})
			}
			group.Wait()
			return errors.Join(expect("inside at once", most.Load(), 1), expect("released", granted.Load(), 80))
		}},
		{"go-redis: a stream of orders, each processed once", func() error {
			client.Del(ctx, "go:orders")
			if err := client.XGroupCreateMkStream(ctx, "go:orders", "g", "0").Err(); err != nil {
				return err
			}
			const orders = 500
			var worked sync.Map
			var count atomic.Int64
			var group sync.WaitGroup
			for worker := range 8 {
				group.Go(func() {
					for count.Load() < orders {
						streams, err := client.XReadGroup(ctx, &redis.XReadGroupArgs{
							Group: "g", Consumer: fmt.Sprint(worker), Streams: []string{"go:orders", ">"}, Count: 10, Block: 100 * time.Millisecond,
						}).Result()
						if err != nil {
							continue
						}
						for _, message := range streams[0].Messages {
							if _, again := worked.LoadOrStore(message.ID, true); !again {
								count.Add(1)
							}
							client.XAck(ctx, "go:orders", "g", message.ID)
						}
					}
				})
			}
			for n := range orders {
				client.XAdd(ctx, &redis.XAddArgs{Stream: "go:orders", Values: map[string]any{"order": n}})
			}
			group.Wait()
			pending, err := client.XPending(ctx, "go:orders", "g").Result()
			return errors.Join(err, expect("pending", pending.Count, 0))
		}},
		{"go-redis: messages", func() error {
			listener := client.Subscribe(ctx, "go:news")
			defer listener.Close()
			if _, err := listener.Receive(ctx); err != nil {
				return err
			}
			for n := range 200 {
				client.Publish(ctx, "go:news", n)
			}
			for n := range 200 {
				message, err := listener.ReceiveMessage(ctx)
				if err != nil {
					return err
				}
				if err := expect("message", message.Payload, fmt.Sprint(n)); err != nil {
					return err
				}
			}
			return nil
		}},
		{"go-redis: a blocked call and its deadline", func() error {
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			if err := client.BLPop(short, time.Minute, "go:none").Err(); err == nil {
				return errors.New("nothing was there to pop")
			}
			go client.RPush(ctx, "go:queue", "job")
			popped, err := client.BLPop(ctx, 30*time.Second, "go:queue").Result()
			return errors.Join(err, expect("popped", popped, []string{"go:queue", "job"}))
		}},
		{"go-redis: hashes with fields that expire", func() error {
			client.Del(ctx, "go:h")
			client.HSet(ctx, "go:h", "a", "1", "b", "2")
			set, err := client.HPExpire(ctx, "go:h", time.Minute, "a").Result()
			if err := errors.Join(err, expect("HPEXPIRE", set, []int64{1})); err != nil {
				return err
			}
			left, err := client.HPTTL(ctx, "go:h", "b", "none").Result()
			return errors.Join(err, expect("HPTTL", left, []int64{-1, -2}))
		}},
		{"go-redis: the server's own reports", func() error {
			commands, err := client.Command(ctx).Result()
			if err != nil || len(commands) < 200 {
				return fmt.Errorf("COMMAND: %d commands, %w", len(commands), err)
			}
			info := client.InfoMap(ctx, "server").Item("Server", "redis_mode")
			return expect("redis_mode", info, "standalone")
		}},
	}
}
