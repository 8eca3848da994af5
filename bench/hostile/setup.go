package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/partition"
)

// setup is the servers that the corpus is sent to, on free ports and in a folder
// of its own.
//
//	rows ──TCP──▶ plain ─────┐             ┌──▶ null:, a file, the hazard
//	slow ──TCP──▶ impatient ─┤             │
//	auth ──TCP──▶ guarded ───┼── redis ────┤
//	tls  ──TCP──▶ sealed ────┤             │
//	jobs ──TCP──▶ queues ────┤             │
//	one entry ──▶ sinks ─────┘  (password) └──▶ targets that misbehave
type setup struct {
	dir, bin    string
	redisServer string
	redis       *proc.Process
	hazard      *hazard
	plain       *server  // default settings
	impatient   *server  // gives a request readTimeout
	sinks       *server  // a namespace for each of targets
	guarded     *server  // asks for tokens, on both ports
	sealed      *server  // asks for certificates
	queues      *server  // has queues, and lmstfy's API
	keep        bool     // the folder, at the end
	only        []string // categories; nil: all

	before baseline // of plain
	said   []string // heads and bodies of all answers

	ours, other *authority
}

// server is one `spillway serve`.
type server struct {
	*proc.Process
	data, admin string // host:port
	namespaces  []string
	token       string // of the admin port; empty: none
	acked       int64  // entries that its answers said were accepted
}

// Secrets of the configuration. No output may show one. Each has a name of its
// own, so that a leak says which secret it is.
const (
	redisCanary  = "canary-redis-5c1e"
	userCanary   = "canary-user-77aa"
	pathCanary   = "canary-path-19f0"
	queryCanary  = "canary-query-b3d2"
	headerCanary = "canary-header-e4c8" // and of the clients
	bodyCanary   = "canary-body-02fe"
)

func newSetup(ctx context.Context, bin, redisServer string) (_ *setup, err error) {
	r := &setup{redisServer: redisServer}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.bin, err = filepath.Abs(bin); err != nil {
		return r, err
	}
	if r.dir, err = os.MkdirTemp("", "spillway-hostile-"); err != nil {
		return r, err
	}
	if r.hazard, err = newHazard(); err != nil {
		return r, err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	addrs, err := proc.FreeAddrs(13)
	if err != nil {
		return r, err
	}
	if err := r.startRedis(ctx, redisServer, addrs[0]); err != nil {
		return r, err
	}
	hooked := fmt.Sprintf("http://user:%s@%s/answer/422/%s?token=%s", userCanary, r.hazard.addr, pathCanary, queryCanary)
	if r.plain, err = r.serve(ctx, "plain", addrs[1:3], "log_format: json", map[string]string{
		"default": `sink: "null:"`,
		"few":     `sink: "null:", max_partitions: 3, linger: 3m`,
		"small":   `sink: "null:", capacity: 5`,
		"filed":   fmt.Sprintf(`sink: "file://%s", linger: 50ms`, filepath.Join(r.dir, "out.ndjson")),
		"hooked":  fmt.Sprintf(`sink: %q, linger: 0s`, hooked),
	}); err != nil {
		return r, err
	}
	if r.impatient, err = r.serve(ctx, "impatient", addrs[3:5], fmt.Sprintf("log_format: console\nread_timeout: %v", readTimeout), map[string]string{
		"default": `sink: "null:"`,
	}); err != nil {
		return r, err
	}
	if r.guarded, err = r.serve(ctx, "guarded", addrs[7:9], guardedSettings, guardedSpaces); err != nil {
		return r, err
	}
	r.guarded.token = adminCanary
	settings, err := r.sealedSettings()
	if err != nil {
		return r, err
	}
	if r.sealed, err = r.serve(ctx, "sealed", addrs[9:11], settings, map[string]string{"default": `sink: "null:"`}); err != nil {
		return r, err
	}
	if r.queues, err = r.serve(ctx, "queues", addrs[11:13], queuesSettings, queuesSpaces); err != nil {
		return r, err
	}
	spaces := map[string]string{}
	for _, t := range targets {
		spaces[t.namespace()] = fmt.Sprintf("sink: %q, linger: 0s", t.at(r))
	}
	r.sinks, err = r.serve(ctx, "sinks", addrs[5:7], "log_format: json\nsink_timeout: 1s\nlease: 3s", spaces)
	return r, err
}

func (r *setup) startRedis(ctx context.Context, bin, addr string) (err error) {
	c := redis.NewClient(&redis.Options{Addr: addr, Password: redisCanary, MaxRetries: -1})
	defer func() { _ = c.Close() }()
	r.hazard.redis = addr
	r.redis, err = rig.StartRedis(ctx, r.dir, "", c, bin)
	return err
}

// serve starts a server with a file of its own and waits until it is ready.
func (r *setup) serve(ctx context.Context, name string, addrs []string, settings string, namespaces map[string]string) (*server, error) {
	s := &server{data: addrs[0], admin: addrs[1]}
	var file strings.Builder
	fmt.Fprintf(&file, "redis: redis://:%s@%s\nprefix: %s\nlisten: %s\nadmin_listen: %s\nlog_level: debug\n%s\nnamespaces:\n",
		redisCanary, r.hazard.redis, name, s.data, s.admin, settings)
	for ns, policy := range namespaces {
		fmt.Fprintf(&file, "  %s: {%s}\n", ns, policy)
		s.namespaces = append(s.namespaces, ns)
	}
	path := filepath.Join(r.dir, name+".yaml")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		return nil, err
	}
	var err error
	s.Process, err = rig.Start(ctx, r.dir, name, s.ready, r.bin, "serve", "--config", path)
	return s, err
}

