package jobs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest"
	spillway "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
)

// startTelling is startProcess with what tells the others of events.
func startTelling(t *testing.T, url string, policy job.Policy, edit func(*ingest.Config)) *process {
	t.Helper()
	p := startProcess(t, url, policy, edit)
	tracer, expirer := job.NewTracer(p.store), job.NewExpirer(p.store)
	for _, start := range []func(context.Context) error{tracer.Start, expirer.Start} {
		if err := start(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _, _ = tracer.Stop(context.Background()), expirer.Stop(context.Background()) })
	return p
}

// told is an event as it arrives.
type told struct {
	word, queue, id, data string
	count                 int
}

// listening is a client that reads events.
type listening struct {
	t      *testing.T
	status int
	header http.Header
	raw    string // of an answer that is none
	body   io.ReadCloser
	lines  *bufio.Scanner
}

func (p *port) follow(path string, headers ...string) *listening {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), "GET", "http://"+p.addr+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Add(name, value)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = resp.Body.Close() })
	l := &listening{t: p.t.(*testing.T), status: resp.StatusCode, header: resp.Header, body: resp.Body, lines: bufio.NewScanner(resp.Body)}
	if resp.StatusCode != 200 {
		raw, _ := io.ReadAll(resp.Body)
		l.raw = string(raw)
	}
	return l
}

// next is the next event; false: the stream is over.
func (l *listening) next() (e told, ok bool) {
	for l.lines.Scan() {
		name, value, _ := strings.Cut(l.lines.Text(), ": ")
		switch name {
		case "event":
			e.word = value
		case "data":
			var data struct {
				Queue, ID string
				Begins    string `json:"id_begins"`
				Count     int
			}
			if err := json.Unmarshal([]byte(value), &data); err != nil {
				l.t.Errorf("%v in %q", err, value)
			}
			e.data, e.queue, e.id, e.count = value, data.Queue, data.ID+data.Begins, data.Count
			return e, true
		}
	}
	return e, false
}

// ready reads until all processes tell.
func (l *listening) ready() *listening {
	l.t.Helper()
	for e, ok := l.next(); e.word != "ready"; e, ok = l.next() {
		if !ok {
			l.t.Fatal("the stream ended before it was ready:", l.status, l.raw)
		}
	}
	return l
}

// until reads up to a word about a queue, and returns what came: "word queue", in order.
func (l *listening) until(word, queue string) (all []told) {
	l.t.Helper()
	for {
		e, ok := l.next()
		if !ok {
			l.t.Fatalf("the stream ended before %s %s: %v", word, queue, all)
		}
		// A job that is promoted by hand is mostly seen by a promoter as well: both say so, the promoter at times late.
		if i := slices.IndexFunc(all, func(x told) bool { return e.word == "promoted" && x.word == e.word && e.id[:13] == x.id[:13] }); i >= 0 {
			if len(e.id) > 13 {
				all[i] = e
			}
			continue
		}
		if all = append(all, e); e.word == word && e.queue == queue {
			return all
		}
	}
}

func words(all []told) string {
	var list []string
	for _, e := range all {
		list = append(list, e.word)
	}
	return strings.Join(list, " ")
}

