package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

// command runs the binary against the admin port of s.
func (s *server) command(args ...string) string {
	s.t.Helper()
	out, err := exec.Command(binary, append(args, "--admin", "http://"+s.admin)...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// Two processes on a cluster of three masters; the namespace gets four times its shards while
// they serve, and then fewer.
func TestANamespaceGetsOtherShardsUnderLoad(t *testing.T) {
	t.Parallel()
	url := redistest.StartCluster(t).URL()
	dir := t.TempDir()
	var servers []*server
	for i := range 2 {
		servers = append(servers, serve(t, "--redis", url, "--shards", "6", "--linger", "50ms",
			"--sink", "file://"+filepath.Join(dir, fmt.Sprintf("%d.ndjson", i))))
	}
	for _, s := range servers {
		s.ready(200)
	}
	const senders = 4
	var sending sync.WaitGroup
	var ended atomic.Bool
	var sent [senders]int
	var slowest [senders]time.Duration
	for i := range senders {
		sending.Go(func() {
			for ; !ended.Load(); sent[i]++ {
				// Each partition is sent to both processes in turn, and each answer is awaited.
				began := time.Now()
				path := fmt.Sprintf("/v1/default/p%d-%d", i, sent[i]/2%20)
				resp, err := http.Post("http://"+servers[sent[i]%2].data+path, "application/json", strings.NewReader(fmt.Sprint(sent[i])))
				if err != nil {
					t.Error(err)
					return
				}
				_ = resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Errorf("entry %d: %s", sent[i], resp.Status)
					return
				}
				slowest[i] = max(slowest[i], time.Since(began))
			}
		})
	}
	some := func() {
		before := servers[0].ledger().Accepted
		eventually(t, "entries arrive", func() bool { return servers[0].ledger().Accepted > before+200 })
	}
	some()
	for _, shards := range []string{"24", "3"} {
		servers[0].command("reshard", "default", shards, "--yes", "--wait")
		some()
	}
	ended.Store(true)
	sending.Wait()
	layouts := servers[1].command("layouts", "ls", "default")
	t.Logf("slowest answer: %v\n%s", slices.Max(slowest[:]), layouts)
	if !regexp.MustCompile(`\d+ +3  current`).MatchString(layouts) {
		t.Error("the three shards do not stay, as the command asked")
	}
	want := int64(0)
	for _, n := range sent {
		want += int64(n)
	}
	eventually(t, "all is delivered", func() bool { return servers[1].ledger().Buffered == 0 })
	if l := servers[1].ledger(); l.Accepted != want || l.Delivered != want {
		t.Errorf("sent %d, got %+v", want, l)
	}
	before := servers[1].ledger()
	if out, err := exec.Command(binary, "layouts", "abandon", "default", "1", "--yes", "--admin", "http://"+servers[0].admin).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "layout 1 is closed") {
		t.Errorf("abandon of a closed layout: %v, %s", err, out)
	}
	servers[0].command("layouts", "forget", "default", "1")
	if after := servers[0].ledger(); after != before {
		t.Errorf("forgotten: got %+v, want %+v", after, before)
	}
	if layouts := servers[0].command("layouts", "ls", "default"); !regexp.MustCompile(`1 +6  forgotten`).MatchString(layouts) {
		t.Errorf("got %s", layouts)
	}
	for _, s := range servers {
		if code := s.terminate(); code != 0 {
			t.Errorf("exit %d", code)
		}
	}
	type line struct {
		Partition string
		Seq       int64
		Data      int
	}
	byPartition := map[string][]line{}
	for i := range servers {
		f, err := os.Open(filepath.Join(dir, fmt.Sprintf("%d.ndjson", i)))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for in := bufio.NewScanner(f); in.Scan(); {
			var l line
			if err := json.Unmarshal(in.Bytes(), &l); err != nil {
				t.Fatalf("%s: %v", in.Text(), err)
			}
			byPartition[l.Partition] = append(byPartition[l.Partition], l)
		}
	}
	for name, lines := range byPartition {
		slices.SortFunc(lines, func(a, b line) int { return int(a.Seq - b.Seq) })
		for i := 1; i < len(lines); i++ {
			if lines[i].Seq == lines[i-1].Seq || lines[i].Data <= lines[i-1].Data {
				t.Fatalf("%s: %+v follows %+v", name, lines[i], lines[i-1])
			}
		}
	}
}

// Two processes on a cluster; a namespace of kind queue gets four times its shards while they
// serve, and then as many as before.
func TestANamespaceOfQueuesGetsOtherShardsUnderLoad(t *testing.T) {
	t.Parallel()
	text := fmt.Sprintf("redis: %s\npools: {default: {volatile: true}}\nnamespaces:\n  mail: {kind: queue, shards: 3}\n", redistest.StartCluster(t).URL())
	servers := []*reloading{serveFile(t, text), serveFile(t, text)}
	for _, s := range servers {
		s.ready(200)
	}
	const queues = 8
	var published, acked [queues]atomic.Int64
	var ended atomic.Bool
	var working sync.WaitGroup
	send := func(s *reloading, path, body string) (a answer, ok bool) {
		if a = s.post(path, "application/json", body); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
		return a, a.status == 200
	}
	for q := range queues {
		queue := fmt.Sprint("/v1/mail/q", q)
		working.Go(func() {
			for i := 0; !ended.Load(); i++ {
				if _, ok := send(servers[i%2], queue, fmt.Sprint(i)); !ok {
					return
				}
				published[q].Add(1)
			}
		})
		working.Go(func() {
			for i := 0; !ended.Load() || acked[q].Load() < published[q].Load(); i++ {
				var got struct {
					Jobs []struct {
						ID      string
						Attempt int
						Data    []byte
					}
				}
				a, ok := send(servers[i%2], queue+"/claim?wait=1s&ttr=10m", "")
				if !ok || json.Unmarshal([]byte(a.body), &got) != nil {
					t.Errorf("claim: %s", a.body)
					return
				}
				for _, j := range got.Jobs {
					if want := fmt.Sprint(acked[q].Load()); string(j.Data) != want {
						t.Errorf("queue %d: job %s comes, want %s", q, j.Data, want)
						return
					}
					if _, ok := send(servers[(i+1)%2], queue+"/settle", fmt.Sprintf(`{"id":%q,"attempt":%d,"do":"ack"}`, j.ID, j.Attempt)); !ok {
						return
					}
					acked[q].Add(1)
				}
			}
		})
	}
	sum := func(of *[queues]atomic.Int64) (n int64) {
		for q := range of {
			n += of[q].Load()
		}
		return n
	}
	some := func() {
		before := sum(&acked)
		eventually(t, "jobs are acked", func() bool { return t.Failed() || sum(&acked) > before+200 })
	}
	some()
	for _, shards := range []string{"12", "3"} {
		servers[0].command("reshard", "mail", shards, "--yes", "--wait")
		some()
	}
	ended.Store(true)
	working.Wait()
	layouts := servers[1].command("layouts", "ls", "mail")
	if !regexp.MustCompile(`\d+ +3  current`).MatchString(layouts) || strings.Contains(layouts, "older") {
		t.Errorf("got %s", layouts)
	}
	t.Logf("%d jobs\n%s", sum(&acked), layouts)
	for _, s := range servers {
		eventually(t, "the ledger adds up", func() bool {
			var found struct {
				Ledger   struct{ Published, Acked int64 }
				Residual *int64
			}
			resp, err := http.Get("http://" + s.admin + "/api/v1/namespaces/mail?audit=1")
			if err != nil {
				return false
			}
			defer resp.Body.Close()
			return json.NewDecoder(resp.Body).Decode(&found) == nil && found.Residual != nil && *found.Residual == 0 &&
				found.Ledger.Published == sum(&published) && found.Ledger.Acked == found.Ledger.Published
		})
	}
	req, err := http.NewRequest("PUT", "http://"+servers[1].data+"/v1/mail/reports/schedules/nightly", strings.NewReader(`{"every":"24h"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 201 {
		t.Fatalf("a schedule after it: %s", resp.Status)
	}
	for want, args := range map[string][]string{
		"is of kind queue": {"layouts", "forget", "mail", "1"},
		"schedule nightly of queue reports is kept by a shard": {"reshard", "mail", "6", "--yes"},
	} {
		out, err := exec.Command(binary, append(args, "--admin", "http://"+servers[0].admin)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
}

// Two processes whose file says that the namespace is in the default pool. It moves to another Redis
// while both take entries; one is killed meanwhile, and starts again with the same file.
func TestANamespaceMovesToAnotherRedisUnderLoadWhileAProcessIsKilled(t *testing.T) {
	t.Parallel()
	from, to := redistest.Start(t), redistest.Start(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "spillway.yaml")
	text := fmt.Sprintf("redis: %s\npools: {b: %q}\nlinger: 50ms\nlease: 3s\nsink_timeout: 1s\nshards: 2\nsink: file://%s\n", from.URL(), to.URL(), filepath.Join(dir, "out.ndjson"))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() *server { return serve(t, "--config", file).ready(200) }
	var servers [2]atomic.Pointer[server]
	for i := range servers {
		servers[i].Store(open())
	}
	var sending sync.WaitGroup
	var ended atomic.Bool
	var acked, unknown [2]atomic.Int64
	for i := range servers {
		sending.Go(func() {
			for n := 0; !ended.Load(); n++ {
				s := servers[i].Load()
				resp, err := http.Post(fmt.Sprintf("http://%s/v1/default/p%d-%d", s.data, i, n%20), "application/json", strings.NewReader(fmt.Sprint(n)))
				if err != nil {
					unknown[i].Add(1)
					eventually(t, "the process is there again", func() bool { return servers[i].Load() != s })
					continue
				}
				_ = resp.Body.Close()
				if resp.StatusCode != 200 {
					t.Errorf("entry %d of process %d: %s", n, i, resp.Status)
					return
				}
				acked[i].Add(1)
			}
		})
	}
	some := func() {
		before := [2]int64{acked[0].Load(), acked[1].Load()}
		eventually(t, "entries arrive", func() bool {
			return acked[0].Load() > before[0]+100 && acked[1].Load() > before[1]+100
		})
	}
	some()
	s := servers[0].Load()
	if out, err := exec.Command(binary, "reshard", "default", "3", "--pool", "nowhere", "--yes", "--admin", "http://"+s.admin).CombinedOutput(); err == nil ||
		!strings.Contains(string(out), "pool nowhere is not among those of this process") {
		t.Errorf("to a pool that there is not: %v, %s", err, out)
	}
	moved := make(chan string, 1)
	go func() { moved <- s.command("reshard", "default", "3", "--pool", "b", "--yes", "--wait") }()
	eventually(t, "the other Redis has the namespace", func() bool { return len(to.Client().Keys(t.Context(), "*ledger").Val()) == 3 })
	servers[1].Load().kill()
	servers[1].Store(open())
	some()
	<-moved
	eventually(t, "the other process knows that the first layout is closed", func() bool { // it reads layouts every second
		layouts := servers[1].Load().command("layouts", "ls", "default")
		return regexp.MustCompile(`1 +2  closed .* default`).MatchString(layouts) && regexp.MustCompile(`\d+ +3  current .* b `).MatchString(layouts)
	})
	before := s.ledger()
	s.command("layouts", "forget", "default", "1")
	if after := s.ledger(); after.Accepted < before.Accepted || after.Delivered < before.Delivered {
		t.Errorf("forgotten: got %+v, after %+v", after, before)
	}
	some()
	ended.Store(true)
	sending.Wait()
	eventually(t, "all is delivered", func() bool { return servers[1].Load().ledger().Buffered == 0 })
	sure, most := acked[0].Load()+acked[1].Load(), unknown[0].Load()+unknown[1].Load()
	most += sure
	if l := s.ledger(); l.Accepted < sure || l.Accepted > most || l.Delivered != l.Accepted {
		t.Errorf("%d to %d were stored, got %+v", sure, most, l)
	}
	for i := range servers {
		if code := servers[i].Load().terminate(); code != 0 {
			t.Errorf("exit %d", code)
		}
	}
	out, err := os.ReadFile(filepath.Join(dir, "out.ndjson"))
	if err != nil {
		t.Fatal(err)
	}
	byPartition := map[string][]line{}
	for _, l := range parseLines(t, out) {
		byPartition[l.Partition] = append(byPartition[l.Partition], l)
	}
	entries := int64(0)
	for name, lines := range byPartition {
		slices.SortStableFunc(lines, func(a, b line) int { return int(a.Seq - b.Seq) })
		last, data := int64(-1), -1
		for _, l := range lines {
			n := 0
			if _, err := fmt.Sscan(string(l.Data), &n); err != nil {
				t.Fatal(err)
			}
			switch {
			case l.Seq == last && n == data: // again, after its process was killed
			case l.Seq == last, n <= data:
				t.Fatalf("%s: %+v follows %d at %d", name, l, data, last)
			default:
				entries++
			}
			last, data = l.Seq, n
		}
	}
	if entries < sure || entries > most {
		t.Errorf("%d entries were written, %d to %d were stored", entries, sure, most)
	}
}
