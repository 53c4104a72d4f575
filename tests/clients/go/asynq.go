package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

// asynqJobs processes a queue with retries, delays and unique jobs: none is lost, and none succeeds twice.
func asynqJobs() []check {
	at := asynq.RedisClientOpt{Addr: address(), DB: 3}
	return []check{
		{"asynq: jobs with retries and delays, none lost or run twice", func() error {
			const jobs = 300
			client := asynq.NewClient(at)
			defer client.Close()
			var tries, done [jobs]atomic.Int32
			var left sync.WaitGroup
			left.Add(jobs)
			server := asynq.NewServer(at, asynq.Config{
				Concurrency:              8,
				LogLevel:                 asynq.FatalLevel,
				TaskCheckInterval:        20 * time.Millisecond,
				DelayedTaskCheckInterval: 20 * time.Millisecond,
				RetryDelayFunc:           func(int, error, *asynq.Task) time.Duration { return 10 * time.Millisecond },
			})
			mux := asynq.NewServeMux()
			mux.HandleFunc("order", func(_ context.Context, task *asynq.Task) error {
				n := binary.BigEndian.Uint32(task.Payload())
				if try := tries[n].Add(1); n%10 == 0 && try < 2 {
					return errors.New("again")
				}
				if done[n].Add(1) == 1 {
					left.Done()
				}
				return nil
			})
			if err := server.Start(mux); err != nil {
				return err
			}
			defer server.Shutdown()
			for n := range uint32(jobs) {
				delay := time.Duration(n%3) * 30 * time.Millisecond
				task := asynq.NewTask("order", binary.BigEndian.AppendUint32(nil, n), asynq.MaxRetry(5), asynq.ProcessIn(delay))
				if _, err := client.Enqueue(task); err != nil {
					return err
				}
			}
			unique := asynq.NewTask("unique", nil, asynq.Unique(time.Minute), asynq.Queue("other"))
			if _, err := client.Enqueue(unique); err != nil {
				return err
			}
			if _, err := client.Enqueue(unique); !errors.Is(err, asynq.ErrDuplicateTask) {
				return fmt.Errorf("a unique task was taken twice: %v", err)
			}
			left.Wait()
			for n := range jobs {
				if err := expect(fmt.Sprintf("successes of %d", n), done[n].Load(), 1); err != nil {
					return err
				}
			}
			inspector := asynq.NewInspector(at)
			defer inspector.Close()
			info, err := inspector.GetQueueInfo("default")
			if err != nil {
				return err
			}
			return expect("failed jobs", info.Archived+info.Scheduled+info.Pending, 0)
		}},
	}
}
