package app

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/lifecycletest"
)

// The admin port answers before the rest has started.
func TestAReloadDuringTheStartIsRejected(t *testing.T) {
	t.Parallel()
	load := func(batch int) (*config.Config, error) {
		cfg, err := config.Default()
		if err != nil {
			return nil, err
		}
		cfg.Listen, cfg.AdminListen, cfg.Default.Sink, cfg.Default.Batch = "127.0.0.1:0", "127.0.0.1:0", "null:", batch
		return cfg, loadAndTry(cfg, config.Process{LookupEnv: os.LookupEnv}, sinkRegistry())
	}
	cfg, err := load(5)
	if err != nil {
		t.Fatal(err)
	}
	var a *App
	var during error
	core, _ := observer.New(zap.InfoLevel)
	hooked := zap.New(core, zap.Hooks(func(e zapcore.Entry) error {
		if e.Message == "started" {
			_, during = a.Reload(t.Context())
		}
		return nil
	}))
	if a, err = NewApp(cfg, sinkRegistry(), hooked); err != nil {
		t.Fatal(err)
	}
	a.onReload(func() (*config.Config, error) { return load(6) }, func(*config.Config) {})
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if during == nil {
		t.Error("a reload ran during the start")
	}
	usable(t, a)
	if changed, err := reload(t, a); err != nil || len(changed) != 1 {
		t.Errorf("after the start: %q, %v", changed, err)
	}
	if err := a.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestAStopDuringAReloadLeavesWritesTheirTime(t *testing.T) {
	t.Parallel()
	for _, stop := range []string{"stop", "not ready first"} {
		t.Run(stop, func(t *testing.T) {
			t.Parallel()
			began, release, cut := make(chan struct{}, 10), make(chan struct{}), make(chan struct{}, 10)
			target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				began <- struct{}{}
				select {
				case <-release:
				case <-r.Context().Done():
					cut <- struct{}{}
				}
			}))
			defer target.Close()
			base := fmt.Sprintf("sink: %q\nlinger: 0s\nsink_timeout: 1m\nlease: 2m\nshutdown_timeout: 1m\n", target.URL)
			a, write, _ := startReloading(t, base)
			resp, err := http.Post("http://"+a.Listen+"/v1/default/kart", "application/json", strings.NewReader("1"))
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			<-began
			before := a.current.Load()
			write(base + "workers: 3\n")
			var running sync.WaitGroup
			running.Go(func() {
				for t.Context().Err() == nil && a.current.Load() == before { // a machine that stands still may fail a check
					if _, err := a.Reload(t.Context()); err != nil {
						t.Log(err)
					}
				}
			})
			eventually(t, "the next generation takes over", func() bool { return a.current.Load() != before })
			running.Go(func() {
				if stop != "stop" {
					a.NotReady()
				}
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if err := a.Stop(ctx); err != nil {
					t.Error(err)
				}
			})
			eventually(t, "not ready", func() bool { return a.current.Load().watch.Ready() != nil })
			select {
			case <-cut:
				t.Error("the write was cut short")
			case <-time.After(300 * time.Millisecond):
			}
			close(release)
			running.Wait()
			if l := a.Final["default"].Ledger; l.Delivered != 1 || l.Buffered != 0 {
				t.Errorf("the final ledger is %+v", l)
			}
		})
	}
}

func TestAReplayGoesOnDuringAReload(t *testing.T) {
	t.Parallel()
	rejecting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnprocessableEntity) }))
	defer rejecting.Close()
	base := fmt.Sprintf("sink: %q\nlinger: 0s\n", rejecting.URL)
	a, write, _ := startReloading(t, base)
	post := func(address, path, body string) string {
		resp, err := http.Post("http://"+address+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return ""
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(string(text)))
	}
	ledger := func() partition.Ledger {
		store := a.current.Load().store
		o, err := store.Overview(t.Context(), store.Namespace("default"))
		if err != nil {
			t.Error(err)
		}
		return o.Ledger
	}
	for i := range 3 {
		post(a.Listen, "/v1/default/kart", fmt.Sprint(i))
	}
	eventually(t, "three dead letters", func() bool { return ledger().Dead == 3 })
	var replaying sync.WaitGroup
	replaying.Go(func() {
		got := post(a.AdminListen, "/api/v1/namespaces/default/dead/replay", `{"confirm":3,"per_second":2}`)
		if !strings.Contains(got, `"replayed":3,"failed":0`) {
			t.Errorf("got %s", got)
		}
	})
	eventually(t, "the first is replayed", func() bool { return ledger().Accepted >= 4 })
	write(base + "batch: 5\n")
	if _, err := reload(t, a); err != nil {
		t.Error(err)
	}
	replaying.Wait()
}

func TestAServiceManagerThatReadsNothingIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	address := &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s"), Net: "unixgram"}
	l, err := net.ListenUnixgram("unixgram", address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	full, err := net.DialUnix("unixgram", nil, address)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	for err == nil {
		_ = full.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		_, err = full.Write([]byte("READY=1"))
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		serviceManagerSocket(address.Name).notify("STOPPING=1")
	}()
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		t.Error("the service waits for its manager")
	}
}

// Each sink is handed over by itself: one that hangs has its shutdown_timeout, and the others
// go on meanwhile.
func TestASlowSinkHoldsUpNoOtherDuringAReload(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	var hanging sync.WaitGroup
	hanging.Add(2)
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		hanging.Done()
		<-release
	}))
	defer slow.Close()
	defer free()
	delivered := make(chan string, 10)
	quick := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		delivered <- r.URL.Path
	}))
	defer quick.Close()
	base := fmt.Sprintf(`linger: 0s
shutdown_timeout: 1m
sink_timeout: 50s
lease: 2m
namespaces:
  stuck: {sink: %[1]q}
  well: {sink: "%[2]s/buffer"}
  mail:
    kind: queue
    push:
    - {match: hangs, sink: slow}
    - {match: well, sink: quick}
sinks:
  slow: %[1]q
  quick: %[2]s/queue
`, slow.URL, quick.URL)
	a, write, _ := startReloading(t, base)
	post := func(path string) {
		resp, err := http.Post("http://"+a.Listen+"/v1/"+path, "application/json", strings.NewReader("1"))
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode/100 != 2 {
			t.Fatalf("%s: %s", path, resp.Status)
		}
	}
	post("stuck/p")
	post("mail/hangs")
	hanging.Wait()
	before := a.current.Load()
	write(base + "workers: 3\n")
	var running sync.WaitGroup
	running.Go(func() {
		for { // on a busy machine the store may not answer in time
			if _, err := a.Reload(t.Context()); err == nil || t.Context().Err() != nil {
				return
			}
		}
	})
	eventually(t, "the next generation takes over", func() bool { return a.current.Load() != before })
	post("well/p")
	post("mail/well")
	got := map[string]bool{}
	eventually(t, "entries and jobs for the other sinks are delivered", func() bool {
		select {
		case path := <-delivered:
			got[path] = true
		default:
		}
		return got["/buffer"] && got["/queue"]
	})
	free()
	running.Wait()
}

func TestAppKeepsTheLifecycleContract(t *testing.T) {
	t.Parallel()
	lifecycletest.Run(t, func(t *testing.T) lifecycletest.Component { return aliveApp{newTestApp(t)} })
}

type aliveApp struct{ *testApp }

func (a aliveApp) Alive(ctx context.Context) error { return live(ctx, a.Listen) }

// live asks a port for /livez.
func live(ctx context.Context, address string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/livez", nil)
	if err != nil {
		return err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("livez: %s", res.Status)
	}
	return nil
}

// A name is resolved while the service starts; that is no failure of the admin port.
func TestASignalWhileServeStartsIsNoFailure(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	args := []string{"serve", "--listen=localhost:0", "--admin-listen=localhost:0", "--sink=null:"}
	if code := run(ctx, args, config.Process{Stdin: &bytes.Buffer{}, Stdout: &stdout, Stderr: &stderr, LookupEnv: func(string) (string, bool) { return "", false }}); code != exitOK {
		t.Errorf("exit %d, %s", code, &stderr)
	}
}
