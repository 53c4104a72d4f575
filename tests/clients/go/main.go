// Programs with go-redis, asynq and redsync. Each prints "ok NAME" if it holds. Beside the nodes of ../group, those run that follow a leader.
package main

import (
	"fmt"
	"os"
	"slices"
)

// check is a condition that must hold.
type check struct {
	name string
	run  func() error
}

func main() {
	var checks []check
	if mode := os.Getenv("GROUP_MODE"); mode != "" {
		checks = followLeader(mode)
	} else {
		checks = slices.Concat(goRedis(), asynqJobs(), redsyncLocks(), pageSnippets())
	}
	failed := false
	for _, check := range checks {
		if err := check.run(); err != nil {
			failed = true
			fmt.Printf("FAILED %s: %v\n", check.name, err)
			continue
		}
		fmt.Println("ok", check.name)
	}
	if failed {
		os.Exit(1)
	}
}

func address() string { return "127.0.0.1:" + os.Getenv("PORT") }
