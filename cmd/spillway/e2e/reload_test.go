package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

// reloading is a server with a configuration file and a log file.
type reloading struct {
	*server
	t         *testing.T
	file, log string
}

func serveFile(t *testing.T, config string, args ...string) *reloading {
	t.Helper()
	dir := t.TempDir()
	r := &reloading{t: t, file: filepath.Join(dir, "spillway.yaml"), log: filepath.Join(dir, "log")}
	r.write(config)
	log, err := os.Create(r.log)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	cmd := exec.Command(binary)
	cmd.Stderr = log
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(r.logged())
		}
	})
	r.server = serveBy(t, cmd, append([]string{"--config", r.file}, args...)...).ready(200)
	return r
}

// write replaces the configuration file, as a careful operator does.
func (r *reloading) write(config string) {
	r.t.Helper()
	if err := os.WriteFile(r.file+".new", []byte(config), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.file+".new", r.file); err != nil {
		r.t.Fatal(err)
	}
}

func (r *reloading) logged() string {
	text, err := os.ReadFile(r.log)
	if err != nil {
		r.t.Fatal(err)
	}
	return string(text)
}

// hangUp sends SIGHUP and waits for the line that says how the reload went. It repeats one for which the store
// was too slow, on a machine that stood still.
func (r *reloading) hangUp(line string) (text string) {
	r.t.Helper()
	send := func() (before int) {
		before = len(r.logged())
		if err := r.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			r.t.Fatal(err)
		}
		return before
	}
	before := send()
	eventually(r.t, "the log says "+line, func() bool {
		text = r.logged()[before:]
		if strings.Contains(text, "configuration not reloaded") && (strings.Contains(text, "store unavailable") || strings.Contains(text, "outcome unknown")) {
			before = send()
			return false
		}
		return strings.Contains(text, line)
	})
	return text
}

func tokenHash(token string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(token))) }

