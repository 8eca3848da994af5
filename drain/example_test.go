package drain_test

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

// printer is a sink that prints what it is given.
type printer struct{ done chan struct{} }

func (p *printer) Open(context.Context) error  { return nil }
func (p *printer) Close(context.Context) error { return nil }
func (p *printer) Caps() sink.Caps             { return sink.Caps{MaxInFlight: 1} }

func (p *printer) Write(_ context.Context, batches []*sink.Batch) error {
	for _, b := range batches {
		fmt.Printf("%s, attempt %d:", b.Partition, b.Attempt)
		for _, e := range b.Entries {
			fmt.Printf(" %s", e.Payload)
		}
		fmt.Println()
	}
	close(p.done)
	return nil
}

func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	policy := partition.DefaultPolicy()
	policy.Linger = 0
	store, err := partition.Open(partition.Config{
		URL: "embedded:", Prefix: "sw", Namespaces: map[string]partition.Policy{"default": policy},
	}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		panic(err)
	}
	defer store.Close()
	if err := store.Ping(ctx); err != nil {
		panic(err)
	}
	now, _ := store.Now()
	ns := store.Namespace("default")
	store.Produce(ctx, []*partition.Group{{Namespace: ns, Partition: "kart", Entries: [][]byte{
		partition.AppendEntry(nil, now, nil, []byte("lap")),
		partition.AppendEntry(nil, now, nil, []byte("finish")),
	}}})

	out := &printer{done: make(chan struct{})}
	d, err := drain.New(drain.DefaultConfig(), store, []drain.Target{{Namespace: ns, Sink: out, Label: "printer:"}},
		prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		panic(err)
	}
	if err := d.Start(ctx); err != nil {
		panic(err)
	}
	<-out.done
	if err := d.Stop(ctx); err != nil {
		panic(err)
	}
	o, err := store.Overview(ctx, ns)
	if err != nil {
		panic(err)
	}
	fmt.Printf("accepted %d, delivered %d, buffered %d\n", o.Ledger.Accepted, o.Ledger.Delivered, o.Ledger.Buffered)
	// Output:
	// kart, attempt 1: lap finish
	// accepted 2, delivered 2, buffered 0
}
