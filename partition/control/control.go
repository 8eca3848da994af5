// Package control keeps what operators make at run time: namespaces of queues, their
// tokens with rates that all processes share, and tokens of the admin port.
//
// All of it is one document in Redis. A process reads what changed four times a second and
// swaps an immutable Snapshot. While Redis is away the last one stays in use. What the
// configuration file names takes precedence. DESIGN.md says more.
package control

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	luacontrol "github.com/spillway-io/spillway/lua/control"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/lifecycle"
	"github.com/spillway-io/spillway/partition/metric"
)

// every is how often a process asks what changed. A change is in use everywhere after this
// time and that of two calls, within a second.
const every = 250 * time.Millisecond

// wholeEvery is how often a process reads all of the document.
const wholeEvery = 10 * time.Minute

// readTimeout bounds one look.
const readTimeout = 2 * time.Second

// Pools are the back-ends by the name of the pool. DefaultPool has the document.
type Pools map[string]*backend.Backend

// Control is the document of one process: its last copy, and who changes it. Once it is started,
// it looks four times a second for changes; a look takes 2s at most.
type Control struct {
	*lifecycle.Loop
	prefix   string
	log      *zap.Logger
	metrics  metrics
	snapshot atomic.Pointer[Snapshot]
	pools    atomic.Pointer[Pools]

	reading sync.Mutex // held during a look
	whole   time.Time  // when all of the document was read last; guarded by reading

	mu      sync.Mutex // held while subscribers are told; a look takes it inside of reading
	copy    *document  // changes only while reading is held, too
	file    File
	failing error           // why the last look failed
	told    map[string]bool // lines that are in the log
	subs    []*subscriber
}

type subscriber struct{ f func(*Snapshot) }

// Open makes a Control without a document: Use says where that is.
func Open(prefix string, reg prometheus.Registerer, log *zap.Logger) *Control {
	c := &Control{prefix: prefix, log: log, copy: &document{}, told: map[string]bool{}}
	c.snapshot.Store(newSnapshot(c.copy, &c.file))
	c.pools.Store(&Pools{})
	c.metrics = newMetrics(reg, c)
	c.Loop = lifecycle.New("control", c.begin, c.run)
	return c
}

// Use sets the file and the back-ends in use, and tells the subscribers what follows. The
// back-ends before may be closed then.
func (c *Control) Use(file File, pools Pools) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pools.Store(&pools) // a new pointer, which ends looks at those before
	c.file = file
	c.swap(c.copy)
}

// Preview is what Snapshot would be after Use with this file.
func (c *Control) Preview(file File) *Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := newSnapshot(c.copy, &file)
	c.keepLimiters(s)
	return s
}

// Snapshot is what is in use now. It is never nil.
func (c *Control) Snapshot() *Snapshot { return c.snapshot.Load() }

// Subscribe calls f with the present Snapshot, and then with each that follows, one after
// the other. f must be quick, and must not call c. cancel ends that; it must not be called by f.
func (c *Control) Subscribe(f func(*Snapshot)) (cancel func()) {
	s := &subscriber{f}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.subs = append(c.subs, s)
	f(c.Snapshot())
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.subs = slices.DeleteFunc(c.subs, func(other *subscriber) bool { return other == s })
	}
}

// Warnings say what of the document is not in use, or why it cannot be read.
func (c *Control) Warnings() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	warnings := slices.Clone(c.Snapshot().Ignored)
	if c.failing != nil && !errors.Is(c.failing, backend.ErrUnavailable) &&
		!errors.Is(c.failing, backend.ErrUnknown) {
		warnings = append(warnings, "namespaces and tokens made at run time: "+c.failing.Error())
	}
	return warnings
}

// begin reads the document. A store that does not answer is no error: what is read later is
// used then. An error wraps backend.ErrIncompatible.
func (c *Control) begin(ctx context.Context) error {
	if err := c.Refresh(ctx); errors.Is(err, backend.ErrIncompatible) {
		return err
	}
	return nil
}

func (c *Control) run(ctx context.Context) {
	lifecycle.Every(ctx, every, func() { _ = c.Refresh(ctx) }) // it logs its error
}

