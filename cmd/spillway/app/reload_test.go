package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/ready"
)

// startReloading starts an App that reloads a file; write replaces it.
func startReloading(t *testing.T, file string) (a *App, write func(string), logs *observer.ObservedLogs) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "spillway.yaml")
	write = func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(file)
	load := func() (*config.Config, error) {
		cfg, err := config.Default()
		if err != nil {
			return nil, err
		}
		cfg.File, cfg.Listen, cfg.AdminListen = path, "127.0.0.1:0", "127.0.0.1:0"
		return cfg, loadAndTry(cfg, config.Process{LookupEnv: os.LookupEnv}, sinkRegistry())
	}
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	core, logs := observer.New(zap.InfoLevel)
	if a, err = NewApp(cfg, sinkRegistry(), zap.New(core)); err != nil {
		t.Fatal(err)
	}
	a.onReload(load, func(*config.Config) {})
	if err := a.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	usable(t, a)
	return a, write, logs
}

// usable waits until the store has answered: on a busy machine the check at the start may be
// too late, and a reload is rejected until the next one.
func usable(t *testing.T, a *App) {
	t.Helper()
	eventually(t, "the store is usable", func() bool { return a.current.Load().watch.Ready() == nil })
}

// reload is Reload, again where the store did not answer it in time.
func reload(t *testing.T, a *App) (changed []string, err error) {
	t.Helper()
	eventually(t, "the store answers a reload", func() bool {
		changed, err = a.Reload(t.Context())
		return !errors.Is(err, partition.ErrUnavailable) && !errors.Is(err, partition.ErrUnknown)
	})
	return changed, err
}

