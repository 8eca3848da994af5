// Package ingest takes events over HTTP, checks each of them, and answers once
// they are in the store.
//
// A request takes these steps, and calls go only down this list:
//
//	transport     accept the connection, within MaxConns
//	skipbody.go   check the headers of a large body before it is read
//	handle.go     run the next steps, and recover from panics
//	route.go      find the route by method and path; transport checks the headers
//	admit.go      check namespace, token and limits
//	produce.go    run the next steps of a produce request
//	memory        read the body, decompress it, reserve its memory
//	sdk.go        the same for SDKs of other vendors, with the adapters of protocol
//	split.go      cut the body into entries, and encode them
//	request.go    the entries, grouped by partition
//	lanes.go      choose the lane of each partition
//	lane.go       queue, and flush what waits
//	flush.go      cut what waits into one call of the store
//	answer.go     say what became of the entries
//	errors.go     which code an error of the store has, and how it is answered
//
// DESIGN.md draws it.
//
// A server lives between Start and Stop:
//
//	s, err := ingest.New(ingest.DefaultConfig(), store, registry, log)
//	…
//	s.SetListener(listener)
//	err = s.Start(ctx)
//	…
//	err = s.Stop(ctx)
package ingest

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/memory"
	"github.com/spillway-io/spillway/ingest/transport"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/share"
)

// Store is what the server needs of the buffer; *partition.Store and *partition.Stores are two.
// Namespace must not keep the name. Produce must not keep a group after it
// returns, and runs groups of one partition in the order given.
type Store interface {
	Namespace(name string) *partition.Namespace
	Zones() int // see partition.Namespace.ZoneOf
	NowOf(ns *partition.Namespace) (ms int64, ok bool)
	Produce(ctx context.Context, groups []*partition.Group)
	Stats(ctx context.Context, ns *partition.Namespace, partition string) (partition.Stats, error)
}

// Server is the data port. SetListener gives it a listener, Start serves on it,
// Stop ends it.
type Server struct {
	cfg        Config
	store      Store
	log        *zap.Logger
	pages      *zap.Logger // of pages that are rejected: they must not fill the log
	metrics    *metrics
	http       *fasthttp.Server
	keyring    atomic.Pointer[keyring]
	origins    map[string]*origins // by namespace; nil when no namespace lists any
	sdkOrigins *origins            // of all namespaces that SDKs reach
	writeKeys  writeKeys
	lanes      *lanes
	mounts     []*mount
	requests   sync.Pool
	targets    sync.Pool
	memory     *memory.Budget
	keyless    *share.Turns // of large bodies of SDKs whose key is not known
	conns      atomic.Int64 // open connections
	ready      atomic.Pointer[func() error]
	stopping   atomic.Bool
	active     atomic.Int64           // requests that this server answers now
	next       atomic.Pointer[Server] // set by Retire
	ending     chan struct{}          // closed by Stop and Retire, for requests that wait
	end        func()                 // closes it, once

	mu     sync.Mutex
	ln     *transport.Listener
	served chan struct{} // made by Start, closed when the server accepts no more
	failed chan error
}

const (
	// maxKeyless is how many large bodies of SDKs without a known key may wait: half of the
	// places of keyless, two of them, or one with two cores, open such bodies.
	maxKeyless = 64
	// maxHeaderBytes bounds request line and headers together. Each connection
	// has a read buffer of this size.
	maxHeaderBytes = 8 << 10
	// maxRequestsPerConn lets a load balancer spread long-lived connections again.
	maxRequestsPerConn = 1 << 20
)

// New makes a server that is not started. It returns a *partition.FieldError
// for an unusable setting.
func New(cfg Config, store Store, reg prometheus.Registerer, log *zap.Logger) (*Server, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	budget, err := memory.New(cfg.memory())
	if err != nil {
		return nil, err
	}
	s := &Server{
		cfg:    cfg,
		store:  store,
		log:    log,
		pages:  log.WithOptions(zap.WrapCore(fewLines)),
		memory: budget,
		failed: make(chan error, 1),
		ending: make(chan struct{}),
	}
	s.end = sync.OnceFunc(func() { close(s.ending) })
	s.keyless = share.NewTurns(min(4, runtime.GOMAXPROCS(0)), maxKeyless)
	s.targets.New = func() any { return new(target) }
	s.requests.New = func() any {
		r := newRequest()
		r.Body = budget.NewBody()
		return r
	}
	if s.metrics, err = newMetrics(
		reg,
		cfg.Drops,
		budget.Held.Used,
		s.conns.Load,
		budget.Conns.Used,
	); err != nil {
		return nil, err
	}
	if s.mounts, err = newMounts(cfg); err != nil {
		return nil, err
	}
	if err = s.SetTokens(cfg.Tokens, cfg.Closed); err != nil {
		return nil, err
	}
	if s.origins, err = newOrigins(cfg, s.hasNamespace); err != nil {
		return nil, err
	}
	if s.writeKeys, err = newWriteKeys(cfg, store, s.origins, s.metrics); err != nil {
		return nil, err
	}
	s.sdkOrigins = sdkOrigins(&s.writeKeys)
	s.lanes = newLanes(cfg, store, s.metrics, log)
	s.http = &fasthttp.Server{
		Handler:        s.serveRequest,
		HeaderReceived: s.serveHeader,
		ErrorHandler:   s.handleReadError,
		ExpectHandler:  s.serveExpect,
		ConnState:      transport.StateChanged,
		Logger:         connLog{log},

		ReadTimeout:        cfg.ReadTimeout,
		WriteTimeout:       cfg.WriteTimeout,
		IdleTimeout:        cfg.IdleTimeout,
		MaxRequestBodySize: cfg.MaxBody,
		StreamRequestBody:  true, // receive reads bodies, and reserves their memory first
		ReadBufferSize:     maxHeaderBytes,
		MaxRequestsPerConn: maxRequestsPerConn,
		Concurrency:        transport.Workers(cfg.MaxConns), // the listener bounds the connections

		NoDefaultServerHeader:        true,
		NoDefaultContentType:         true,
		SecureErrorLogMessage:        true,
		DisablePreParseMultipartForm: true,
		CloseOnShutdown:              true,
	}
	return s, nil
}
