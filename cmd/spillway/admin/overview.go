package admin

import (
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// StoreState is the store as this process sees it.
type StoreState struct {
	Mode     string   `json:"mode" help:"One of embedded, redis, sentinel and cluster."`
	URL      string   `json:"url" help:"Without its password."`
	Ready    bool     `json:"ready"`
	Error    string   `json:"error"`
	Degraded []string `json:"degraded" help:"Codes of what it cannot do now: store_full."`
	Warnings []string `json:"warnings"`
	RTTMS    *float64 `json:"rtt_ms" help:"Of the last read of an account."`
	Version  string   `json:"redis_version"`
}

// Pause says since when, by whom and why delivery is stopped.
type Pause struct {
	SinceMS int64  `json:"since_ms"`
	By      string `json:"by"`
	Reason  string `json:"reason"`
}

// Sink is how a sink of this process is doing.
type Sink struct {
	Label          string   `json:"label"`
	Type           string   `json:"type"`
	State          string   `json:"state" help:"One of open, opening, failing, tripped and paused."`
	FailingSinceMS *int64   `json:"failing_since_ms"`
	P50MS          *float64 `json:"p50_ms" help:"Of a write in the last minute."`
	P99MS          *float64 `json:"p99_ms"`
	WritesPerS     float64  `json:"writes_per_s"`
	Retries        int64    `json:"retries"`
	LastError      string   `json:"last_error"`
	LastErrorAtMS  *int64   `json:"last_error_at_ms"`
	InFlight       int      `json:"in_flight"`
	Concurrency    int      `json:"concurrency"`
	CoalescerFill  *float64 `json:"coalescer_fill" help:"0 to 1."`
	Waiting        *int64   `json:"waiting" help:"Ready, delayed and leased jobs of queues that are pushed to it, where it fails; null: not counted, or none are."`
	Queue          string   `json:"queue,omitempty" help:"That has most of them."`
}

// NamespaceOverview is one namespace in the overview. Ledger, buffered, partitions, dead
// letters and pauses are the store's; rejected and sinks are of this process.
type NamespaceOverview struct {
	account
	Buffered    int64              `json:"buffered"`
	OldestAgeMS *int64             `json:"oldest_age_ms" help:"Of the last sweep."`
	MaxAgeMS    int64              `json:"max_age_ms"`
	Capacity    int                `json:"capacity"`
	Residual    *int64             `json:"residual" help:"Always null here: an audit counts every partition."`
	ReadAtMS    int64              `json:"read_at_ms" help:"0: not read yet."`
	Rates       map[string]float32 `json:"rates" help:"A second; those that are not known are absent."`
	Sinks       []Sink             `json:"sinks"`
	Shards      int                `json:"shards"`
}

// Overview is the answer that one look at the service needs.
type Overview struct {
	NowMS      int64               `json:"now_ms"`
	Store      StoreState          `json:"store"`
	Role       string              `json:"role"`
	Namespaces []NamespaceOverview `json:"namespaces" help:"Of partitions."`
	Queues     []QueueOverview     `json:"queues" help:"Namespaces of kind queue."`
	Findings   Findings            `json:"findings"`
	Near       Near                `json:"near"`
	Workers    struct {
		Size int `json:"size"`
		Busy int `json:"busy"`
	} `json:"workers"`
	BatchFill struct {
		LE     []int   `json:"le"`
		Counts []int64 `json:"counts"`
	} `json:"batch_fill"`
}

// Near are the shares from which something is near its limit.
type Near struct {
	MaxAge float64 `json:"max_age" help:"Of the oldest entry."`
	Full   float64 `json:"full" help:"Of jobs, or of a partition."`
}

// rateSpan is the number of seconds that rates are the mean of.
const rateSpan = 5

// only is of verbs that look at one namespace, or at all.
type only struct {
	Namespace string `help:"Only this one."`
}

func (s *Server) overview(r *request, q *only) (o Overview, err error) {
	if q.Namespace != "" && !r.view.has(q.Namespace) {
		return o, noNamespace(q.Namespace)
	}
	s.observer.watch()
	return s.judge(r.view, q.Namespace), nil
}

// has reports whether there is a namespace of that name, of any kind.
func (v View) has(namespace string) bool {
	_, queues := v.jobSpace(namespace)
	return queues || v.Store.Namespace(namespace) != nil
}

// judge is what look answers. It reads nothing.
func (s *Server) judge(v View, only string) (o Overview) {
	now := s.observer.now()
	j := judge{now: now, found: []Finding{}}
	o = Overview{
		NowMS:      now.UnixMilli(),
		Store:      s.store(v),
		Role:       v.Role,
		Near:       Near{nearMaxAge, nearFull},
		Namespaces: []NamespaceOverview{},
	}
	j.store(o.Store)
	o.BatchFill.LE, o.BatchFill.Counts = guard.FillBounds(), make([]int64, len(guard.FillBounds()))
	var status guard.Status
	if v.Drain != nil {
		status = v.Drain.Status()
		o.Workers.Size = status.Workers.Size
		o.Workers.Busy = status.Workers.Busy
		o.BatchFill.Counts = status.BatchFill
	}
	found := makers(v.Drops, now)
	for _, ns := range v.Store.Namespaces() {
		if only != "" && ns.Name != only {
			continue
		}
		n, e := s.observer.namespaceOverview(ns, now)
		for _, t := range status.Targets {
			if t.Namespace == ns.Name {
				n.Sinks = append(n.Sinks, sinkOf(t, n.Paused != nil))
			}
		}
		o.Namespaces = append(o.Namespaces, n)
		if !o.Store.Ready {
			continue
		}
		e.makers = found[ns.Name]
		j.buffer(n, e)
	}
	o.Queues = s.observer.queueOverview(v, only, now, &j)
	o.Findings = conclude(o.NowMS, s.held.keep(j.found, now, func(namespace string) bool {
		return o.Store.Ready && (only == "" || only == namespace) && v.has(namespace)
	}))
	return o
}

// namespaceOverview is what the observer knows of a namespace of partitions.
func (o *observer) namespaceOverview(ns *partition.Namespace, now time.Time) (NamespaceOverview, evidence) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, rates, e := o.seen(&o.buffers, ns.Name, ns.Home(), now)
	e.rejected = o.rejections.Now(ns.Name, now)
	e.oldestAge, e.oldestIn = time.Duration(f.oldestAge)*time.Millisecond, f.oldestIn
	n := NamespaceOverview{
		account:  accountOf(ns, f.Overview),
		Buffered: f.Ledger.Buffered,
		MaxAgeMS: ns.Policy.MaxAge.Milliseconds(),
		Capacity: ns.Policy.Capacity,
		Rates:    rates,
		Sinks:    []Sink{},
		Shards:   ns.Shards(),
		ReadAtMS: unixMilli(f.at),
	}
	if f.oldest > 0 && n.Buffered > 0 {
		n.OldestAgeMS = new(max(0, now.UnixMilli()-f.oldest))
	}
	return n, e
}