func TestSIGHUPReloadsAGoodFileAndRejectsABadOne(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := func(rest string) string {
		return "redis: \"embedded:\"\nlinger: 10ms\nnamespaces:\n  default:\n    sink: \"file://" + dir + "/a.ndjson\"\n" + rest
	}
	r := serveFile(t, config(""))
	if a := r.post("/v1/default/p", "application/json", `{"n":1}`); a.status != 200 {
		t.Fatal(a.body)
	}
	eventually(t, "the entry is delivered", func() bool { return r.ledger().Delivered == 1 })

	text := r.hangUp("configuration unchanged")
	if strings.Contains(text, "configuration reloaded") {
		t.Error(text)
	}
	r.write(config("    capcity: 5\n    batch: 0\nworkers: many\n"))
	text = r.hangUp("configuration not reloaded")
	for _, want := range []string{":6: namespaces.default.capcity: unknown key: did you mean capacity?", ":7: namespaces.default.batch: 0 is not usable", `:8: workers: \"many\" is not a whole number`} {
		if strings.Count(text, "\n") != 1 || !strings.Contains(text, want) {
			t.Errorf("%q is not in the one line %s", want, text)
		}
	}
	if r.metric("spillway_config_last_reload_successful") != 0 {
		t.Error("no metric of the failed reload")
	}
	eventually(t, "the audit trail has both reloads", func() bool {
		resp, err := http.Get("http://" + r.admin + "/api/v1/audit")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		trail, _ := io.ReadAll(resp.Body)
		return strings.Count(string(trail), `"name":"SIGHUP","role":"admin","action":"reload"`) == 2 && strings.Contains(string(trail), "did you mean capacity?")
	})
	for rest, want := range map[string]string{
		"prefix: other\n": "prefix: sw → other: restart to change it",
		"    shards: 3\n": "shards is 3, but the number is fixed at first use, which was with 1",
	} {
		r.write(config(rest))
		if text = r.hangUp("configuration not reloaded"); !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
	r.write(config("    capacity: 5000\n    tokens: [\"" + tokenHash("t") + "\"]\n  chess: {sink: \"null:\"}\nlog_level: debug\n"))
	text = r.hangUp("configuration reloaded")
	for _, want := range []string{`"log_level: info → debug"`, `"namespaces.chess: added"`, `"namespaces.default.capacity: 10000 → 5000"`, `"namespaces.default.tokens"`} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in %s", want, text)
		}
	}
	if r.metric("spillway_config_last_reload_successful") != 1 {
		t.Error("no metric of the reload")
	}
	if a := r.post("/v1/default/p", "application/json", `{"n":2}`); a.status != 401 {
		t.Errorf("without a token: %d %s", a.status, a.body)
	}
	if a := r.post("/v1/chess/p", "application/json", `{"n":2}`); a.status != 200 {
		t.Errorf("a namespace that was added: %d %s", a.status, a.body)
	}
	if l := r.ledger(); l.Accepted != 1 || l.Delivered != 1 {
		t.Errorf("the embedded store is another: %+v", l)
	}
	eventually(t, "it is delivered", func() bool {
		return r.metric(`spillway_account_entries_total{namespace="chess",outcome="delivered"}`) == 1
	})
	r.write(config(""))
	if text := r.hangUp("configuration reloaded"); !strings.Contains(text, `"namespaces.chess: removed"`) {
		t.Error(text)
	}
	if a := r.post("/v1/chess/p", "application/json", `{"n":2}`); a.status != 404 {
		t.Errorf("a namespace that was removed: %d %s", a.status, a.body)
	}
	if code := r.terminate(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

func TestANamespaceWithEntriesIsNotRemoved(t *testing.T) {
	t.Parallel()
	r := serveFile(t, "sink: \"http://"+redistest.FreeAddr(t)+"/\"\nlinger: 10ms\nnamespaces: {default: {}, kart: {}}\n")
	if a := r.post("/v1/kart/p", "application/x-ndjson", "1\n2\n3\n"); a.status != 200 {
		t.Fatal(a.body)
	}
	r.write("sink: \"null:\"\nnamespaces: {default: {}}\n")
	if text := r.hangUp("configuration not reloaded"); !strings.Contains(text, "namespaces.kart: removed, and 3 entries wait in it") {
		t.Error(text)
	}
	r.write("sink: \"null:\"\nnamespaces: {default: {}, kart: {}}\n")
	r.hangUp("configuration reloaded")
	eventually(t, "they are delivered", func() bool {
		resp, err := http.Get("http://" + r.admin + "/api/v1/namespaces/kart")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return bytes.Contains(body, []byte(`"delivered":3`))
	})
	r.write("sink: \"null:\"\nnamespaces: {default: {}}\n")
	r.hangUp("configuration reloaded")
}

// Clients send all the time, most over connections that stay open, one with a new one each
// time. Sinks, tokens and limits change 20 times, and one file is bad.
func TestReloadsUnderLoadLoseNothingAndRejectNobody(t *testing.T) {
	t.Parallel()
	store := redistest.Start(t)
	dir := t.TempDir()
	const reloads, bad = 20, 9
	config := func(i int) string {
		sink := fmt.Sprintf("file://%s/%d.ndjson", dir, i%3)
		if i%4 == 3 {
			sink += "?max_size=1MB"
		}
		return fmt.Sprintf("sink: %q\nlinger: %dms\nworkers: %d\nbatch: %d\nmax_conns: %d\nmax_body: %dKiB\nlog_level: %s\nnamespaces:\n  default:\n    capacity: 1000000\n    tokens: [%q, %q]\n  extra%d: {sink: \"null:\"}\n",
			sink, 5+i, 4+i%5, 50+i, 1000+i, 512+i, []string{"info", "debug"}[i%2], tokenHash("load"), tokenHash(fmt.Sprint("t", i)), i%2)
	}
	r := serveFile(t, config(0), "--redis", store.URL())
	var acked, unknown, requests, late atomic.Int64 // entries, entries; requests, and those answered 503
	still := stoodStill(t)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	var load sync.WaitGroup
	send := func(client *http.Client, id string) bool {
		requests.Add(1)
		req, err := http.NewRequest(http.MethodPost, "http://"+r.data+"/v1/default/p"+id[:1], strings.NewReader(fmt.Sprintf("{\"id\":%q}\n{\"id\":%q}\n", id+"a", id+"b")))
		if err != nil {
			t.Error(err)
			return false
		}
		req.Header.Set("Content-Type", "application/x-ndjson")
		req.Header.Set("Authorization", "Bearer load")
		resp, err := client.Do(req)
		if err != nil {
			t.Errorf("a request failed: %v", err)
			return false
		}
		defer resp.Body.Close()
		var a struct{ Accepted, Rejected int }
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode == http.StatusServiceUnavailable {
			late.Add(1)
			unknown.Add(2)
			return true
		}
		if err := json.Unmarshal(body, &a); err != nil || resp.StatusCode != 200 || a.Accepted != 2 {
			t.Errorf("a request was rejected: %d %s", resp.StatusCode, body)
			return false
		}
		acked.Add(2)
		return true
	}
	for i := range 4 {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: i == 3}, Timeout: 20 * time.Second}
		load.Go(func() {
			defer client.CloseIdleConnections()
			for n := 0; ctx.Err() == nil && send(client, fmt.Sprint(i, "-", n, "-")); n++ {
				time.Sleep(time.Millisecond) // a rate, not a wait
			}
		})
	}
	for i := 1; i <= reloads; i++ {
		if i == bad {
			r.write(config(i) + "nonsense: 1\n")
			r.hangUp("configuration not reloaded")
		}
		r.write(config(i))
		r.hangUp("configuration reloaded")
		seen := requests.Load()
		eventually(t, "requests go on", func() bool { return requests.Load() > seen+20 || t.Failed() })
		switch status := r.try("t" + fmt.Sprint(i)); status {
		case http.StatusOK:
			acked.Add(1)
		case http.StatusServiceUnavailable:
			late.Add(1)
			unknown.Add(1)
		default:
			t.Errorf("the new token is answered %d", status)
		}
		if status := r.try("t" + fmt.Sprint(i-1)); status != 401 {
			t.Errorf("the revoked token is answered %d", status)
		}
	}
	end()
	load.Wait()
	eventually(t, "all is delivered", func() bool { return r.ledger().Buffered == 0 })
	if late.Load() > 0 && !still() {
		t.Errorf("%d requests were answered 503, and the machine never stood still", late.Load())
	}
	if l := r.ledger(); l.Accepted < acked.Load() || l.Accepted > acked.Load()+unknown.Load() || l.Delivered != l.Accepted {
		t.Errorf("acked %d, unknown %d, the ledger has %+v", acked.Load(), unknown.Load(), l)
	}
	if resp, err := http.Get("http://" + r.admin + "/api/v1/namespaces/default?audit=1"); err != nil {
		t.Error(err)
	} else if body, _ := io.ReadAll(resp.Body); !bytes.Contains(body, []byte(`"residual":0`)) {
		t.Errorf("got %s", body)
	}
	if code := r.terminate(); code != 0 {
		t.Errorf("exit %d", code)
	}
	seen, lines := map[string]bool{}, 0
	files, _ := filepath.Glob(filepath.Join(dir, "*.ndjson"))
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			var e struct{ Data struct{ ID string } }
			if err := json.Unmarshal(line, &e); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			lines++
			if e.Data.ID != "" {
				seen[e.Data.ID] = true
			}
		}
	}
	if want := int(acked.Load()) - reloads; len(seen) < want || len(seen) > want+int(unknown.Load()) {
		t.Errorf("%d of %d entries are in the files, in %d lines of %d files", len(seen), want, lines, len(files))
	}
	t.Logf("%d requests, %d entries, %d lines", requests.Load(), acked.Load(), lines)
}

// try sends one entry with a token, and returns the status.
func (r *reloading) try(token string) int {
	r.t.Helper()
	req, err := http.NewRequest(http.MethodPost, "http://"+r.data+"/v1/default/token", strings.NewReader("{}"))
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// The delay is longer than any test, whose end kills the process.
func TestTheShutdownDelayLetsLoadBalancersNotice(t *testing.T) {
	t.Parallel()
	s := serve(t, "--sink", "null:", "--shutdown-delay", "1h").ready(200)
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.ready(503)
	if a := s.post("/v1/default/p", "application/json", `{}`); a.status != 200 {
		t.Errorf("after /readyz fails: %d %s", a.status, a.body)
	}
}
