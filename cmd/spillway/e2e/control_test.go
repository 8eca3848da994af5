package e2e

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

// pair are two processes on one Redis, with an admin token.
type pair struct {
	t     *testing.T
	redis *redistest.Server
	a, b  *server
}

func servePair(t *testing.T) *pair {
	t.Helper()
	p := &pair{t: t, redis: redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")}
	args := []string{"--redis", p.redis.URL(), "--admin-token", tokenHash("root"), "--sink", "null:"}
	p.a, p.b = serve(t, args...).ready(200), serve(t, args...).ready(200)
	return p
}

// run runs a command as an admin of a process.
func (p *pair) run(at *server, args ...string) (out string, err error) {
	p.t.Helper()
	cmd := exec.Command(binary, args...)
	cmd.Env = []string{"SPILLWAY_API_TOKEN=root", "SPILLWAY_ADMIN=http://" + at.admin}
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// must is run, and must succeed.
func (p *pair) must(at *server, args ...string) string {
	p.t.Helper()
	out, err := p.run(at, args...)
	if err != nil {
		p.t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// token makes a token of a namespace.
func (p *pair) token(at *server, args ...string) string {
	p.t.Helper()
	var made struct{ Token string }
	if err := json.Unmarshal([]byte(p.must(at, append([]string{"token", "create", "-o", "json"}, args...)...)), &made); err != nil || made.Token == "" {
		p.t.Fatal(err)
	}
	return made.Token
}

// metric is the sum of the series of a metric, whatever their labels are.
func (p *pair) metric(at *server, name string) (sum int64) {
	p.t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://"+at.admin+"/metrics", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer root")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if labelled, _, _ := strings.Cut(series, "{"); labelled != name {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		sum += int64(n)
	}
	return sum
}

func TestNamespacesAndTokensAtRunTime(t *testing.T) {
	t.Parallel()
	p := servePair(t)
	p.must(p.a, "ns", "create", "mail", "--shards=2")
	token := p.token(p.a, "mail", "--name=crm")
	other, atA := p.b.client(token), p.a.client(token)
	eventually(t, "the other process publishes", func() bool { return other.send("/v1/mail/q", "job").status == 200 })
	if a := p.b.client("wrong").send("/v1/mail/q", "job"); a.status != 401 {
		t.Errorf("a wrong token: %d %s", a.status, a.body)
	}
	if a := p.b.client("").send("/v1/mail/q", "job"); a.status != 401 {
		t.Errorf("no token: %d %s", a.status, a.body)
	}
	if a := atA.send("/v1/mail/q/claim", ""); a.status != 200 || !strings.Contains(a.body, `"id"`) {
		t.Errorf("claimed at the first process: %d %s", a.status, a.body)
	}

	// Open polls end with their token, in both processes.
	var polls sync.WaitGroup
	ended := make(chan answer, 2)
	for _, c := range []*client{other, atA} {
		polls.Go(func() { ended <- c.send("/v1/mail/empty/claim?wait=50s", "") })
	}
	eventually(t, "both wait", func() bool {
		return p.metric(p.a, "spillway_jobs_polls") == 1 && p.metric(p.b, "spillway_jobs_polls") == 1
	})
	p.must(p.b, "token", "revoke", "mail", "crm")
	revoked := time.Now()
	for range 2 {
		if a := <-ended; a.status != 401 {
			t.Errorf("an open poll of a revoked token: %d %s", a.status, a.body)
		}
	}
	t.Logf("polls ended %v after the revocation", time.Since(revoked))
	polls.Wait()
	for _, c := range []*client{other, atA} {
		if a := c.send("/v1/mail/q", "job"); a.status != 401 {
			t.Errorf("a revoked token: %d %s", a.status, a.body)
		}
	}

	// A namespace with jobs is not deleted by mistake.
	if out, err := p.run(p.a, "ns", "rm", "mail"); err == nil || !strings.Contains(out, "it has 1 job:") {
		t.Errorf("deleted with a job: %s", out)
	}
	if out := p.must(p.b, "ns", "rm", "mail", "--force", "--yes"); !strings.Contains(out, "deleted, with 1 job") {
		t.Errorf("got %s", out)
	}
	// A change is everywhere after about 0.3 s, not at once.
	eventually(t, "the first process knows it too", func() bool { return !strings.Contains(p.must(p.a, "ns", "ls"), "mail") })
}

// The rate of a token is that of all processes together.
func TestARateIsSharedByTwoProcesses(t *testing.T) {
	t.Parallel()
	p := servePair(t)
	p.must(p.a, "ns", "create", "mail")
	token := p.token(p.a, "mail", "--produce=64/h")
	clients := []*client{p.a.client(token), p.b.client(token)}
	var taken atomic.Int64
	for _, c := range clients {
		eventually(t, "it publishes", func() bool {
			ok := c.send("/v1/mail/q", "job").status == 200
			if ok {
				taken.Add(1)
			}
			return ok
		})
	}
	var senders sync.WaitGroup
	for i := range 8 {
		senders.Go(func() {
			for {
				switch a := clients[i%2].send("/v1/mail/q", "job"); a.status {
				case 200:
					taken.Add(1)
				case 429:
					if a.retryAfter == "" {
						t.Error("no Retry-After")
					}
					return
				default:
					t.Errorf("%d %s", a.status, a.body)
					return
				}
			}
		})
	}
	senders.Wait()
	if taken.Load() != 64 { // slices are of one job, so nothing is left over
		t.Errorf("%d jobs were published, want 64", taken.Load())
	}
}

// While Redis is away, each process goes on with what it read last. Admin tokens are made for all processes.
func TestWhatWasMadeAtRunTimeSurvivesAnOutage(t *testing.T) {
	t.Parallel()
	p := servePair(t)
	p.must(p.a, "ns", "create", "mail")
	token := p.token(p.a, "mail")
	var viewer struct{ Token string }
	if err := json.Unmarshal([]byte(p.must(p.a, "admin-token", "create", "alice", "--role=viewer", "-o", "json")), &viewer); err != nil {
		t.Fatal(err)
	}
	asViewer := func(method, path string) int {
		req, err := http.NewRequest(method, "http://"+p.b.admin+path, strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+viewer.Token)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	eventually(t, "the viewer is known", func() bool { return asViewer("GET", "/api/v1/control/namespaces") == 200 })
	if status := asViewer("POST", "/api/v1/control/namespaces"); status != 403 {
		t.Errorf("a viewer made a namespace: %d", status)
	}
	b := p.b.client(token)
	eventually(t, "it publishes", func() bool { return b.send("/v1/mail/q", "job").status == 200 })

	p.redis.Kill()
	eventually(t, "the outage shows", func() bool { return b.send("/v1/mail/q", "job").status == 503 })
	if a := p.b.client("wrong").send("/v1/mail/q", "job"); a.status != 401 {
		t.Errorf("a wrong token in an outage: %d %s", a.status, a.body)
	}
	if status := asViewer("GET", "/api/v1/control/namespaces"); status != 200 {
		t.Errorf("the viewer in an outage: %d", status)
	}
	if out, err := p.run(p.b, "token", "create", "mail"); err == nil {
		t.Errorf("a token was made in an outage: %s", out)
	}
	p.redis.Launch()
	eventually(t, "it publishes again", func() bool { return b.send("/v1/mail/q", "job").status == 200 })
	eventually(t, "the admin token is revoked", func() bool {
		out, err := p.run(p.a, "admin-token", "revoke", "alice")
		return err == nil || strings.Contains(out, "no such entry")
	})
	eventually(t, "it is rejected", func() bool { return asViewer("GET", "/api/v1/control/namespaces") == 401 })
	// A process that starts now reads it all.
	fresh := serve(t, "--redis", p.redis.URL(), "--admin-token", tokenHash("root"), "--sink", "null:").ready(200)
	if a := fresh.client(token).send("/v1/mail/q", "job"); a.status != 200 {
		t.Errorf("a new process: %d %s", a.status, a.body)
	}
	if n, want := p.metric(fresh, "spillway_control_version"), p.metric(p.a, "spillway_control_version"); n != want || n == 0 {
		t.Errorf("it uses version %d, the others %d", n, want)
	}
}

// A reload replaces what serves, and not what was made at run time, until the file names it.
func TestAReloadKeepsWhatWasMadeAtRunTime(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	config := func(more string) string {
		return "redis: " + redis.URL() + "\nadmin_token: \"" + tokenHash("root") + "\"\nnamespaces:\n  default: {sink: \"null:\"}\n" + more
	}
	r := serveFile(t, config(""))
	p := &pair{t: t, redis: redis, a: r.server, b: r.server}
	p.must(r.server, "ns", "create", "mail", "--max-jobs=100000")
	c := r.client(p.token(r.server, "mail", "--name=crm", "--produce=1000000/h"))
	sent := c.send("/v1/mail/q", "job")
	if sent.status != 200 {
		t.Fatalf("%d %s", sent.status, sent.body)
	}
	stop, published := make(chan struct{}), make(chan int, 1)
	go func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				published <- n
				return
			default:
			}
			if a := c.send("/v1/mail/q", "job"); a.status != 200 {
				t.Errorf("during a reload: %d %s", a.status, a.body)
			}
		}
	}()
	r.write(config("  more: {sink: \"null:\"}\n"))
	r.hangUp("configuration reloaded")
	r.write(config("  queue: {kind: queue}\n"))
	r.hangUp("configuration reloaded")
	close(stop)
	n := <-published
	if a := c.send("/v1/mail/q/claim?count=1000", ""); a.status != 200 || strings.Count(a.body, `"id"`) != min(n, 1000) {
		t.Errorf("%d of %d jobs are claimed: %d", strings.Count(a.body, `"id"`), n, a.status)
	}
	if p.metric(r.server, "spillway_control_ignored_entries") != 0 {
		t.Error("entries are ignored")
	}
	// The file names the namespace and its own token: that of the run time stays beside it.
	r.write(config("  mail: {kind: queue, tokens: [\"" + tokenHash("own") + "\"]}\n"))
	r.hangUp("configuration reloaded")
	for _, client := range []*client{c, r.client("own")} {
		if a := client.send("/v1/mail/q", "job"); a.status != 200 {
			t.Errorf("the namespace is in the file, too: %d %s", a.status, a.body)
		}
	}
	if n := p.metric(r.server, "spillway_control_ignored_entries"); n != 1 {
		t.Errorf("%d entries are ignored, want the namespace", n)
	}
	if out, err := p.run(r.server, "ns", "rm", "mail", "--force"); err == nil || !strings.Contains(out, "configuration file names it") {
		t.Errorf("deleted: %s", out)
	}
	r.write(config("  mail: {kind: queue, shards: 3, tokens: [\"" + tokenHash("own") + "\"]}\n"))
	r.hangUp("configuration reloaded")
	eventually(t, "it has the shards of the file", func() bool {
		if a := r.client("own").send("/v1/mail/q", "job"); a.status != 200 {
			t.Errorf("while it gets other shards: %d %s", a.status, a.body)
		}
		out, err := p.run(r.server, "layouts", "ls", "mail")
		return err == nil && regexp.MustCompile(` 3  current`).MatchString(out)
	})
}
