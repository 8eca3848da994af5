package app_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition"
)

// printer is a sink that prints the payloads of the batches it is given.
type printer struct{ written chan struct{} }

func (printer) Open(context.Context) error  { return nil }
func (printer) Close(context.Context) error { return nil }
func (printer) Caps() sink.Caps             { return sink.Caps{MaxInFlight: 1} }

func (p printer) Write(_ context.Context, batches []*sink.Batch) error {
	for _, b := range batches {
		for _, e := range b.Entries {
			fmt.Printf("%s: %s\n", b.Partition, e.Payload)
		}
	}
	p.written <- struct{}{}
	return nil
}

// A Go program can hold all of Spillway: a store, the server that takes entries
// in, and the drain that hands them to a sink of the program's own. The program
// spillway does the same with its flags.
func Example_embedded() {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	reg, log := prometheus.NewRegistry(), zap.NewNop()

	policy := partition.DefaultPolicy()
	policy.Linger = 0 // a part-filled batch does not wait for more
	store, err := partition.Open(partition.Config{
		URL: "embedded:", Prefix: "sw", Namespaces: map[string]partition.Policy{"default": policy},
	}, reg, log)
	check(err)
	check(store.Ping(ctx)) // the first answer brings the store's time

	out := printer{make(chan struct{}, 1)}
	drainer, err := drain.New(drain.DefaultConfig(), store,
		[]drain.Target{{Namespace: store.Namespace("default"), Sink: out, Label: "printer:"}}, reg, log)
	check(err)
	server, err := ingest.New(ingest.DefaultConfig(), store, reg, log)
	check(err)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	server.SetListener(ln)
	check(server.Start(ctx))
	check(drainer.Start(ctx))

	resp, err := http.Post("http://"+ln.Addr().String()+"/v1/default/kart-7", "application/json", strings.NewReader(`{"lap":3}`))
	check(err)
	check(resp.Body.Close())
	<-out.written

	// What takes entries in stops before what hands them out.
	check(server.Stop(ctx))
	check(drainer.Stop(ctx))
	o, err := store.Overview(ctx, store.Namespace("default"))
	check(err)
	check(store.Close())
	fmt.Printf("accepted %d, delivered %d, buffered %d\n", o.Ledger.Accepted, o.Ledger.Delivered, o.Ledger.Buffered)
	// Output:
	// kart-7: {"lap":3}
	// accepted 1, delivered 1, buffered 0
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
