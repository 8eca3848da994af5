// Package admin is the second port: for operators, Prometheus and probes, never for
// clients. Server answers its routes; Accounts reads the ledger of each namespace for
// metrics and log. DESIGN.md tells more.
package admin

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// Server is the server of the admin port. Every route only reads.
type Server struct {
	cfg    Config
	log    *zap.Logger
	server *http.Server

	mu       sync.Mutex
	listener net.Listener // nil before Start
	stopped  bool
	serving  sync.WaitGroup
}

// Config is what the server is told once.
type Config struct {
	Listen    string             // host:port; also decides which Host headers it accepts
	TLS       *tls.Config        // nil: plain HTTP
	TokenHash *[sha256.Size]byte // of the token that requests must have; nil: no authentication
	Source    Source
	Failed    func(error) // called when the server ends without Stop
}

// Codes that only this port has.
const (
	codeCrossOrigin wire.Code = "cross_origin"
	codeBadHost     wire.Code = "bad_host"
)

const (
	overviewTimeout = 5 * time.Second
	auditTimeout    = time.Minute // an audit counts every partition
)

// errStartedBefore is the error of a second Start, and of a Start after Stop.
var errStartedBefore = errors.New("started or stopped before")

// New makes the server; Start opens its port.
func New(cfg Config, log *zap.Logger) *Server {
	a := &Server{cfg: cfg, log: log}
	// Its own metrics outlive a reload, which replaces those of the source.
	own := prometheus.NewRegistry()
	metrics := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		return prometheus.Gatherers{cfg.Source().Metrics, own}.Gather()
	})
	mux := http.NewServeMux()
	get := func(path string, h http.HandlerFunc) { mux.Handle(path, onlyGet(h)) }
	get("/livez", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	get("/readyz", a.readyz)
	get("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}).ServeHTTP)
	get("/api/v1/namespaces", a.namespaces)
	get("/api/v1/namespaces/{namespace}", a.ledger)
	// pprof's cmdline is not served: flags may hold a password.
	get("/debug/pprof/", limitSeconds(pprof.Index))
	get("/debug/pprof/profile", limitSeconds(pprof.Profile))
	get("/debug/pprof/trace", limitSeconds(pprof.Trace))
	get("/debug/pprof/symbol", pprof.Symbol)
	get("/debug/pprof/cmdline", notFound)
	mux.HandleFunc("/", notFound)

	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeError(w, http.StatusForbidden, codeCrossOrigin, "writes from other origins are rejected")
	}))
	a.server = &http.Server{
		Handler:           checkHost(cfg.Listen, requireToken(cfg.TokenHash, own, crossOrigin.Handler(mux))),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          stdlog.New(serverLog{log}, "", 0),
	}
	return a
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
func (a *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { a.server.Handler.ServeHTTP(w, r) }

// Start opens the port and answers requests until Stop.
func (a *Server) Start(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.listener != nil || a.stopped {
		return errStartedBefore
	}
	l, err := new(net.ListenConfig).Listen(context.WithoutCancel(ctx), "tcp", a.cfg.Listen)
	if err != nil {
		a.stopped = true
		return err
	}
	if a.cfg.TLS != nil {
		l = tls.NewListener(l, a.cfg.TLS)
	}
	a.listener = l
	a.serving.Go(func() {
		if err := a.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.cfg.Failed(fmt.Errorf("admin server: %w", err))
		}
	})
	return nil
}

// Stop closes the port and finishes requests. Those still running when ctx ends
// are cut.
func (a *Server) Stop(ctx context.Context) error {
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
	err := a.server.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, a.server.Close())
	}
	a.serving.Wait()
	return err
}

// Address is where the started server listens.
func (a *Server) Address() string { return a.listener.Addr().String() }

func (a *Server) readyz(w http.ResponseWriter, _ *http.Request) {
	v := a.cfg.Source()
	if err := v.Health.Ready(); err != nil {
		writeError(w, http.StatusServiceUnavailable, wire.CodeNotReady, err.Error())
		return
	}
	// Only operators use this port, so the warnings may name details of the store.
	writeJSON(w, http.StatusOK, struct {
		Status   string   `json:"status"`
		Warnings []string `json:"warnings,omitempty"`
	}{"ok", v.Health.Warnings()})
}

