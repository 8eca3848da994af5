package admin

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-io/spillway/partition"
)

// A Source returns what the server shows. A reload replaces all of it, so the server asks
// for each request anew and keeps nothing over one.
type Source func() View

// A View is what runs now.
type View struct {
	Store    Store
	Health   Health
	Metrics  prometheus.Gatherer
	Settings map[string][]Setting // by namespace, the URLs redacted
	Tokens   []Token              // none: whoever reaches the port is an admin
	// MaskFields are the keys of JSON objects whose values are masked in payloads.
	MaskFields []string
}

// Store is what the server needs of the store.
type Store interface {
	Namespace(name string) *partition.Namespace
	Namespaces() []*partition.Namespace
	Overview(ctx context.Context, ns *partition.Namespace) (partition.Overview, error)
	Audit(ctx context.Context, ns *partition.Namespace) (int64, error)
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
