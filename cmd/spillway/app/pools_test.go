package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// try sends one event to a namespace, and returns the status.
func (a *testApp) try(t *testing.T, namespace, body string) (status int) {
	t.Helper()
	res, err := a.http.Post("http://"+a.Listen+"/v1/"+namespace+"/p", "", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode
}

func TestAPoolThatIsAwayHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	fast, other := redistest.Start(t), redistest.Start(t)
	file := fmt.Sprintf("pools: {fast: \"%s\"}\nnamespaces:\n  kart: {pool: fast}\n  golf: {pool: fast}\n  chess: {}\n", fast.URL())
	a := startApp(t, "--config", writeFile(t, "spillway.yaml", file), "--redis="+other.URL())
	for _, name := range []string{"kart", "golf", "chess"} {
		a.post(t, "/v1/"+name+"/p", "1")
	}
	for range 3 {
		a.line(t)
	}
	if keys, err := fast.Client().Keys(t.Context(), "*").Result(); err != nil || len(keys) == 0 || slices.ContainsFunc(keys, func(key string) bool { return strings.Contains(key, "chess") }) {
		t.Errorf("the pool fast holds %v, %v", keys, err)
	}
	for name, away := range map[string]struct{ begin, end func() }{
		"stopped": {func() { fast.Signal(syscall.SIGSTOP) }, func() { fast.Signal(syscall.SIGCONT) }},
		"killed":  {fast.Kill, fast.Launch},
	} {
		away.begin()
		rejected := make(chan int, 1)
		go func() { rejected <- a.try(t, "kart", "2") }()
		for i := range 50 {
			if status := a.try(t, "chess", fmt.Sprint(i)); status != http.StatusOK {
				t.Fatalf("%s: %d from the pool that is there", name, status)
			}
		}
		for range 50 {
			if line := a.line(t); !strings.Contains(line, `"namespace":"chess"`) {
				t.Errorf("%s: delivered %s", name, line)
			}
		}
		if status := <-rejected; status != http.StatusServiceUnavailable {
			t.Errorf("%s: %d from the pool that is not", name, status)
		}
		warned := func() bool {
			_, body := a.get(t, a.AdminListen, "/api/v1/overview")
			return strings.Contains(body, "pool fast cannot be used, its namespaces are rejected")
		}
		eventually(t, "the overview warns", warned)
		for _, address := range []string{a.Listen, a.AdminListen} {
			if status, body := a.get(t, address, "/readyz"); status != http.StatusOK {
				t.Errorf("%s: not ready: %s", name, body)
			}
		}
		seen := a.ledger(t, "chess").Delivered
		a.post(t, "/v1/chess/p", "last")
		eventually(t, "the other ledger is read", func() bool { return a.ledger(t, "chess").Delivered > seen })
		a.line(t)
		away.end()
		eventually(t, "the pool takes entries again", func() bool { return a.try(t, "golf", "3") == http.StatusOK })
		eventually(t, "and delivers them", func() bool { return strings.Contains(a.line(t), `"namespace":"golf"`) })
		eventually(t, "the warning is over", func() bool { return !warned() })
		for len(a.lines) > 0 {
			<-a.lines // what the pool had taken with an unknown outcome
		}
	}
	if _, body := a.get(t, a.AdminListen, "/metrics"); !strings.Contains(body, `spillway_store_unreachable_shards{pool="default"} 0`) || !strings.Contains(body, `spillway_store_unreachable_shards{pool="fast"} 0`) {
		t.Error("the metrics do not tell the pools apart")
	}
}

func TestAnUnusablePoolIsNamed(t *testing.T) {
	t.Parallel()
	evicts, other := redistest.Start(t, "--maxmemory-policy", "allkeys-lru"), redistest.Start(t)
	file := writeFile(t, "spillway.yaml", fmt.Sprintf("pools: {fast: \"%s\"}\nnamespaces:\n  kart: {pool: fast}\n  chess: {}\n", evicts.URL()))
	a := newTestApp(t, "--config", file, "--redis="+other.URL())
	if err := a.Start(t.Context()); !errors.Is(err, partition.ErrIncompatible) || !strings.Contains(err.Error(), "store: pool fast: incompatible: store rejects: maxmemory-policy") {
		t.Errorf("got %v", err)
	}
}

func TestAReloadAddsAPoolAndGoesOnWhileItIsAway(t *testing.T) {
	t.Parallel()
	first, added := redistest.Start(t), redistest.Start(t)
	head := fmt.Sprintf("redis: %s\nsink: \"null:\"\n", first.URL())
	pools := head + fmt.Sprintf("pools: {fast: \"%s\"}\n", added.URL())
	a, write, _ := startReloading(t, head+"namespaces: {chess: {}}\n")
	rewrite := func(config string, want ...string) {
		t.Helper()
		write(config)
		if got, err := reload(t, a); err != nil || !slices.Equal(got, want) {
			t.Fatalf("got %q, %v, want %q", got, err, want)
		}
	}
	post := func(namespace string) int {
		t.Helper()
		res, err := http.Post("http://"+a.Listen+"/v1/"+namespace+"/p", "", strings.NewReader("1"))
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
		return res.StatusCode
	}
	rewrite(pools+"namespaces: {chess: {}, kart: {pool: fast}}\n", "namespaces.kart", "pools.fast")
	if chess, kart := post("chess"), post("kart"); chess != http.StatusOK || kart != http.StatusOK {
		t.Errorf("chess %d, kart %d", chess, kart)
	}
	added.Kill()
	rewrite(pools+"namespaces: {chess: {batch: 5}, kart: {pool: fast}}\n", "namespaces.chess.batch")
	if chess, kart := post("chess"), post("kart"); chess != http.StatusOK || kart != http.StatusServiceUnavailable {
		t.Errorf("while a pool is away: chess %d, kart %d", chess, kart)
	}
	write(head + "namespaces: {chess: {batch: 5}}\n")
	eventually(t, "kart is not removed unread", func() bool {
		_, err := a.Reload(t.Context())
		return err != nil && strings.Contains(err.Error(), "namespaces.kart: removed, and what waits in it cannot be read")
	})
	added.Launch()
	eventually(t, "kart is empty and can go", func() bool { _, err := a.Reload(t.Context()); return err == nil })
	if status := post("kart"); status != http.StatusNotFound {
		t.Errorf("kart is removed: %d", status)
	}
}

// stuck is a component whose Redis is away: Stop takes all the time there is.
type stuck struct{ began chan struct{} }

func (s stuck) Start(context.Context) error { return nil }

func (s stuck) Stop(ctx context.Context) error {
	close(s.began)
	<-ctx.Done()
	return ctx.Err()
}

func TestAPoolThatDoesNotStopHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, b := stuck{make(chan struct{})}, stuck{make(chan struct{})}
	done := make(chan error, 1)
	go func() { done <- stopEach(ctx, []startStopper{a, b}) }()
	for _, s := range []stuck{a, b} {
		select {
		case <-s.began:
		case <-ctx.Done():
			t.Fatal("one waits for the other")
		}
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("got no error")
	}
}

const threeNamespaces = `namespaces:
  all: {sink: "namespaces://hot,cold", tokens: ["sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]}
  hot: {sink: "stdout:"}
  cold: {sink: "null:", tokens: ["sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752"]}
`

func TestABranchTakesEntriesOfItsParentAndOfItsOwnTokens(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "spillway.yaml")
	if err := os.WriteFile(path, []byte(threeNamespaces), 0o600); err != nil {
		t.Fatal(err)
	}
	a := newTestApp(t, "--config", path)
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.stop(t) })
	for _, tt := range []struct {
		namespace, token string
		status           int
	}{{"hot", "", 401}, {"hot", "test", 403}, {"cold", "test", 403}, {"cold", "test2", 200}, {"all", "", 401}, {"all", "test", 200}} {
		req, err := http.NewRequest("POST", "http://"+a.Listen+"/v1/"+tt.namespace+"/kart", strings.NewReader(`{"n":1}`))
		if err != nil {
			t.Fatal(err)
		}
		if tt.token != "" {
			req.Header.Set("Authorization", "Bearer "+tt.token)
		}
		res, err := a.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if res.StatusCode != tt.status {
			t.Errorf("%s with the token %q: got %d, want %d", tt.namespace, tt.token, res.StatusCode, tt.status)
		}
	}
	if line := a.line(t); !strings.Contains(line, `"namespace":"hot","partition":"kart"`) || !strings.Contains(line, `"data":{"n":1}`) {
		t.Errorf("got %s", line)
	}
	redistest.Until(t, 10*time.Second, "cold has the entry of its token and that of its parent", func() bool {
		return a.ledger(t, "cold").Accepted == 2
	})
}
