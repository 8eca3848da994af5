// Package admin is the second port: for operators, Prometheus and probes, never for
// clients. Server answers its routes; its observer reads the ledger of each namespace for
// metrics, log and history. DESIGN.md tells more.
package admin

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/lifecycle"
	"github.com/spillway-io/spillway/partition/metric"
)

// Server is the server of the admin port.
type Server struct {
	cfg    Config
	log    *zap.Logger
	server *http.Server

	began    time.Time
	observer *observer
	running  context.Context // ends with Stop: observer and tails
	end      context.CancelFunc
	tails    chan struct{} // holds one of each that runs
	audit    auditLog
	held     held
	acts     sync.Mutex // held by what runs alone

	metrics      http.Handler
	unauthorized prometheus.Counter

	mu       sync.Mutex
	listener net.Listener // nil before Start
	stopped  bool
	serving  sync.WaitGroup
}

// Config is what the server is told once.
type Config struct {
	Listen string      // host:port; also decides which Host headers it accepts
	TLS    *tls.Config // nil: plain HTTP
	Source Source
	Build  Build
	Reload Reload      // nil: there is none
	Failed func(error) // called when the server ends without Stop
}

// noDeadline ends a deadline of a connection.
var noDeadline time.Time

// New makes the server; Start opens its port.
func New(cfg Config, log *zap.Logger) *Server {
	own := prometheus.NewRegistry() // its own metrics outlive a reload
	s := &Server{
		cfg:   cfg,
		log:   log,
		began: time.Now(),
		tails: make(chan struct{}, maxTails),
		held:  held{states: map[heldState]heldFinding{}},
	}
	s.running, s.end = context.WithCancel(context.Background())
	s.observer = newObserver(cfg.Source, log)
	r := metric.New(own, "spillway_admin_")
	s.unauthorized = r.Counter("unauthorized_total",
		"Requests to the admin port that were answered 401, without an admin token or with a wrong one.")
	r.Must()
	own.MustRegister(s.observer.metrics())
	s.metrics = promhttp.HandlerFor(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		return prometheus.Gatherers{cfg.Source().Metrics, own}.Gather()
	}), promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
	s.server = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          stdlog.New(serverLog{log}, "", 0),
	}
	return s
}

// serverLog receives what net/http logs. Anybody can make handshakes fail any
// number of times, so those lines are logged at debug level.
type serverLog struct{ log *zap.Logger }

func (s serverLog) Write(line []byte) (int, error) {
	level := zap.WarnLevel
	if bytes.HasPrefix(line, []byte("http: TLS handshake error")) {
		level = zap.DebugLevel
	}
	s.log.Log(level, "admin server", zap.String("detail", string(bytes.TrimSpace(line))))
	return len(line), nil
}

// ServeHTTP answers one request as the port does.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.server.Handler.ServeHTTP(w, r) }

// Start opens the port and answers requests until Stop.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listener != nil || s.stopped {
		return lifecycle.ErrStarted
	}
	l, err := new(net.ListenConfig).Listen(context.WithoutCancel(ctx), "tcp", s.cfg.Listen)
	if err != nil {
		s.stopped = true
		return err
	}
	if s.cfg.TLS != nil {
		l = tls.NewListener(l, s.cfg.TLS)
	}
	s.listener = l
	first, cancel := context.WithTimeout(ctx, firstRead)
	defer cancel()
	s.observer.read(first) // for a scrape right after a start, where the store is up
	s.serving.Go(func() { s.observer.run(s.running) })
	s.serving.Go(func() {
		lifecycle.Every(s.running, heldEvery, func() {
			if v := s.cfg.Source(); v.Store != nil {
				s.judge(v, "")
			}
		})
	})
	s.serving.Go(func() {
		if err := s.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.cfg.Failed(fmt.Errorf("admin server: %w", err))
		}
	})
	return nil
}

// Stop closes the port and finishes requests. Those still running when ctx ends
// are cut.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
	s.end()
	err := s.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.server.Close())
	}
	s.serving.Wait()
	return err
}

// Address is where the started server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }
