//go:build ui

package console

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/lua/redistest"
)

// binary is a built spillway, which TestMain removes.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "spillway-ui")
	if err != nil {
		return "", err
	}
	return proc.Build(dir, "./cmd/spillway")
})

func TestMain(m *testing.M) {
	code := m.Run()
	if path, _ := binary(); path != "" {
		_ = os.RemoveAll(filepath.Dir(path))
	}
	os.Exit(code)
}

// spillway is a running program with the embedded store, whose namespace kart delivers to a
// receiver that answers as the test says.
type spillway struct {
	t           *testing.T
	data, admin string       // URLs
	status      atomic.Int64 // what the receiver answers
	received    atomic.Int64 // batches the receiver took
}

// roles are also the tokens.
var roles = []string{"viewer", "operator", "admin"}

// serve starts it. settings are lines of the namespace kart, and flags.
func serve(t *testing.T, settings ...string) *spillway {
	t.Helper()
	s := &spillway{t: t}
	s.status.Store(http.StatusOK)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		status := int(s.status.Load())
		if status == http.StatusOK {
			s.received.Add(1)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "no such lap")
	}))
	t.Cleanup(receiver.Close)
	var config strings.Builder
	fmt.Fprintf(&config, "admin_tokens:\n")
	for _, role := range roles {
		fmt.Fprintf(&config, "  - {name: %s-name, role: %s, hash: \"sha256:%x\"}\n", role, role, sha256.Sum256([]byte(role)))
	}
	fmt.Fprintf(&config, "namespaces:\n  kart:\n    linger: 20ms\n    backoff_base: 50ms\n    backoff_max: 200ms\n    sink: %q\n", receiver.URL)
	args, queue := []string{"serve"}, ""
	for _, setting := range settings {
		if name, ok := strings.CutPrefix(setting, "--queue="); ok { // a namespace of kind queue, which everybody may use
			queue = "  " + name + ": {kind: queue, max_queues: 200000, queues: [{match: \"out-*\", keep_trace: 1h}, {match: \"kept*\", keep_acked: 1h}]}\n"
			continue
		}
		if strings.HasPrefix(setting, "--") {
			args = append(args, setting)
			continue
		}
		fmt.Fprintf(&config, "    %s\n", setting)
	}
	config.WriteString(queue)
	path := filepath.Join(t.TempDir(), "spillway.yaml")
	if err := os.WriteFile(path, []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	data, admin := redistest.FreeAddr(t), redistest.FreeAddr(t)
	s.data, s.admin = "http://"+data, admin
	log := &bytes.Buffer{}
	cmd := exec.Command(program, append(args, "--config", path, "--listen", data, "--admin-listen", admin)...)
	cmd.Stderr = log
	proc.KillWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("its log:\n%s", log)
		}
	})
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); ; {
		resp, err := http.Get("http://" + admin + "/readyz")
		if err == nil {
			_ = resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return s
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("it is not ready: %v", err)
		}
		<-tick.C
	}
}

// console is its page for a role.
func (s *spillway) console(role string) string {
	return fmt.Sprintf("http://user:%s@%s/", role, s.admin)
}

// report sends one event.
func (s *spillway) report(partition, id, data string) {
	s.t.Helper()
	body := fmt.Sprintf(`[{"id":%q,"data":%s}]`, id, data)
	resp, err := http.Post(s.data+"/v1/kart/"+partition, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(resp.Body)
		s.t.Fatalf("the report is answered %d: %s", resp.StatusCode, said)
	}
}

// row is the part of the page that is about a partition.
func row(partition string) string {
	return fmt.Sprintf(`[...document.querySelectorAll(".partitions tbody tr")].find((r) => r.querySelector("th")?.innerText.startsWith(%q))`, partition)
}

func TestAPartitionAppearsAgesAndDrops(t *testing.T) {
	t.Parallel()
	s := serve(t, "capacity: 5", "max_age: 1m")
	page, _ := visit(t, chromium.Start(t), s.console("operator"), 1280, 1400)
	shows(t, page, "No partition has entries: all is delivered.")
	shows(t, page, "you are operator-name, role operator")

	s.status.Store(http.StatusServiceUnavailable)
	s.report("kart-7", "lap-1", `{"lap":1,"password":"hunter2"}`)
	until(t, page, "the partition appears", row("kart-7"))
	// Its age is in the fourth column: seconds here.
	until(t, page, "it grows older than 3 s", `parseFloat(`+row("kart-7")+`?.children[3].innerText) > 3`)
	until(t, page, "its error is shown", row("kart-7")+`?.innerText.includes("503")`)
	until(t, page, "the sink fails", `document.querySelector(".sinks").innerText.includes("failing")`)

	for i := 2; i <= 12; i++ {
		s.report("kart-7", fmt.Sprint("lap-", i), `{"lap":2}`)
	}
	until(t, page, "it is full", row("kart-7")+`?.children[2].innerText === "100 %"`)
	until(t, page, "the ledger counts what was evicted", `document.querySelector(".ledger").innerText.includes("7 evicted")`)
	until(t, page, "the banner knows of it", `/7 entries were evicted/.test(document.querySelector(".banner").innerText)`)

	click(t, page, "Why was my event dropped?")
	enter(t, page, "Partition", "kart-7")
	shows(t, page, "Because its partition was full, and newer entries took its place.")
	until(t, page, "all seven are found", `document.querySelectorAll(".drawer .entry").length === 7`)
	enter(t, page, "Id of the event", "lap-99")
	click(t, page, "Look for it")
	shows(t, page, "No sample has this id.")
	click(t, page, "Close")

	s.status.Store(http.StatusOK)
	until(t, page, "all is delivered", `document.querySelector(".ledger").innerText.includes("5 delivered")`)
	until(t, page, "the banner remembers", `/not now: 7 entries were evicted/.test(document.querySelector(".banner").innerText)`)
}
