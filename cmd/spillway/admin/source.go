package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/drops"
	"github.com/spillway-io/spillway/partition/schedule"
)

// A Source returns what the server shows. A reload replaces all of it, so the server asks
// for each request anew and keeps nothing over one.
type Source func() View

// A View is what runs now.
type View struct {
	Store    Store
	Health   Health
	Metrics  prometheus.Gatherer
	Drain    Drain                // nil under the role ingest
	Push     []Pusher             // of each pool whose queues are pushed; none under the role ingest
	Drops    *drops.Log           // nil: no samples
	Settings map[string][]Setting // by namespace, the URLs redacted
	Tokens   []Token              // none: every request has the role admin
	Control  *control.Control     // nil: namespaces and tokens come from the configuration only
	// Queues returns the jobs of a namespace of kind queue; nil: it is not in use. Not
	// nil where Control is not.
	Queues func(namespace string) verb.Queues
	Jobs   []JobStore // of each pool
	// Workers are those of a namespace of queues that this process heard of; nil under the role drain.
	Workers func(namespace string) []jobs.Worker
	// More returns the handler of a path of another API on this port; nil: it is of none.
	// It is asked before the port's own routes, and authorizes by Server.Authorize.
	More func(path string) http.Handler
	// Limits bound the runs of schedules, as the data port does.
	Limits schedule.Limits
	// MaskFields are the keys of JSON objects whose values are masked in payloads.
	MaskFields []string
	Role       string // all, ingest or drain
	StoreMode  string // embedded, redis, sentinel or cluster
	StoreURL   string // without its password
}

// Store is what the server needs of the store.
type Store interface {
	Namespace(name string) *partition.Namespace
	Namespaces() []*partition.Namespace
	ServerVersion() string
	Overview(ctx context.Context, ns *partition.Namespace) (partition.Overview, error)
	Audit(ctx context.Context, ns *partition.Namespace) (int64, error)
	Partitions(ctx context.Context, ns *partition.Namespace, from partition.Page,
		limit int) ([]partition.Stats, partition.Page, error)
	Describe(ctx context.Context, ns *partition.Namespace, names []string) ([]partition.Stats, error)
	Peek(ctx context.Context, ns *partition.Namespace, name string,
		r partition.PeekRequest) (partition.Peeked, error)
	Pause(ctx context.Context, ns *partition.Namespace, name string, p partition.Pause) error
	Resume(ctx context.Context, ns *partition.Namespace, name string) (was bool, err error)
	Purge(ctx context.Context, ns *partition.Namespace,
		r partition.PurgeRequest) (partition.PurgeResult, error)
	DeadLetters(ctx context.Context, ns *partition.Namespace, cursor string,
		limit int) (partition.DeadPage, error)
	DeadLetter(ctx context.Context, ns *partition.Namespace, id string) (partition.Letter, error)
	Discard(ctx context.Context, ns *partition.Namespace, letters []partition.Letter) (removed int, err error)
	Replay(ctx context.Context, ns *partition.Namespace, letters []partition.Letter) []partition.ReplayOutcome
	Pauses(ctx context.Context, ns *partition.Namespace) ([]partition.PausedPart, error)
}

// Drain is what the server needs of the drainer.
type Drain interface {
	Status() guard.Status
	LastError(namespace, partition string) (words string, at time.Time)
}

// Pusher is what the server needs of what pushes queues to sinks.
type Pusher interface {
	Status() guard.Status
	SinkOf(namespace, queue string) string // its name; "": it is pushed to none
}

// Health says whether the service is ready, and with which warnings.
type Health interface {
	Ready() error
	Warnings() []string
}

// A Setting is a key of the configuration and its value: a string, a number or a
// time.Duration.
type Setting struct {
	Key   string
	Value any
}

// lastError is what the last write of a partition by this process failed with.
func (v View) lastError(namespace, partition string) string {
	if v.Drain == nil {
		return ""
	}
	words, _ := v.Drain.LastError(namespace, partition)
	return words
}

// A pushSink is a sink that this process pushes jobs to.
type pushSink struct {
	Sink
	takes func(queue string) bool
}

// pushSinks are those by namespace.
func (v View) pushSinks() map[string][]pushSink {
	sinks := map[string][]pushSink{}
	for _, p := range v.Push {
		for _, t := range p.Status().Targets {
			takes := func(queue string) bool { return p.SinkOf(t.Namespace, queue) == t.Sink }
			sinks[t.Namespace] = append(sinks[t.Namespace], pushSink{sinkOf(t, false), takes})
		}
	}
	return sinks
}
