// Command analyticsgo sends events with Segment's SDK for Go, for the tests of e2e. It
// is a module of its own, so that the SDK is no dependency of Spillway.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/segmentio/analytics-go/v3"
)

type result struct {
	ok, failed atomic.Int64
	pending    sync.WaitGroup
}

func (r *result) Success(analytics.Message)        { r.ok.Add(1); r.pending.Done() }
func (r *result) Failure(analytics.Message, error) { r.failed.Add(1); r.pending.Done() }

func main() {
	url, key := flag.String("url", "", ""), flag.String("key", "", "")
	from, to := flag.Int("from", 0, ""), flag.Int("to", 0, "")
	flag.Parse()
	var sent result
	client, err := analytics.NewWithConfig(*key, analytics.Config{
		Endpoint:  *url + "/segment",
		BatchSize: 20,
		Callback:  &sent,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	sent.pending.Add(*to - *from)
	for i := *from; i < *to; i++ {
		err := client.Enqueue(analytics.Track{
			MessageId: fmt.Sprintf("id-%d", i), UserId: "u", Event: "lap",
			Properties: analytics.NewProperties().Set("game", fmt.Sprintf("kart-%d", i%3)).Set("n", i),
		})
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	sent.pending.Wait() // Close would end the attempts
	if err := client.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]int64{"ok": sent.ok.Load(), "failed": sent.failed.Load()})
}
