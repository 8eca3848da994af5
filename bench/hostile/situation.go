package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/partition"
)

// A situation is what no row can show: a promise that has to hold in it, on a
// Redis and a server of its own. hold returns what did not.
type situation struct {
	name string
	hold func(ctx context.Context, s *stage) error
}

// atOnce bounds how many situations run together: most of their time they wait.
const atOnce = 4

// situations is a category of them.
func situations(name, about string, list []situation) category {
	return category{name, about, len(list), nil, list, func(ctx context.Context, r *setup, report func(difference)) error {
		var mu sync.Mutex
		var running sync.WaitGroup
		turn := make(chan struct{}, atOnce)
		for i, situation := range list {
			turn <- struct{}{}
			running.Go(func() {
				defer func() { <-turn }()
				if err := r.hold(ctx, fmt.Sprint(strings.ReplaceAll(name, " ", "-"), "-", i), situation); err != nil {
					mu.Lock()
					defer mu.Unlock()
					report(difference{situation.name, "", err.Error(), "that it holds"})
				}
			})
		}
		running.Wait()
		return ctx.Err()
	}}
}

// hold sets a stage for one situation, and clears it away.
func (r *setup) hold(ctx context.Context, name string, sit situation) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	s := &stage{dir: filepath.Join(r.dir, name), bin: r.bin}
	defer s.close()
	if err := s.startRedis(ctx, r.redisServer); err != nil {
		return err
	}
	if err := sit.hold(ctx, s); err != nil {
		return err
	}
	return s.noPanics()
}

// stage is where a situation plays: a Redis, servers and a receiver.
type stage struct {
	dir, bin string
	redis    *proc.Process
	client   *redis.Client
	redisURL string
	servers  []*server
	closing  []func()
}

func (s *stage) startRedis(ctx context.Context, bin string) error {
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return err
	}
	addr, err := proc.FreeAddr()
	if err != nil {
		return err
	}
	s.redisURL = "redis://" + addr
	s.client = redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ReadTimeout: 30 * time.Second})
	s.redis, err = rig.StartRedis(ctx, s.dir, "", s.client, bin)
	return err
}

// serve starts a server on the stage's Redis and waits until it is ready.
func (s *stage) serve(ctx context.Context, flags ...string) (*server, error) {
	addrs, err := proc.FreeAddrs(2)
	if err != nil {
		return nil, err
	}
	v := &server{data: addrs[0], admin: addrs[1], namespaces: []string{"default"}}
	v.Process, err = rig.Start(ctx, s.dir, fmt.Sprint("spillway-", len(s.servers)), v.ready, s.bin, append([]string{"serve", "--redis", s.redisURL,
		"--listen", addrs[0], "--admin-listen", addrs[1], "--log-format", "json"}, flags...)...)
	if err == nil {
		s.servers = append(s.servers, v)
	}
	return v, err
}

func (s *stage) close() {
	for _, v := range s.servers {
		v.Kill() // what it would deliver while it ends is of no interest
	}
	for _, c := range slices.Backward(s.closing) {
		c()
	}
	if s.client != nil {
		_ = s.client.Close()
	}
	if s.redis != nil {
		s.redis.Kill()
	}
}

func (s *stage) noPanics() error {
	for _, v := range s.servers {
		text, err := os.ReadFile(v.Log)
		if err != nil || strings.Contains(string(text), "panic") || strings.Contains(string(text), "goroutine ") {
			return fmt.Errorf("%s speaks of a panic (%v)", v.Log, err)
		}
	}
	return nil
}

// account is the ledger of the default namespace, whatever it says.
func (v *server) account(ctx context.Context, audit bool) (bench.Account, error) {
	return bench.ReadAccount(ctx, "http://"+v.admin, "default", audit)
}

// settled waits until nothing is buffered, and returns the audited account,
// held to its law.
func (v *server) settled(ctx context.Context, most time.Duration) (l partition.Ledger, err error) {
	err = until(ctx, most, func() error {
		a, err := v.account(ctx, true)
		if err != nil {
			return err
		}
		l = a.Ledger
		if l.Buffered != 0 {
			return fmt.Errorf("after %v: %+v", most, l)
		}
		return lawful(a)
	})
	return l, err
}