func pauseOf(p *partition.Pause) *Pause {
	if p == nil {
		return nil
	}
	return &Pause{unixMilli(p.Since), p.By, p.Reason}
}

// unixMilli is 0 for the zero time.
func unixMilli(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMilli()
}

// milliseconds is nil for none.
func milliseconds(d time.Duration) *float64 {
	if d == 0 {
		return nil
	}
	return new(float64(d) / float64(time.Millisecond))
}

func sinkOf(t guard.TargetStatus, paused bool) Sink {
	since := func(at time.Time) *int64 {
		if at.IsZero() {
			return nil
		}
		return new(at.UnixMilli())
	}
	sink := Sink{
		Label:          t.Label,
		Type:           t.Type,
		State:          string(t.State),
		FailingSinceMS: since(t.FailingSince),
		P50MS:          milliseconds(t.P50),
		P99MS:          milliseconds(t.P99),
		WritesPerS:     t.WritesPerSecond,
		Retries:        t.Retries,
		LastError:      t.LastError,
		LastErrorAtMS:  since(t.LastErrorAt),
		InFlight:       t.InFlight,
		Concurrency:    t.Concurrency,
	}
	if t.Coalesces {
		sink.CoalescerFill = &t.Fill
	}
	if paused && t.State == guard.Open {
		sink.State = "paused"
	}
	return sink
}

// isFull reports whether a warning says that the store takes nothing new.
func isFull(warning string) bool { return strings.Contains(warning, backend.MemoryFull) }

// degraded are the codes of what a store that is ready cannot do now.
func degraded(h Health) []string {
	if h.Ready() == nil && slices.ContainsFunc(h.Warnings(), isFull) {
		return []string{string(wire.CodeStoreFull)}
	}
	return []string{}
}

// store is the state of the store.
func (s *Server) store(v View) StoreState {
	state := StoreState{
		Mode:     v.StoreMode,
		URL:      v.StoreURL,
		Degraded: degraded(v.Health),
		Warnings: v.Health.Warnings(),
		RTTMS:    milliseconds(time.Duration(s.observer.took.Load())),
		Version:  v.Store.ServerVersion(),
	}
	if err := v.Health.Ready(); err != nil {
		state.Error = err.Error()
	} else {
		state.Ready = true
	}
	if state.Warnings == nil {
		state.Warnings = []string{}
	}
	return state
}