func (a *Server) namespaces(w http.ResponseWriter, _ *http.Request) {
	list := []json.RawMessage{}
	v := a.cfg.Source()
	for _, ns := range v.Store.Namespaces() {
		list = append(list, namespaceJSON(ns.Name, v.Settings[ns.Name]))
	}
	writeJSON(w, http.StatusOK, map[string]any{"namespaces": list})
}

// namespaceJSON is the name of a namespace and its settings, under the keys of the
// configuration. Durations are whole milliseconds, under a key that ends with _ms.
func namespaceJSON(name string, settings []Setting) json.RawMessage {
	object := fmt.Appendf(nil, `{"namespace":%q`, name)
	for _, s := range settings {
		key, value := s.Key, s.Value
		if d, ok := value.(time.Duration); ok {
			key, value = key+"_ms", d.Milliseconds()
		}
		text, _ := json.Marshal(value) // strings and numbers only
		object = fmt.Appendf(object, `,%q:%s`, key, text)
	}
	return append(object, '}')
}

// Account is the answer about one namespace. Residual is set when the request
// asks for an audit: the difference between the ledger's buffered and a count of
// the entries. It is 0 unless entries moved during the count.
type Account struct {
	Namespace   string           `json:"namespace"`
	Ledger      partition.Ledger `json:"ledger"`
	Reclaimed   int64            `json:"reclaimed"`
	Partitions  int64            `json:"partitions"`
	DeadLetters int64            `json:"dead_letters"`
	DeadEvicted int64            `json:"dead_letters_evicted"`
	DeadBytes   int64            `json:"dead_letters_bytes"`
	OverdueMS   int64            `json:"overdue_ms"` // of the partition that has been due for longest
	Residual    *int64           `json:"residual,omitempty"`
}

func (a *Server) ledger(w http.ResponseWriter, r *http.Request) {
	name, store := r.PathValue("namespace"), a.cfg.Source().Store
	ns := store.Namespace(name)
	if ns == nil {
		writeError(w, http.StatusNotFound, wire.CodeNoSuchNamespace, "there is no namespace "+strconv.Quote(name))
		return
	}
	audit := false
	if v := r.URL.Query().Get("audit"); v != "" {
		var err error
		if audit, err = strconv.ParseBool(v); err != nil {
			writeError(w, http.StatusBadRequest, wire.CodeBadRequest, "audit: want 1 or 0")
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), overviewTimeout)
	defer cancel()
	o, err := store.Overview(ctx, ns)
	if err != nil {
		a.storeFailed(w, "read overview", err)
		return
	}
	answer := Account{
		Namespace: ns.Name, Ledger: o.Ledger, Reclaimed: o.Reclaimed, Partitions: o.Partitions,
		DeadLetters: o.DeadLetters, DeadEvicted: o.DeadEvicted, DeadBytes: o.DeadBytes, OverdueMS: o.Overdue.Milliseconds(),
	}
	if audit {
		ctx, cancel := context.WithTimeout(r.Context(), auditTimeout)
		defer cancel()
		residual, err := store.Audit(ctx, ns)
		if err != nil {
			a.storeFailed(w, "audit", err)
			return
		}
		answer.Residual = &residual
	}
	writeJSON(w, http.StatusOK, answer)
}

func (a *Server) storeFailed(w http.ResponseWriter, what string, err error) {
	a.log.Warn("admin request failed", zap.String("what", what), zap.Error(err))
	w.Header().Set("Retry-After", "1")
	writeError(w, http.StatusServiceUnavailable, wire.CodeStoreUnavailable, "the store did not answer; see /readyz")
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error means that the client is gone.
	_ = json.NewEncoder(w).Encode(body)
}

func writeError(w http.ResponseWriter, status int, code wire.Code, message string) {
	failure := wire.Failure{Code: code, Message: message}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(failure.Append(nil))
}
