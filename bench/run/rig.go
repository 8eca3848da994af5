package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition"
)

// rig is what a scenario runs on: a Redis and a server, alone on free ports and
// in a folder of their own.
//
//	load ──HTTP──▶ spillway serve ──▶ redis-server (AOF everysec, noeviction)
//	                   │ null: sink
//	                   └─ admin port: ledger
type rig struct {
	dir           string
	redis, server *process
	client        *redis.Client
	data, admin   string // base URLs
}

// newRig starts both and waits until the server is ready. role is the server's.
func newRig(ctx context.Context, bin, redisServer, role string) (_ *rig, err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "spillway-bench-")
	if err != nil {
		return nil, err
	}
	r := &rig{dir: dir}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()

	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	r.redis, err = start(dir, "redis", redisServer, "--port", port(ports[0]), "--bind", "127.0.0.1", "--dir", dir,
		"--appendonly", "yes", "--appendfsync", "everysec", "--save", "", "--maxmemory-policy", "noeviction")
	if err != nil {
		return nil, err
	}
	r.client = redis.NewClient(&redis.Options{Addr: ports[0], MaxRetries: -1})
	if err := r.redis.await(ctx, "redis-server", func(ctx context.Context) error { return r.client.Ping(ctx).Err() }); err != nil {
		return nil, err
	}

	r.data, r.admin = "http://"+ports[1], "http://"+ports[2]
	r.server, err = start(dir, "spillway", bin, "serve", "--redis", "redis://"+ports[0],
		"--listen", ports[1], "--admin-listen", ports[2], "--sink", "null:", "--role", role)
	if err != nil {
		return nil, err
	}
	err = r.server.await(ctx, "spillway serve", func(ctx context.Context) error {
		_, err := get(ctx, r.data+"/readyz")
		return err
	})
	if err != nil {
		return nil, err
	}
	return r, nil
}

// close stops the server before its Redis, as an operator would.
func (r *rig) close() {
	if r.server != nil {
		r.server.stop()
	}
	if r.client != nil {
		_ = r.client.Close()
	}
	if r.redis != nil {
		r.redis.stop()
	}
	_ = os.RemoveAll(r.dir) // a temp folder; the system clears what is left
}

// account is the admin port's answer about a namespace.
type account struct {
	Ledger   partition.Ledger `json:"ledger"`
	Residual *int64           `json:"residual"` // only after an audit
}

func (r *rig) account(ctx context.Context, audit bool) (account, error) {
	url := r.admin + "/api/v1/namespaces/default"
	if audit {
		url += "?audit=1"
	}
	body, err := get(ctx, url)
	if err != nil {
		return account{}, err
	}
	var a account
	if err := json.Unmarshal(body, &a); err != nil {
		return account{}, fmt.Errorf("read ledger: %w", err)
	}
	return a, nil
}

// drained waits until nothing is buffered any more.
func (r *rig) drained(ctx context.Context) error {
	return r.server.await(ctx, "an empty buffer", func(ctx context.Context) error {
		a, err := r.account(ctx, false)
		if err == nil && a.Ledger.Buffered != 0 {
			err = fmt.Errorf("%d entries are buffered", a.Ledger.Buffered)
		}
		return err
	})
}

// redisMemory is used_memory and used_memory_peak, in bytes.
func (r *rig) redisMemory(ctx context.Context) (used, peak int64, err error) {
	info, err := r.client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, 0, fmt.Errorf("read redis memory: %w", err)
	}
	if used, err = infoField(info, "used_memory"); err != nil {
		return 0, 0, err
	}
	peak, err = infoField(info, "used_memory_peak")
	return used, peak, err
}

func infoField(info, name string) (int64, error) {
	for line := range strings.Lines(info) {
		if value, found := strings.CutPrefix(line, name+":"); found {
			return strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		}
	}
	return 0, fmt.Errorf("read redis memory: no %s", name)
}

func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	_ = resp.Body.Close() // read-only
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %.200s", url, resp.Status, body)
	}
	return body, err
}

// freePorts returns n different loopback addresses nobody listens on. Another
// program may take one before we do; the start then fails, and says so.
func freePorts(n int) ([]string, error) {
	addrs := make([]string, n)
	for i := range addrs {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = ln.Close() }()
		addrs[i] = ln.Addr().String()
	}
	return addrs, nil
}

func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }
