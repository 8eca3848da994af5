package app

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// status of one event that is sent to a namespace, and how long that took.
func (a *testApp) try(t *testing.T, namespace, body string) (status int, took time.Duration) {
	t.Helper()
	began := time.Now()
	res, err := a.http.Post("http://"+a.Listen+"/v1/"+namespace+"/p", "", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	return res.StatusCode, time.Since(began)
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
		go func() { status, _ := a.try(t, "kart", "2"); rejected <- status }()
		var slowest time.Duration
		for i := range 50 {
			status, took := a.try(t, "chess", fmt.Sprint(i))
			if slowest = max(slowest, took); status != http.StatusOK {
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
		t.Logf("%s: the slowest of 50 requests to the other pool took %v", name, slowest)
		if slowest > 5*time.Second { // a request to the pool that is away takes up to 9 s
			t.Errorf("%s: a request to the other pool took %v", name, slowest)
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
		eventually(t, "the pool takes entries again", func() bool { status, _ := a.try(t, "golf", "3"); return status == http.StatusOK })
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
	reload := func(config string, want ...string) {
		t.Helper()
		write(config)
		if got, err := a.Reload(t.Context()); err != nil || !slices.Equal(got, want) {
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
	reload(pools+"namespaces: {chess: {}, kart: {pool: fast}}\n", "namespaces.kart", "pools.fast")
	if chess, kart := post("chess"), post("kart"); chess != http.StatusOK || kart != http.StatusOK {
		t.Errorf("chess %d, kart %d", chess, kart)
	}
	added.Kill()
	reload(pools+"namespaces: {chess: {batch: 5}, kart: {pool: fast}}\n", "namespaces.chess.batch")
	if chess, kart := post("chess"), post("kart"); chess != http.StatusOK || kart != http.StatusServiceUnavailable {
		t.Errorf("while a pool is away: chess %d, kart %d", chess, kart)
	}
	write(head + "namespaces: {chess: {batch: 5}}\n")
	if _, err := a.Reload(t.Context()); err == nil || !strings.Contains(err.Error(), "namespaces.kart: removed, and what waits in it cannot be read") {
		t.Errorf("kart is removed unread: %v", err)
	}
	added.Launch()
	eventually(t, "kart is empty and can go", func() bool { _, err := a.Reload(t.Context()); return err == nil })
	if status := post("kart"); status != http.StatusNotFound {
		t.Errorf("kart is removed: %d", status)
	}
}