// lawful: no count is below 0 or beyond what was accepted, and they add up.
func lawful(a bench.Account) error {
	l := a.Ledger
	for _, n := range []int64{l.Delivered, l.Evicted, l.Expired, l.Dead, l.Lost, l.Buffered} {
		if n < 0 || n > l.Accepted {
			return fmt.Errorf("impossible counts: %+v", l)
		}
	}
	if sum := l.Delivered + l.Evicted + l.Expired + l.Dead + l.Lost + l.Buffered; sum != l.Accepted || a.Residual != nil && *a.Residual != 0 {
		return fmt.Errorf("the ledger does not add up, residual %v: %+v", a.Residual, l)
	}
	return nil
}

// post sends one body and returns the status.
func (v *server) post(ctx context.Context, path, contentType, body string) (status int, answer string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+v.data+path, strings.NewReader(body))
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// take posts entries, one a line, which have to be accepted.
func (v *server) take(ctx context.Context, partition string, lines ...string) error {
	status, answer, err := v.post(ctx, "/v1/default/"+partition, "application/x-ndjson", strings.Join(lines, "\n"))
	if err == nil && (status != http.StatusOK || !strings.Contains(answer, fmt.Sprintf(`"accepted":%d,`, len(lines)))) {
		err = fmt.Errorf("%d entries to %s: %d %s", len(lines), partition, status, answer)
	}
	return err
}

// numbered are n lines that no two are alike: {"n":0}, {"n":1}, …
func numbered(n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"n":%d}`, i)
	}
	return lines
}

// delivery is a POST that a receiver got: lines of what file: writes.
type delivery struct {
	partition string
	attempt   int
	number    int      // of all, from 0
	data      []string // of each entry
}

// receiver is a webhook that counts what it got, entry by entry.
type receiver struct {
	url string

	mu    sync.Mutex
	posts int
	got   map[string]int // by partition and data
	taken map[string]int // of those, what the answer said it kept
}

// reply is what a receiver answers. Entries whose index is in rejected are not
// counted as taken; a status that is no 2xx takes none.
type reply struct {
	status   int
	headers  map[string]string
	body     string
	rejected []int
}

// receive starts a receiver that answers as decide says.
func (s *stage) receive(decide func(delivery) reply) (*receiver, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	v := &receiver{url: "http://" + ln.Addr().String(), got: map[string]int{}, taken: map[string]int{}}
	web := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		d := delivery{partition: req.Header.Get("X-Partition")}
		_, _ = fmt.Sscan(req.Header.Get("X-Attempt"), &d.attempt)
		for lines := json.NewDecoder(req.Body); ; {
			var l struct{ Data json.RawMessage }
			if lines.Decode(&l) != nil {
				break
			}
			d.data = append(d.data, string(l.Data))
		}
		v.mu.Lock()
		d.number = v.posts
		v.posts++
		for _, data := range d.data {
			v.got[d.partition+" "+data]++
		}
		v.mu.Unlock()
		a := decide(d)
		v.mu.Lock()
		for i, data := range d.data {
			if a.status/100 == 2 && !slices.Contains(a.rejected, i) {
				v.taken[d.partition+" "+data]++
			}
		}
		v.mu.Unlock()
		for name, value := range a.headers {
			w.Header().Set(name, value)
		}
		w.WriteHeader(a.status)
		_, _ = io.WriteString(w, a.body)
	})}
	done := make(chan struct{})
	go func() { defer close(done); _ = web.Serve(ln) }()
	s.closing = append(s.closing, func() { _ = web.Close(); <-done })
	return v, nil
}

// counts are how often each entry came, and was taken.
func (v *receiver) counts() (posts int, got, taken map[string]int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.posts, maps.Clone(v.got), maps.Clone(v.taken)
}

// file writes a file of the stage and returns its path.
func (s *stage) file(name, text string) (string, error) {
	path := filepath.Join(s.dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}