func TestReloadNamesWhatChangedAndHidesSecrets(t *testing.T) {
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("hunter2"), 0o600); err != nil {
		t.Fatal(err)
	}
	const first = "namespaces:\n  redis: {sink: \"null:\"}\n  kart: {sink: \"http://u:hunter1@h.example/hook\", capacity: 5}\n"
	a, write, logs := startReloading(t, first)
	rewrite := func(config string, want ...string) {
		t.Helper()
		write(config)
		got, err := reload(t, a)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	rewrite(first)
	withSecret := "namespaces:\n  kart: {sink: \"http://u:{file:" + secret + "}@h.example/hook\", capacity: 6, tokens: [\"" + hashText("t") + "\"]}\n"
	rewrite(withSecret, "namespaces.kart.sink", "namespaces.kart.capacity", "namespaces.kart.tokens", "namespaces.redis")
	rewrite(withSecret)
	if err := os.WriteFile(secret, []byte("hunter3"), 0o600); err != nil {
		t.Fatal(err)
	}
	rewrite(withSecret, "namespaces.kart.sink")
	rewrite(withSecret+"mask_fields: [nick]\nbatch: 5\n", "mask_fields", "namespaces.kart.batch")
	withSink := withSecret + "mask_fields: [nick]\nbatch: 5\nsinks: {crm: \"http://u:{file:" + secret + "}@h.example/crm\"}\n"
	rewrite(withSink, "sinks")
	if err := os.WriteFile(secret, []byte("hunter4"), 0o600); err != nil {
		t.Fatal(err)
	}
	rewrite(withSink, "namespaces.kart.sink", "sinks.crm")
	var text strings.Builder
	for _, e := range logs.All() {
		fmt.Fprintln(&text, e.Message, e.ContextMap())
	}
	for _, want := range []string{"configuration unchanged", "namespaces.kart.capacity: 5 → 6", "namespaces.redis: removed", "namespaces.kart.sink: a secret in it", "namespaces.kart.batch: 128 → 5"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("%q is missing in %s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "hunter") {
		t.Errorf("a secret is in the log: %s", text.String())
	}
}

func TestReloadRejectsWhatNeedsARestart(t *testing.T) {
	t.Parallel()
	a, write, _ := startReloading(t, "sink: \"null:\"\n")
	before := a.current.Load()
	write("sink: \"null:\"\nprefix: other\nlog_format: json\nworkers: 5\nadmin_tls_cert: /nowhere\n")
	_, err := reload(t, a)
	if err == nil || strings.Contains(err.Error(), "restart") {
		t.Errorf("a file with mistakes: %v", err)
	}
	write("sink: \"null:\"\nprefix: other\nlog_format: json\nworkers: 5\n")
	_, err = reload(t, a)
	for _, want := range []string{":2: prefix: sw → other: restart", ":3: log_format: auto → json: restart"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
	if err != nil && strings.Contains(err.Error(), "workers") || a.current.Load() != before {
		t.Errorf("got %v", err)
	}
}

func TestReloadByTheAdminPort(t *testing.T) {
	t.Parallel()
	a, write, _ := startReloading(t, "sink: \"null:\"\n")
	post := func() (status int, body string) {
		resp, err := http.Post("http://"+a.AdminListen+"/api/v1/reload", "application/json", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(text)
	}
	if status, body := post(); status != 200 || strings.TrimSpace(body) != `{"changed":[]}` {
		t.Errorf("nothing changed: %d %s", status, body)
	}
	write("capcity: 5\nlnger: 5s\n")
	var answer struct{ Message string }
	if status, body := post(); status != 400 || json.Unmarshal([]byte(body), &answer) != nil || strings.Count(answer.Message, "did you mean") != 2 {
		t.Errorf("a bad file: %d %s", status, body)
	}
	write("sink: \"null:\"\nadmin_token: \"" + hashText("root") + "\"\n")
	if status, body := post(); status != 200 || !strings.Contains(body, `"admin_token"`) {
		t.Errorf("a good file: %d %s", status, body)
	}
	if status, _ := post(); status != 401 {
		t.Errorf("the new token is not asked for: %d", status)
	}
}

// The number of shards is fixed at first use: a file with another one says what to do, and changes nothing.
func TestAReloadWithAnotherNumberOfShardsIsRejected(t *testing.T) {
	t.Parallel()
	const file = "sink: \"null:\"\nnamespaces: {kart: {shards: %s}, mail: {kind: queue, shards: %s}}\n"
	redis := "redis: " + redistest.Start(t, "--appendonly", "yes").URL() + "\n"
	a, write, _ := startReloading(t, redis+fmt.Sprintf(file, "2", "2"))
	for _, other := range [][2]string{{"3", "2"}, {"2", "1"}} {
		write(redis + fmt.Sprintf(file, other[0], other[1]))
		awaitReload(t, a, "the number is fixed at first use, which was with 2")
	}
	write(redis + fmt.Sprintf(file, "auto", "auto"))
	awaitReload(t, a, "")
	if g := a.current.Load(); g.store.Namespace("kart").Shards() != 2 || g.jobs["default"].Namespace("mail").ShardCount() != 2 {
		t.Error("auto is not what the store has")
	}
}

func TestAReloadDuringTheStopEndsSoon(t *testing.T) {
	t.Parallel()
	a, write, _ := startReloading(t, "sink: \"null:\"\n")
	write("sink: \"null:\"\nbatch: 5\n")
	var running sync.WaitGroup
	for range 4 {
		running.Go(func() { _, _ = a.Reload(t.Context()) })
	}
	if err := a.Stop(t.Context()); err != nil {
		t.Error(err)
	}
	running.Wait()
	if _, err := a.Reload(t.Context()); !errors.Is(err, ready.ErrShuttingDown) {
		t.Errorf("after the stop: %v", err)
	}
}

func TestTheServiceManagerIsTold(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	env := func(name string) (string, bool) { return path, name == "NOTIFY_SOCKET" }
	go serviceManager(env).notify("READY=1")
	_ = l.SetReadDeadline(time.Now().Add(10 * time.Second))
	var got [20]byte
	if n, err := l.Read(got[:]); string(got[:n]) != "READY=1" || err != nil {
		t.Errorf("got %q, %v", got[:n], err)
	}
	serviceManager(func(string) (string, bool) { return "", false }).notify("READY=1")
	serviceManagerSocket(path + "none").notify("READY=1")
}

// What is fixed when a namespace is first used, after a restart: nobody would serve what lies elsewhere.
func TestARestartRejectsWhatWouldLeaveDataBehind(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	args := func(text string) []string {
		return []string{"--redis=" + redis.URL(), "--role=ingest", "--config", writeFile(t, "spillway.yaml", "pools: {default: {volatile: true}}\n"+text)}
	}
	const first = "namespaces:\n  kart: {shards: 2}\n  mail: {kind: queue, shards: 2}\n"
	a := startApp(t, args(first)...)
	for _, path := range []string{"kart/p", "mail/q"} {
		res, err := a.http.Post("http://"+a.Listen+"/v1/"+path, "", strings.NewReader("1"))
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(path, res, err)
		}
		_ = res.Body.Close()
	}
	a.stop(t)
	for name, c := range map[string]struct{ file, want string }{
		"queues where a buffer was":  {strings.Replace(first, "kart: {", "kart: {kind: queue, ", 1), "the store holds a buffer under this name"},
		"a buffer where queues were": {strings.Replace(first, "kind: queue, ", "", 1), "the store holds queues under this name"},
		"more shards of a buffer":    {strings.Replace(first, "kart: {shards: 2", "kart: {shards: 3", 1), "fixed at first use, which was with 2"},
		"more shards of queues":      {strings.Replace(first, "queue, shards: 2", "queue, shards: 3", 1), "fixed at first use, which was with 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := newTestApp(t, args(c.file)...).Start(t.Context())
			if !errors.Is(err, partition.ErrIncompatible) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

const queuesFile = `
admin_token: "%[1]s"
pools: {default: {volatile: true}}
admin_tokens: [{name: bob, role: viewer, hash: "%[2]s"}]
namespaces:
  events: {sink: "null:"}
  mail: {kind: queue, shards: 2, tokens: [{hash: "%[3]s", name: crm, produce: 1000/min}]}
  open: {kind: queue}
`

func TestTheFileTakesPrecedenceOverWhatIsMadeAtRunTime(t *testing.T) {
	t.Parallel()
	c, err := loadConfig(t, nil, nil, fmt.Sprintf(queuesFile, hashText("root"), hashText("bob"), hashText("crm")))
	if err != nil {
		t.Fatal(err)
	}
	admins, err := c.AdminAccess()
	if err != nil {
		t.Fatal(err)
	}
	f := controlFile(c, admins)
	if len(f.Namespaces) != 2 || f.Namespaces[0].Name != "mail" || f.Namespaces[0].Pool != "default" || f.Namespaces[0].Policy.Shards != 2 {
		t.Errorf("got namespaces %+v", f.Namespaces)
	}
	if fmt.Sprint(f.Buffers, f.Open, f.Pools, f.Volatile) != "[events] [open] [default] [default]" {
		t.Errorf("got %v %v %v %v", f.Buffers, f.Open, f.Pools, f.Volatile)
	}
	if len(f.Tokens) != 1 || f.Tokens[0].Namespace != "mail" || f.Tokens[0].Produce.String() != "1000/min" {
		t.Errorf("got tokens %+v", f.Tokens)
	}
	if len(f.Admins) != 2 || f.Admins[0].Role != "admin" || f.Admins[1].Name != "bob" || f.Admins[1].Role != "viewer" {
		t.Errorf("got admins %+v", f.Admins)
	}
	reg := newRegistry()
	ctl := control.Open("sw", reg, zap.NewNop())
	s := ctl.Preview(f)
	if tokens := adminTokens(s); len(tokens) != 2 || tokens[0] != admins[0] || tokens[1] != admins[1] {
		t.Errorf("got %+v, want %+v", tokens, admins)
	}
	in := ingest.Config{Tokens: map[string][]ingest.Token{}}
	addQueueTokens(&in, s)
	if _, known := in.Tokens["open"]; !known || len(in.Tokens["open"]) != 0 || len(in.Closed) != 0 {
		t.Errorf("an open namespace of the file: got %v, closed %v", in.Tokens, in.Closed)
	}
	if mail := in.Tokens["mail"]; len(mail) != 1 || mail[0].Name != "crm" || mail[0].Limiters.Produce == nil {
		t.Errorf("got %+v", mail)
	}
	if p := policiesOf(s, "default"); len(p) != 2 || p["mail"].Shards != 2 || len(policiesOf(s, "fast")) != 0 {
		t.Errorf("got %+v", p)
	}
}

// awaitReload reloads until that is rejected with an error, or accepted where that is empty: on a busy
// machine the store may not answer in time.
func awaitReload(t *testing.T, a *App, want string) {
	t.Helper()
	eventually(t, "a reload with the error "+want, func() bool {
		_, err := reload(t, a)
		return err == nil && want == "" || err != nil && want != "" && strings.Contains(err.Error(), want)
	})
}

// A rule made at run time counts until somebody deletes it: a reload is rejected where it would not.
func TestAReloadDropsNoRuleMadeAtRunTime(t *testing.T) {
	t.Parallel()
	const spread = "sink: \"null:\"\nnamespaces: {mail: {kind: queue, shards: 4, spread: {bulk: 4}}}\n"
	full := strings.Repeat("{match: q, tries: 2}, ", job.MaxRules)
	for name, row := range map[string]struct{ file, want string }{
		"a spread":       {spread, `namespaces.mail: rule "*" was made at run time and would not count any more: concurrency`},
		"too many rules": {"sink: \"null:\"\nnamespaces: {mail: {kind: queue, shards: 4, queues: [" + full + "]}}\n", "256 rules are the most"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, write, _ := startReloading(t, strings.Replace(spread, "spread: {bulk: 4}", "max_jobs: 9", 1))
			if err := a.control.PutRule(t.Context(), control.Rule{Namespace: "mail", Rule: job.Rule{Match: "*", Concurrency: 10}}); err != nil {
				t.Fatal(err)
			}
			before := a.current.Load()
			write(row.file)
			awaitReload(t, a, row.want)
			if a.current.Load() != before {
				t.Error("something was replaced")
			}
			if err := a.control.DeleteRule(t.Context(), "mail", "*"); err != nil {
				t.Fatal(err)
			}
			awaitReload(t, a, "")
		})
	}
}

// A start has to succeed. A rule that does not count since keeps no reload from being used.
func TestAReloadGoesOnBesideARuleThatDidNotCountBefore(t *testing.T) {
	t.Parallel()
	store := "redis: " + redistest.Start(t, "--appendonly", "yes").URL() + "\nsink: \"null:\"\nnamespaces: {mail: {kind: queue, shards: 4%s}}\n"
	a, _, _ := startReloading(t, fmt.Sprintf(store, ""))
	if err := a.control.PutRule(t.Context(), control.Rule{Namespace: "mail", Rule: job.Rule{Match: "*", Concurrency: 10}}); err != nil {
		t.Fatal(err)
	}
	a, write, _ := startReloading(t, fmt.Sprintf(store, ", spread: {bulk: 4}"))
	if unused := a.control.Snapshot().UnusedRules("mail"); len(unused) != 1 {
		t.Fatalf("unused: %v", unused)
	}
	write(fmt.Sprintf(store, ", spread: {bulk: 4}, max_jobs: 9"))
	awaitReload(t, a, "")
}

// Whatever holds a claim of push back, it follows the rules of the control document.
func TestPushFollowsARuleThatChangesAtRunTime(t *testing.T) {
	t.Parallel()
	got := make(chan struct{}, 9)
	target := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { got <- struct{}{} }))
	defer target.Close()
	a, _, _ := startReloading(t, "sinks: {crm: \""+target.URL+"\"}\nnamespaces: {mail: {kind: queue, push: [{match: q, sink: crm}]}}\n")
	limit := func(rate string) {
		t.Helper()
		r := control.Rule{Namespace: "mail", Rule: job.Rule{Match: "q"}}
		if err := errors.Join(r.Rate.UnmarshalText([]byte(rate)), a.control.PutRule(t.Context(), r)); err != nil {
			t.Fatal(err)
		}
	}
	limit("1/h")
	store := a.current.Load().jobs["default"]
	p := &job.Publish{Namespace: store.Namespace("mail"), Queue: "q", Tries: 1, Messages: []job.Message{{Payload: []byte("1")}, {Payload: []byte("2")}}}
	store.Run(t.Context(), store.NewLane(), &job.Batch{Publishes: []*job.Publish{p}})
	<-got
	limit("100/s")
	select {
	case <-got:
	case <-time.After(20 * time.Second):
		t.Error("the next job waits for the rate of before")
	}
}
