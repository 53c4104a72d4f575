package main

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// whatPagesShow runs the snippets of the pages of docs/coordination as they stand there: run has made them into pages.go.
func whatPagesShow() []check {
	return []check{{"docs/coordination in Go: what the pages show", func() error {
		ctx := context.Background()
		client := redis.NewClient(&redis.Options{Addr: address()})
		for _, page := range pages {
			client.FlushAll(ctx)
			client.Set(ctx, "stock:42", 10, 0)
			lock, err := client.Do(ctx, "LOCK.ACQUIRE", "lock:report", "worker-7:3f2a", "PX", 30000).Slice()
			if err != nil {
				return err
			}
			fields := lock[1].(map[any]any)
			if err := page.run(ctx, client, "job-4711", "worker-7:3f2a", "77", fields["token"].(int64)); err != nil {
				return fmt.Errorf("%s: %w", page.name, err)
			}
		}
		if len(pages) < 6 {
			return fmt.Errorf("%d snippets in Go", len(pages))
		}
		return nil
	}}}
}
