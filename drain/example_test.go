package drain_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

// printer is a sink that prints what it is given, and fails where it is told to.
type printer struct {
	name    string
	err     error
	written chan struct{} // told after each Write
}

func newPrinter(name string) *printer { return &printer{name: name, written: make(chan struct{}, 10)} }

func (p *printer) Open(context.Context) error  { return nil }
func (p *printer) Close(context.Context) error { return nil }
func (p *printer) Caps() sink.Caps             { return sink.Caps{MaxInFlight: 1} }

func (p *printer) Write(_ context.Context, batches []*sink.Batch) error {
	for _, b := range batches {
		fmt.Printf("%s: %s, attempt %d:", p.name, b.Partition, b.Attempt)
		for _, e := range b.Entries {
			fmt.Printf(" %s", e.Payload)
		}
		fmt.Println()
	}
	p.written <- struct{}{}
	return p.err
}

// A sink of one's own has four methods. The drain gives it the entries of a
// partition in batches.
func Example_ownSink() {
	store := open(map[string]partition.Policy{"default": policy()})
	defer store.Close()
	produce(store, "default", "kart", "lap", "finish")
	out := newPrinter("out")
	drainUntil(store, map[string]*printer{"default": out}, func() { <-out.written })
	account(store, "default")
	// Output:
	// out: kart, attempt 1: lap finish
	// default: accepted 2, delivered 2, buffered 0
}

// At-most-once counts a batch as delivered right before its one Write. When that
// fails, the batch does not come again.
func Example_atMostOnce() {
	p := policy()
	p.Delivery = partition.AtMostOnce
	store := open(map[string]partition.Policy{"default": p})
	defer store.Close()
	produce(store, "default", "kart", "lap", "finish")
	out := newPrinter("out")
	out.err = errors.New("target is down")
	drainUntil(store, map[string]*printer{"default": out}, func() { <-out.written })
	account(store, "default")
	// Output:
	// out: kart, attempt 1: lap finish
	// default: accepted 2, delivered 2, buffered 0
}

// A paused partition keeps its entries until it is resumed, as long as they are not
// older than Policy.MaxAge. The others go on.
func Example_pause() {
	store := open(map[string]partition.Policy{"default": policy()})
	defer store.Close()
	ctx, ns := context.Background(), store.Namespace("default")
	check(store.Pause(ctx, ns, "kart", partition.Pause{By: "alice", Reason: "its consumer moves"}))
	produce(store, "default", "kart", "lap", "finish")
	produce(store, "default", "ski", "start")
	out := newPrinter("out")
	drainUntil(store, map[string]*printer{"default": out}, func() {
		<-out.written
		_, err := store.Resume(ctx, ns, "kart")
		check(err)
		<-out.written
	})
	account(store, "default")
	// Output:
	// out: ski, attempt 1: start
	// out: kart, attempt 1: lap finish
	// default: accepted 3, delivered 3, buffered 0
}

// Each namespace has a policy, a sink and a ledger of its own.
func Example_severalNamespaces() {
	small := policy()
	small.Capacity = 1 // the newest entry of each partition
	store := open(map[string]partition.Policy{"races": policy(), "positions": small})
	defer store.Close()
	produce(store, "races", "kart", "lap", "finish")
	produce(store, "positions", "kart", "3:7", "3:8", "4:8")
	races, positions := newPrinter("archive"), newPrinter("map")
	drainUntil(store, map[string]*printer{"races": races, "positions": positions}, func() { <-races.written; <-positions.written })
	account(store, "races")
	account(store, "positions")
	// Unordered output:
	// archive: kart, attempt 1: lap finish
	// map: kart, attempt 1: 4:8
	// races: accepted 2, delivered 2, buffered 0
	// positions: accepted 3, delivered 1, buffered 0
}

func policy() partition.Policy {
	p := partition.DefaultPolicy()
	p.Linger = 0 // a part-filled batch does not wait for more
	return p
}

func open(namespaces map[string]partition.Policy) *partition.Store {
	store, err := partition.Open(partition.Config{URL: "embedded:", Prefix: "sw", Namespaces: namespaces}, prometheus.NewRegistry(), zap.NewNop())
	check(err)
	check(store.Ping(context.Background())) // the first answer brings the store's time
	return store
}

func produce(store *partition.Store, namespace, name string, payloads ...string) {
	g := &partition.Group{Namespace: store.Namespace(namespace), Partition: name}
	now, _ := store.Now()
	for _, p := range payloads {
		g.Entries = append(g.Entries, partition.AppendEntry(nil, now, nil, []byte(p)))
	}
	store.Produce(context.Background(), []*partition.Group{g})
	check(g.Err)
}

// drainUntil runs a drainer with a sink for each namespace until done returns.
func drainUntil(store *partition.Store, sinks map[string]*printer, done func()) {
	var targets []drain.Target
	for name, s := range sinks {
		targets = append(targets, drain.Target{Namespace: store.Namespace(name), Sink: s, Label: "printer:"})
	}
	d, err := drain.New(drain.DefaultConfig(), store, targets, prometheus.NewRegistry(), zap.NewNop())
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	check(d.Start(ctx))
	done()
	check(d.Stop(ctx))
}

func account(store *partition.Store, namespace string) {
	o, err := store.Overview(context.Background(), store.Namespace(namespace))
	check(err)
	fmt.Printf("%s: accepted %d, delivered %d, buffered %d\n", namespace, o.Ledger.Accepted, o.Ledger.Delivered, o.Ledger.Buffered)
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
