package e2e

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
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
	p := &pair{t: t, redis: redistest.Start(t, "--appendonly", "yes", "--appendfsync", "no")} // a killed process loses nothing
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
	eventually(t, "it is claimed at the first process", func() bool {
		a := atA.send("/v1/mail/q/claim", "")
		return a.status == 200 && strings.Contains(a.body, `"id"`)
	})

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
	hourly := filepath.Join(t.TempDir(), "hourly.json")
	if err := os.WriteFile(hourly, []byte(`{"every":"1h"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	p.must(p.b, "schedules", "put", "mail", "q", "hourly", "-f", hourly)
	if out := p.must(p.b, "ns", "rm", "mail", "--force", "--yes"); !strings.Contains(out, "deleted, with 1 job") {
		t.Errorf("got %s", out)
	}
	// Its schedules went with it: what has the name next is empty.
	p.must(p.b, "ns", "create", "mail", "--shards=2")
	p.must(p.b, "ns", "rm", "mail", "--yes")
	// A change is everywhere after about 0.3 s, not at once.
	eventually(t, "the first process knows it too", func() bool { return !strings.Contains(p.must(p.a, "ns", "ls"), "mail") })
}
