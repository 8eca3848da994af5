// Package bench loads a Spillway server and says honestly how it felt.
//
//	result, err := bench.Run(ctx, bench.Load{
//		URL: "http://127.0.0.1:8080", Namespace: "default",
//		Rate: 10_000, Duration: time.Minute,
//		Partitions: 100, Entries: 1, PayloadBytes: 200,
//		Connections: 64, Timeout: 5 * time.Second,
//	})
//
// The load is open: request i is due at start + i/Rate whether or not earlier
// ones were answered, and its latency counts from that moment. A server that
// stalls for a second therefore shows a second, spread over every request that
// was due meanwhile; a loader that politely waits for it would show one slow
// request and call the rest fast (coordinated omission).
//
// Without a Rate the loop is closed: every connection sends as soon as it was
// answered. That is for comparing capacities, not for latencies.
//
// Each entry ends in exactly one count: acknowledged, rejected under the
// server's code, or unknown. Nothing is retried, so the counts can be held
// against the server's ledger.
//
// The command in run starts Redis and a server of its own, holds their speed
// against what the parts allow and checks the promises; README.md has the method
// and the figures. `spillway bench` is the same engine for users.
package bench
