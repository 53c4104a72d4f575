// Puts values into a group of etcd, in a closed loop, by etcd's own client.
//
// Arguments: the endpoints, the connections, the puts in flight on each, the bytes of a value, the seconds. All
// connections go to the leader, as a put elsewhere would take one hop more. Prints the place of the leader among the
// endpoints, the puts and the seconds that they took.
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// As many keys as the other servers get.
const keys = 100_000

func main() {
	endpoints := strings.Split(os.Args[1], ",")
	connections, depth, bytes := number(2), number(3), number(4)
	length := time.Duration(number(5)) * time.Millisecond
	place := leader(endpoints)
	value := strings.Repeat("x", bytes)
	clients := make([]*clientv3.Client, connections)
	for i := range clients {
		clients[i] = connect(endpoints[place])
	}
	var puts atomic.Int64
	var all sync.WaitGroup
	begin := time.Now()
	for i := 0; i < connections*depth; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			for time.Since(begin) < length {
				key := fmt.Sprintf("key:%012d", rand.Intn(keys))
				if _, err := clients[i%connections].Put(context.Background(), key, value); err != nil {
					log.Fatal(err)
				}
				puts.Add(1)
			}
		}()
	}
	all.Wait()
	fmt.Println(place, puts.Load(), time.Since(begin).Seconds())
}

func number(place int) int {
	number, err := strconv.Atoi(os.Args[place])
	if err != nil {
		log.Fatal(err)
	}
	return number
}

func connect(endpoint string) *clientv3.Client {
	// The client warns of each node that is not there yet.
	config := clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()}
	client, err := clientv3.New(config)
	if err != nil {
		log.Fatal(err)
	}
	return client
}

// leader waits until one of the endpoints leads.
func leader(endpoints []string) int {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		for place, endpoint := range endpoints {
			client := connect(endpoint)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			status, err := client.Status(ctx, endpoint)
			cancel()
			client.Close()
			if err == nil && status.Leader == status.Header.MemberId {
				return place
			}
		}
	}
	log.Fatal("no node leads")
	return 0
}