// Refresh looks for changes at once. What it finds is in use when it returns. After an
// error, which is one of backend, the last copy stays in use.
func (c *Control) Refresh(ctx context.Context) error {
	c.reading.Lock()
	defer c.reading.Unlock()
	looking, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	pools := c.pools.Load()
	next, err := c.read(looking)
	if err != nil && (ctx.Err() != nil || c.pools.Load() != pools) {
		return err // the process stops, or uses another back-end now: this says nothing about the store
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.note(err)
	if err != nil {
		return err
	}
	c.metrics.read.SetToCurrentTime()
	if next == c.copy {
		return nil
	}
	if next.epoch != c.copy.epoch && c.copy.version > 0 || next.version < c.copy.version {
		c.log.Error("Redis went back, or something other than Spillway changed the control document: namespaces and tokens made at run time "+
			"are those that it has now",
			zap.Int64("version", next.version), zap.Int64("version_before", c.copy.version))
	}
	c.swap(next)
	return nil
}

// read asks for the document, or for what changed. Now and then it asks for all of it:
// after a failover to a replica that was behind, a version may be another one.
func (c *Control) read(ctx context.Context) (*document, error) {
	b, err := c.pool(DefaultPool)
	if err != nil {
		return nil, err
	}
	since, now := c.copy.version, time.Now()
	if now.Sub(c.whole) > wholeEvery {
		since = 0
	}
	call := backend.NewCall(luacontrol.Read, nil, documentKeys(c.prefix), since, c.copy.epoch, Format)
	b.Run(ctx, b.Background, []*backend.Call{call})
	if call.Err != nil {
		return nil, explain(call.Err, documentKeys(c.prefix)[0])
	}
	next, err := c.copy.applied(call)
	if err == nil && since == 0 {
		c.whole = now
	}
	return next, err
}

var errNoPool = errors.New("the pool is not open")

func (c *Control) pool(name string) (*backend.Backend, error) {
	if b := (*c.pools.Load())[name]; b != nil {
		return b, nil
	}
	return nil, backend.Wrap(backend.ErrUnavailable, errNoPool)
}

// explain says what to do about a foreign type under a key.
func explain(err error, key string) error {
	if !errors.Is(err, backend.ErrBroken) || !strings.Contains(err.Error(), "WRONGTYPE") {
		return err
	}
	return fmt.Errorf("%w: something other than Spillway wrote the key %s or %s: move it away with redis-cli RENAME", err, key,
		strings.TrimSuffix(key, "doc")+"changes")
}

// swap puts a copy into use. The caller holds mu.
func (c *Control) swap(next *document) {
	s := newSnapshot(next, &c.file)
	c.keepLimiters(s)
	if c.copy != next { // Use holds no reading, and a look may read the field
		c.copy = next
	}
	c.snapshot.Store(s)
	c.logIgnored(s.Ignored)
	for _, sub := range c.subs {
		sub.f(s)
	}
}

// logIgnored logs the entries that were in use, or not there, before.
func (c *Control) logIgnored(lines []string) {
	now := make(map[string]bool, len(lines))
	for _, line := range lines {
		if now[line] = true; !c.told[line] {
			c.log.Warn("entry of the control document is not used", zap.String("entry", line))
		}
	}
	c.told = now
}

// note logs when looks begin to fail, fail otherwise, and work again.
func (c *Control) note(err error) {
	before := c.failing
	c.failing = err
	switch {
	case err == nil && before != nil:
		c.log.Info("control document readable again")
	case err != nil && (before == nil || backend.Permanence(before) != backend.Permanence(err)):
		c.log.Warn("control document not read, what was read last stays in use", zap.Error(err))
	}
}

type metrics struct {
	read   prometheus.Gauge
	grants *prometheus.CounterVec
}

// The results of asking Redis for a part of a shared rate.
const (
	grantGiven    = "granted"
	grantRejected = "rejected"
	grantFailed   = "failed"
)

func newMetrics(reg prometheus.Registerer, c *Control) metrics {
	r := metric.New(reg, "spillway_control_")
	m := metrics{
		read: r.Gauge("last_read_timestamp_seconds",
			"When namespaces and tokens made at run time were last read, in Unix seconds."),
		grants: r.Counters("grants_total",
			"Requests of this process to Redis for a part of a token's shared rate, by result.", "result"),
	}
	for _, result := range []string{grantGiven, grantRejected, grantFailed} {
		m.grants.WithLabelValues(result)
	}
	r.Read("version", "Version of the namespaces and tokens made at run time that this process uses. All processes have "+
		"the same within a second.", func() float64 { return float64(c.Snapshot().Version) })
	r.Read("ignored_entries", "Namespaces and tokens made at run time that are not used. /readyz of the admin port says why.",
		func() float64 { return float64(len(c.Snapshot().Ignored)) })
	r.Must()
	return m
}
