package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

// An option of the table, with the values that are tried.
type option struct {
	name   string
	values []string
}

// choices are one value of each option. Each is a namespace of its own.
type choices map[string]string

func (c choices) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(c)) {
		parts = append(parts, name+"="+c[name])
	}
	return strings.Join(parts, ", ")
}

// pair is two values of two options.
type valuePair struct{ a, b, x, y string }

// everyPair are choices such that each two values of two options are together in one of them:
// a pairwise covering array, built greedily.
func everyPair(options []option) (rows []choices) {
	open := map[valuePair]bool{}
	for i, a := range options {
		for _, b := range options[:i] {
			for _, x := range a.values {
				for _, y := range b.values {
					open[valuePair{a.name, b.name, x, y}] = true
				}
			}
		}
	}
	position := map[string]int{}
	for i, o := range options {
		position[o.name] = i
	}
	of := func(a, b, x, y string) valuePair {
		if position[a] < position[b] {
			a, b, x, y = b, a, y, x
		}
		return valuePair{a, b, x, y}
	}
	rng := rand.New(rand.NewPCG(1, 2)) // the same rows at every run
	for len(open) > 0 {
		var best choices
		var most []valuePair
		for range 20 {
			row, covered := choices{}, []valuePair(nil)
			for _, i := range rng.Perm(len(options)) {
				var value string
				var gain []valuePair
				for n, v := range rng.Perm(len(options[i].values)) {
					candidate, new := options[i].values[v], []valuePair(nil)
					for other, chosen := range row {
						if p := of(options[i].name, other, candidate, chosen); open[p] {
							new = append(new, p)
						}
					}
					if n == 0 || len(new) > len(gain) {
						value, gain = candidate, new
					}
				}
				row[options[i].name], covered = value, append(covered, gain...)
			}
			if best == nil || len(covered) > len(most) {
				best, most = row, covered
			}
		}
		for _, p := range most {
			delete(open, p)
		}
		if len(most) > 0 {
			rows = append(rows, best)
		}
	}
	return rows
}

func TestTheRowsHaveEveryPair(t *testing.T) {
	t.Parallel()
	for _, options := range [][]option{claimOptions, pushOptions, bufferOptions} {
		rows := everyPair(options)
		for i, a := range options {
			for _, b := range options[:i] {
				for _, x := range a.values {
					for _, y := range b.values {
						if !slices.ContainsFunc(rows, func(r choices) bool { return r[a.name] == x && r[b.name] == y }) {
							t.Errorf("no row has %s=%s with %s=%s", a.name, x, b.name, y)
						}
					}
				}
			}
		}
		t.Logf("%d rows", len(rows))
	}
}

// options is a running server with a namespace for each row.
type optionsRun struct {
	*reloading
	redis, other *redistest.Server
	receiver     *troubled
	dir          string
	spaces       []*space
	until        time.Time // the rows have ended
}

// space is the namespace of a row.
type space struct {
	choices
	t          *testing.T
	run        *optionsRun
	name, kind string // kind is that of its row: claim, push or buffer
	settings   string // in the file
	token      string // empty: it has none
	failed     atomic.Bool
}

// errorf fails the test, once a row: what follows is a consequence.
func (s *space) errorf(format string, args ...any) {
	if !s.failed.Swap(true) {
		s.t.Errorf("%s (%v): %s", s.name, s.choices, fmt.Sprintf(format, args...))
	}
}

func (r *optionsRun) add(t *testing.T, kind string, rows []choices, settings func(*space) string) {
	for i, row := range rows {
		s := &space{choices: row, t: t, run: r, name: fmt.Sprintf("%s-%d", kind, i), kind: kind}
		if row["tokens"] != "none" {
			s.token = "secret-" + s.name
		}
		s.settings = settings(s)
		if row["pool"] != "default" {
			s.settings += ", pool: " + row["pool"]
		}
		r.spaces = append(r.spaces, s)
	}
}

// send sends a request as a client of the namespace, and wants the status.
func (s *space) send(want int, method, target, contentType, body string, headers ...string) string {
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://"+s.run.data+target, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", contentType)
	if s.token != "" && !strings.HasPrefix(target, "/segment") {
		req.Header.Set("Authorization", "Bearer "+s.token)
		req.Header.Set("X-Token", s.token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	status, text := s.run.do(s.t, req)
	if status != want {
		s.errorf("%s %s: got %d %s, want %d", method, target, status, text, want)
	}
	return text
}

// Every pair of values of options, at once on one server: each row is a namespace, and what
// one does must not show in another. In the end all ledgers close, all work is done, and
// what each cost is what it should cost.
func TestEveryPairOfOptions(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a walk over hundreds of namespaces")
	}
	r := &optionsRun{redis: redistest.Start(t), other: redistest.Start(t), receiver: newTroubled(t), dir: t.TempDir()}
	r.add(t, "claim", everyPair(claimOptions), (*space).claimSettings)
	r.add(t, "push", everyPair(pushOptions), (*space).pushSettings)
	r.add(t, "buffer", everyPair(bufferOptions), (*space).bufferSettings)
	r.reloading = serveFile(t, r.file())
	r.until = time.Now().Add(5 * time.Minute)
	idle, most := r.liveObjects(t), int64(0)
	ctx, cancel := context.WithCancel(t.Context())
	var running, watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			most = max(most, r.liveObjects(t)-idle)
		}
	})
	turns := make(chan struct{}, 16) // more at once would only make each slower
	for _, s := range r.spaces {
		running.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			switch s.kind {
			case "claim":
				s.publishJobs()
				s.work()
			case "push":
				s.publishJobs()
			default:
				s.produce()
			}
		})
	}
	running.Wait()
	for _, s := range r.spaces {
		s.eventually("it ends", s.ended)
		s.check()
	}
	cancel()
	watching.Wait()
	// A job, a lease and a request are tens of objects each; timers that multiply are a
	// hundred thousand within a second.
	t.Logf("%d namespaces, %d live objects more than before", len(r.spaces), most)
	if most > 150_000 {
		t.Errorf("%d live objects more than before the jobs", most)
	}
	if code := r.terminate(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// file is the configuration with all namespaces.
func (r *optionsRun) file() string {
	var b strings.Builder
	fmt.Fprintf(&b, "redis: %s\nlmstfy: true\nbackoff_base: 1ms\nbackoff_max: 10ms\npools:\n  default: {volatile: true}\n  other: {url: %q, volatile: true}\nsinks:\n",
		r.redis.URL(), r.other.URL())
	for _, s := range r.spaces {
		if s.kind == "push" {
			fmt.Fprintf(&b, "  %s: %q\n", s.name, s.sink())
		}
	}
	b.WriteString("namespaces:\n  default: {sink: \"null:\"}\n")
	for _, s := range r.spaces {
		fmt.Fprintf(&b, "  %s: {%s}\n", s.name, s.settings)
		if s.choices["sink"] == "namespaces" {
			for _, branch := range []string{"-a", "-b"} {
				fmt.Fprintf(&b, "  %s%s: {sink: \"null:\", linger: 0s}\n", s.name, branch)
			}
		}
	}
	return b.String()
}