func TestAListenerHearsTheLifeOfAJobAtAnotherProcess(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]func(*testing.T) string{
		"redis":   func(t *testing.T) string { return redistest.Start(t).URL() },
		"cluster": func(t *testing.T) string { return redistest.StartMasters(t, 3).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, policy := start(t), job.DefaultPolicy()
			policy.Shards, policy.Spread = 4, map[string]int{"q": 4}
			a, b := startTelling(t, url, policy, nil), startTelling(t, url, policy, nil)
			all, one := a.follow("/v1/mail/_events"), a.follow("/v1/mail/_events?queues=q,other")
			for name, want := range map[string]string{"Content-Type": "text/event-stream", "X-Accel-Buffering": "no", "Cache-Control": "no-store"} {
				if got := all.header.Get(name); got != want {
					t.Errorf("%s: got %q", name, got)
				}
			}
			all.ready()
			one.ready()
			id := b.do("POST", "/v1/mail/q?id=order-1&tries=3&delay=1h", "x").IDs[0]
			b.do("POST", "/v1/mail/q/jobs/"+id+"/promote", "")
			settle := func(line string) {
				t.Helper()
				if r := b.do("POST", "/v1/mail/q/settle", `{"id":"`+id+`",`+line+`}`); len(r.Results) != 1 || r.Results[0].Error != "" {
					t.Fatalf("%s: %s", line, r.raw)
				}
			}
			b.do("POST", "/v1/mail/q/claim?wait=10s", "")
			settle(`"attempt":1,"do":"touch","ms":60000,"progress":40,"note":"half"`)
			settle(`"attempt":1,"do":"nack","error":"no route to crm"`)
			b.do("POST", "/v1/mail/q/claim?wait=10s", "")
			settle(`"attempt":2,"do":"bury","error":"bad address"`)
			b.do("POST", "/v1/mail/q/dead?do=respawn", `{"ids":["`+id+`"]}`)
			b.do("POST", "/v1/mail/q/claim?wait=10s", "")
			b.do("POST", "/v1/mail/hidden", "x")
			settle(`"attempt":3,"do":"ack","result":{"sum": 42}`)
			const want = "published promoted claimed touched nacked claimed buried dead respawned claimed acked"
			got := one.until("acked", "q")
			if words(got) != want {
				t.Errorf("got %s", words(got))
			}
			for _, e := range got {
				if e.id != id || e.queue != "q" || !strings.Contains(e.data, `"event":"`+e.word+`"`) || !strings.Contains(e.data, `"at_ms":1`) {
					t.Errorf("%s: %s", e.word, e.data)
				}
			}
			for i, part := range map[int]string{2: `"attempt":1`, 3: `"progress":40,"note":"half"`, 4: `"error":"no route to crm"`,
				6: `"error":"bad address"`, 7: `"reason":"buried"`, 10: `"result":{"sum":42}`} {
				if !strings.Contains(got[i].data, part) {
					t.Errorf("%s lacks %s", got[i].data, part)
				}
			}
			if got := words(all.until("acked", "q")); len(strings.Fields(got)) != 12 { // that of the other queue, too
				t.Errorf("of all queues: got %s", got)
			}
			// What time does, and what is of many jobs.
			late := b.do("POST", "/v1/mail/q?tries=1&delay=20ms", "x").IDs[0]
			if got := one.until("promoted", "q"); got[len(got)-1].id != late[:13] {
				t.Errorf("got %+v, want the begin of %s", got, late)
			}
			b.do("POST", "/v1/mail/q/claim?wait=10s&ttr=1ms", "")
			if got := one.until("dead", "q"); !strings.HasSuffix(words(got), "claimed lapsed dead") || !strings.Contains(got[len(got)-1].data, `"reason":"lapsed"`) {
				t.Errorf("got %v", got)
			}
			b.do("DELETE", "/v1/mail/q?state=all", "")
			if got := one.until("deleted", "q"); got[len(got)-1].count != 1 || got[len(got)-1].id != "" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestNobodyListensToWhatIsWrong(t *testing.T) {
	t.Parallel()
	token := ingest.Token{Hash: control.HashToken("secret"), Name: "web"}
	p := startTelling(t, redistest.Start(t).URL(), job.DefaultPolicy(), func(c *ingest.Config) {
		c.Tokens["mail"] = []ingest.Token{token}
	})
	const auth = "Authorization: Bearer secret"
	many := "q"
	for i := range 65 {
		many += fmt.Sprint(",n", i)
	}
	for _, c := range []struct {
		path, code string
		status     int
	}{
		{"/v1/mail/_events?queues=", "bad_queue", 400},
		{"/v1/mail/_events?queues=a,,b", "bad_queue", 400},
		{"/v1/mail/_events?queues=_out", "bad_queue", 400},
		{"/v1/mail/_events?queues=!events", "bad_queue", 400},
		{"/v1/mail/_events?queues=" + many, "bad_queue", 400},
		{"/v1/mail/_events?queue=a", "bad_parameter", 400},
		{"/v1/mail/_events?queues=a&queues=b", "bad_parameter", 400},
		{"/v1/mail/_events/q", "no_such_route", 404},
		{"/v1/mail/q/_events", "no_such_route", 404},
	} {
		if r := p.follow(c.path, auth); r.status != c.status || !strings.Contains(r.raw, `"error":"`+c.code+`"`) {
			t.Errorf("%.80s: got %d %s", c.path, r.status, r.raw)
		}
	}
	if r := p.follow("/v1/mail/_events"); r.status != 401 {
		t.Errorf("without a token: got %d", r.status)
	}
	if r := p.do("POST", "/v1/mail/_events", "", auth); r.status != 405 {
		t.Errorf("POST: got %d", r.status)
	}
	if r := p.do("HEAD", "/v1/mail/_events", "", auth); r.status != 200 {
		t.Errorf("HEAD: got %d", r.status)
	}
	// Its end: with its token, and with its namespace.
	l := p.follow("/v1/mail/_events", auth)
	if err := p.server.SetTokens(map[string][]ingest.Token{"mail": {{Hash: control.HashToken("other")}}}, nil); err != nil {
		t.Fatal(err)
	}
	for _, ok := l.next(); ok; _, ok = l.next() {
	}
	l = p.follow("/v1/mail/_events", "Authorization: Bearer other")
	if err := p.store.SetNamespaces(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	for _, ok := l.next(); ok; _, ok = l.next() {
	}
}

func TestAStreamWithoutATokenEndsOnceItsNamespaceHasTokens(t *testing.T) {
	t.Parallel()
	p := startTelling(t, redistest.Start(t).URL(), job.DefaultPolicy(), nil)
	for how, protect := range map[string]func() error{
		"tokens": func() error {
			return p.server.SetTokens(map[string][]ingest.Token{"mail": {{Hash: control.HashToken("new")}}}, nil)
		},
		"closed": func() error { return p.server.SetTokens(nil, []string{"mail"}) },
	} {
		if err := p.server.SetTokens(map[string][]ingest.Token{"mail": nil}, nil); err != nil {
			t.Fatal(err)
		}
		l := p.follow("/v1/mail/_events")
		if l.status != 200 {
			t.Fatalf("%s: got %d %s", how, l.status, l.raw)
		}
		if err := protect(); err != nil {
			t.Fatal(err)
		}
		for _, ok := l.next(); ok; _, ok = l.next() {
		}
	}
}

func TestTheGoClientHearsEventsAndThatItMissedSome(t *testing.T) {
	t.Parallel()
	p := startTelling(t, redistest.Start(t).URL(), job.DefaultPolicy(), nil)
	q, err := spillway.NewQueues("http://"+p.addr, spillway.QueuesConfig{Namespace: "mail"})
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	id := ""
	for e, err := range q.Events(t.Context(), "q") {
		words = append(words, e.Event)
		switch e.Event {
		case "ready":
			p.do("POST", "/v1/mail/other", "x")
			id = p.do("POST", "/v1/mail/q", "x").IDs[0]
		case "published":
			if e.ID != id || e.Queue != "q" || time.Since(e.At) > time.Hour {
				t.Errorf("got %+v", e)
			}
			err := p.server.SetTokens(map[string][]ingest.Token{"mail": {{Hash: control.HashToken("new")}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
		case "":
			if !errors.Is(err, spillway.ErrUnauthorized) {
				t.Errorf("got %v", err)
			}
		}
	}
	if got := strings.Join(words, " "); got != "ready published dropped " {
		t.Errorf("got %q", got)
	}
}

// A client that reads nothing gets less and is told so; the others get all, and so does everybody who waits
// for jobs. Its place is not for ever.
func TestASlowListenerLosesEventsAndNobodyElseDoes(t *testing.T) {
	t.Parallel()
	// Neither the time-out of answers nor a request before is in the way.
	p := startTelling(t, redistest.Start(t).URL(), job.DefaultPolicy(), func(c *ingest.Config) { c.WriteTimeout = time.Second })
	quick := p.follow("/v1/mail/_events").ready()
	slow := &listening{t: t, lines: bufio.NewScanner(p.hold("GET /v1/mail/q HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/mail/_events HTTP/1.1\r\nHost: x\r\n\r\n"))}
	slow.ready()
	result := strings.Repeat("r", 3<<10)
	stalled := func() bool {
		p.engine.streams.mu.Lock()
		defer p.engine.streams.mu.Unlock()
		for s := range p.engine.streams.all {
			if since := s.writing.Load(); since > 0 && time.Since(time.Unix(0, since)) > 200*time.Millisecond {
				return true
			}
		}
		return false
	}
	published := 0
	for more := 20; more > 0; { // 3 MB beyond what the system takes for it
		if stalled() {
			more--
		}
		ids := p.do("POST", "/v1/mail/q", strings.Repeat("x\n", 50), asNDJSON).IDs
		p.do("POST", "/v1/mail/q/claim?count=50", "")
		var lines strings.Builder
		for _, id := range ids {
			fmt.Fprintf(&lines, `{"id":%q,"do":"ack","result":%q}`+"\n", id, result)
		}
		if r := p.do("POST", "/v1/mail/q/settle", lines.String()); len(r.Results) != 50 {
			t.Fatalf("got %.200s", r.raw)
		}
		published += len(ids)
		for acked := 0; acked < len(ids); { // the quick one gets all
			if e, ok := quick.next(); !ok || e.word == "dropped" {
				t.Fatalf("the quick one: %+v", e)
			} else if e.word == "acked" {
				acked++
			}
		}
	}
	p.do("POST", "/v1/mail/last", "x")
	quick.until("published", "last")
	dropped, got := 0, 0
	for e, ok := slow.next(); e.queue != "last"; e, ok = slow.next() {
		if !ok {
			t.Fatal("the stream ended")
		}
		if e.word == "dropped" {
			dropped += e.count
		} else {
			got++
		}
	}
	if counted := p.droppedEvents(t); dropped == 0 || dropped+got != 3*published || counted != dropped {
		t.Errorf("got %d, %d dropped, %d counted, of %d", got, dropped, counted, 3*published)
	}
}

// droppedEvents is what slow listeners of the process lost.
func (p *process) droppedEvents(t *testing.T) (n int) {
	t.Helper()
	families, err := p.stored.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "spillway_jobs_events_dropped_total" {
			for _, m := range f.GetMetric() {
				if m.GetLabel()[0].GetValue() == "slow" {
					n += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return n
}

func TestANamespaceHasABoundOfListeners(t *testing.T) {
	t.Parallel()
	p := startTelling(t, redistest.Start(t).URL(), job.DefaultPolicy(), func(c *ingest.Config) { c.MaxConns = 160 })
	for range 10 {
		p.hold("GET /v1/mail/_events HTTP/1.1\r\nHost: x\r\n\r\n")
	}
	var r *listening
	eventually(t, "one is too many", func() bool {
		r = p.follow("/v1/mail/_events")
		if r.status == 200 {
			_ = r.body.Close()
		}
		return r.status != 200
	})
	if r.status != 429 || !strings.Contains(r.raw, `"error":"too_many_listeners"`) || !strings.Contains(r.raw, `"scope":"namespace"`) || r.header.Get("Retry-After") == "" {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	answer := make(chan *reply, 1) // they take no place of who waits for jobs
	go func() { answer <- p.do("POST", "/v1/mail/q/claim?wait=20s", "") }()
	eventually(t, "the poll waits", func() bool { return p.waiting() == 1 })
	p.do("POST", "/v1/mail/q", "x")
	if r := <-answer; r.data() != "x" {
		t.Errorf("got %s", r.raw)
	}
}

// While nobody listens Redis hears nothing of events, and a process makes none.
func TestEventsCostNothingWhileNobodyListens(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := startTelling(t, redis.URL(), job.DefaultPolicy(), nil)
	client := redis.Client()
	defer client.Close()
	calls := func() string {
		if err := client.ConfigResetStat(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		id := p.do("POST", "/v1/mail/q", "x").IDs[0]
		p.do("POST", "/v1/mail/q/claim", "")
		p.do("POST", "/v1/mail/q/settle", `{"id":"`+id+`","do":"ack"}`)
		stats, err := client.Info(t.Context(), "commandstats").Result()
		if err != nil {
			t.Fatal(err)
		}
		var of []string
		for line := range strings.Lines(stats) {
			name, rest, _ := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":")
			for _, want := range []string{"publish", "subscribe", "ssubscribe"} {
				if name == want {
					n, _, _ := strings.Cut(rest, ",")
					of = append(of, name+" "+n)
				}
			}
		}
		return strings.Join(of, ", ")
	}
	p.do("POST", "/v1/mail/q?delay=1h", "x") // the queue is known
	before := calls()
	if before != "publish calls=1" { // the wake of the script
		t.Errorf("got %s", before)
	}
	l := p.follow("/v1/mail/_events").ready()
	_ = l.body.Close()
	eventually(t, "nobody listens", func() bool { return !p.store.Namespace("mail").Heard() })
	if after := calls(); after != before {
		t.Errorf("once nobody listens: %s, and %s before", after, before)
	}
}

func TestAStreamEndsWhenTheServerStops(t *testing.T) {
	t.Parallel()
	p := startTelling(t, redistest.Start(t).URL(), job.DefaultPolicy(), nil)
	l := p.follow("/v1/mail/_events").ready()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	if err := p.server.Stop(ctx); err != nil {
		t.Error(err)
	}
	if e, ok := l.next(); ok {
		t.Errorf("got %+v", e)
	}
	if p.server.Requests() != 0 {
		t.Errorf("%d requests are under way", p.server.Requests())
	}
}
