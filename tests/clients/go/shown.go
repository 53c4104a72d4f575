package main

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

const overview = "docs/coordination/README.md"

// page is a snippet of a page, unchanged except for the port. The script run writes the snippets to pages.go.
type page struct {
	name string
	run  func(ctx context.Context, rdb *redis.Client, job, owner, order string, token int64) (answer, error)
	text string
}

// answer is the result of a snippet.
type answer struct {
	connection *redis.Client
	reply      []any
	refused    bool
}

var waits = regexp.MustCompile(`"([A-Z.]+)", "([^"]+)".*"BLOCK"`)

// pageSnippets runs the snippets of the pages with the connection that the overview opens.
func pageSnippets() (checks []check) {
	ctx := context.Background()
	var client *redis.Client
	for _, page := range pages {
		checks = append(checks, check{"pages: " + page.name, func() error {
			if strings.HasPrefix(page.name, overview) {
				made, err := page.run(ctx, nil, "", "", "", 0)
				client = made.connection
				return err
			}
			client.FlushAll(ctx)
			client.Set(ctx, "stock:42", 10, 0)
			lock, err := client.Do(ctx, "LOCK.ACQUIRE", "lock:report", "worker-7:3f2a", "PX", 60000).Slice()
			if err != nil {
				return err
			}
			token := lock[1].(map[any]any)["token"].(int64)
			shows := func() (answer, error) { return page.run(ctx, client, "job-4711", "worker-7:3f2a", "77", token) }
			if found := waits.FindStringSubmatch(page.text); found != nil {
				if err := waitsInVain(ctx, client, found[1], found[2], shows); err != nil {
					return err
				}
			}
			if got, err := shows(); err != nil || got.refused {
				return fmt.Errorf("%v, %w", got.reply, err)
			}
			return nil
		}})
	}
	return checks
}

// waitsInVain runs a snippet that waits for a key while another holder has it, and frees the key afterwards.
func waitsInVain(ctx context.Context, client *redis.Client, command, key string, shows func() (answer, error)) error {
	client.Do(ctx, "LOCK.BREAK", key)
	client.Do(ctx, "LOCK.ACQUIRE", key, "somebody else", "PX", 60000)
	defer client.Do(ctx, "LOCK.BREAK", key)
	before := calls(ctx, client, command)
	got, err := shows()
	if err != nil || !got.refused || got.reply[1].(map[any]any)["reason"] != "timeout" {
		return fmt.Errorf("waiting in vain: %v, %w", got.reply, err)
	}
	if after := calls(ctx, client, command); after != before+1 {
		return fmt.Errorf("it has called %d times", after-before)
	}
	return nil
}

func calls(ctx context.Context, client *redis.Client, command string) (count int) {
	_, behind, _ := strings.Cut(client.Info(ctx, "commandstats").Val(), "cmdstat_"+strings.ToLower(command)+":calls=")
	fmt.Sscanf(behind, "%d", &count)
	return count
}