func (s *server) ready(ctx context.Context) error {
	_, err := s.get(ctx, "/readyz")
	return err
}

func (r *setup) servers() []*server {
	return []*server{r.plain, r.impatient, r.guarded, r.sealed, r.queues, r.sinks}
}

// close stops servers before their Redis, as an operator would.
func (r *setup) close() {
	for _, s := range r.servers() {
		if s != nil && s.Process != nil {
			s.Stop()
		}
	}
	if r.redis != nil {
		r.redis.Stop()
	}
	if r.hazard != nil {
		r.hazard.close()
	}
	if !r.keep {
		_ = os.RemoveAll(r.dir) // a temp folder; the system clears what is left
	}
}

// lone keeps no connection open, so that its requests leave nothing behind.
var lone = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}

// get is the body of a 200 of the admin port.
func (s *server) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+path, nil)
	if err != nil {
		return nil, err
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := lone.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.200s", path, resp.Status, body)
	}
	return body, err
}

// metric sums the samples of a metric whose labels hold all of the given ones.
func (s *server) metric(ctx context.Context, name string, labels ...string) (sum float64, err error) {
	text, err := s.get(ctx, "/metrics")
	if err != nil {
		return 0, err
	}
	all, err := rig.Metrics(text)
series:
	for series, value := range all {
		rest, found := strings.CutPrefix(series, name)
		if !found || rest != "" && rest[0] != '{' {
			continue
		}
		for _, l := range labels {
			if !strings.Contains(rest, l) {
				continue series
			}
		}
		sum += value
	}
	return sum, err
}

// ledger adds up the ledgers of all namespaces, each and checks that each adds up.
func (s *server) ledger(ctx context.Context, audit bool) (total partition.Ledger, err error) {
	for _, ns := range s.namespaces {
		path := "/api/v1/namespaces/" + ns
		if audit {
			path += "?audit=1"
		}
		var a bench.Account
		// An audit is exact only while nothing moves, and the drain may still be at work.
		for give := time.Now().Add(15 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			text, err := s.get(ctx, path)
			if err != nil {
				return total, err
			}
			a = bench.Account{}
			if err := json.Unmarshal(text, &a); err != nil || audit && a.Residual == nil {
				return total, fmt.Errorf("read the ledger of %s: %q (%v)", ns, text, err)
			}
			if !audit || *a.Residual == 0 || time.Now().After(give) {
				break
			}
		}
		l := a.Ledger
		if l.Accepted != l.Delivered+l.Evicted+l.Expired+l.Dead+l.Lost+l.Buffered || l.Lost != 0 {
			return total, fmt.Errorf("the ledger of %s does not add up: %+v", ns, l)
		}
		if audit && *a.Residual != 0 {
			return total, fmt.Errorf("the ledger of %s is off by %d", ns, *a.Residual)
		}
		total.Accepted += l.Accepted
		total.Delivered += l.Delivered
		total.Evicted += l.Evicted
		total.Expired += l.Expired
		total.Dead += l.Dead
		total.Buffered += l.Buffered
	}
	return total, nil
}
