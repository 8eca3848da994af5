package lmstfy

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
)

// limit gives the token of ns limits, which a redis-server counts.
func (p *port) limit(t testing.TB, made control.Token) {
	t.Helper()
	c := newControl(t, "redis://"+redistest.Shared(t))
	made.Text, made.Hash = token, control.HashToken(token)
	if err := c.CreateTokenIn(t.Context(), control.Namespace{Name: "ns", Policy: job.DefaultPolicy()}, made); err != nil {
		t.Fatal(err)
	}
	p.tokens["ns"] = []ingest.Token{{Hash: made.Hash, Name: "limited", Limiters: c.Snapshot().Token("ns", made.Hash).Limiters}}
	if err := p.server.SetTokens(p.tokens, nil); err != nil {
		t.Fatal(err)
	}
}

func msOf(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func TestLimitsCountRequestsAndRefundWhatBringsNothing(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	p.limit(t, control.Token{Limit: &control.Limit{Read: 1, Write: 1, Interval: 86400}})
	overWrite := `{"msg":"token(ID) produce reach the limit rate, please retry later"}`
	overRead := strings.Replace(overWrite, "produce", "consume", 1)
	p.play([]step{
		{"PUT", "/api/ns/q?tries=x", "x", nil, 400, text("invalid tries")},
		{"PUT", "/api/ns/q", strings.Repeat("x", 1<<20+1), nil, 413, text("body too large")},
		{"GET", "/api/ns/q", "", nil, 404, noJob},
		{"GET", "/api/ns/q?ttr=x", "", nil, 400, text("invalid ttr")},
		{"PUT", "/api/ns/q", "x", nil, 201, published},
		{"PUT", "/api/ns/q", "x", nil, 429, overWrite},
		{"PUT", "/api/ns/q?tries=x", "x", nil, 429, overWrite},
		{"PUT", "/api/ns/q/bulk", "x", nil, 429, overWrite},
		{"PUT", "/api/ns/q.x", "x", nil, 400, badQueue},
		{"PUT", "/api/ns/q/job/x", "x", nil, 429, overWrite},
		{"GET", "/api/ns/q/peek", "", nil, 200, strings.Replace(jobOf("null", "eA==", "q", 1, 86400), `"msg":"new job",`, "", 1)},
		{"GET", "/api/ns/q", "", nil, 200, jobOf("null", "eA==", "q", 0, 86400)},
		{"GET", "/api/ns/q?ttr=x", "", nil, 429, overRead},
		{"DELETE", "/api/ns/q", "", nil, 204, ""},
		{"PUT", "/api/ns/q/deadletter", "", nil, 200, `{"count":0,"msg":"respawned"}`},
	})
}

func TestRatesOfJobsHold(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	p.limit(t, control.Token{Produce: partition.Rate{Count: 4, Per: time.Hour}, Consume: partition.Rate{Count: 2, Per: time.Hour}})
	p.play([]step{
		{"PUT", "/api/ns/q/bulk", "[1,2,3,4,5]", nil, 429, `{"msg":"token(ID) produce reach the limit rate, please retry later"}`},
		{"PUT", "/api/ns/q/bulk", "[1,1]", nil, 201, `{"job_ids":["ID","ID"],"msg":"published"}`},
		{"PUT", "/api/ns/q", "1", nil, 201, published},
		{"PUT", "/api/ns/q/bulk", "[1,1]", nil, 429, `{"msg":"token(ID) produce reach the limit rate, please retry later"}`},
		// More than the rate allows goes back, all but one.
		{"GET", "/api/ns/q?count=9", "", nil, 200, "[" + jobOf("null", "MQ==", "q", 0, 86400) + "]"},
		{"GET", "/api/ns/e?count=2", "", nil, 404, noJob},
		{"GET", "/api/ns/q?count=2", "", nil, 200, "[" + jobOf("null", "MQ==", "q", 0, 86400) + "]"},
		{"GET", "/api/ns/q", "", nil, 429, `{"msg":"token(ID) consume reach the limit rate, please retry later"}`},
	})
	p.fake.fail(errDown)
	p.play([]step{{"PUT", "/api/ns/q", "1", nil, 500, text("internal error")}})
	p.fake.fail(nil)
	p.play([]step{{"PUT", "/api/ns/q", "1", nil, 201, published}}) // what failed was refunded
}

func TestAPublishWithAnUnknownOutcomeCountsAgainstTheRate(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	p.limit(t, control.Token{Produce: partition.Rate{Count: 1, Per: time.Hour}})
	p.fake.fail(partition.ErrUnknown) // it may be stored
	p.play([]step{{"PUT", "/api/ns/q", "1", nil, 500, text("internal error")}})
	p.fake.fail(nil)
	p.play([]step{{"PUT", "/api/ns/q", "1", nil, 429, `{"msg":"token(ID) produce reach the limit rate, please retry later"}`}})
}

func TestAnOutageIsNeverAQueueWithoutJobs(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	p.play([]step{{"PUT", "/api/ns/q", "x", nil, 201, published}})
	id := p.fake.of("q")[0].ID
	p.fake.fail(errDown)
	for _, c := range []string{"PUT ", "PUT /bulk", "PUT /job/" + id, "GET ", "GET /peek", "GET /job/" + id, "DELETE /job/" + id, "DELETE ", "GET /size", "GET /deadletter", "GET /deadletter/size", "PUT /deadletter", "DELETE /deadletter"} {
		method, rest, _ := strings.Cut(c, " ")
		p.play([]step{{method, "/api/ns/q" + rest, "[1]", nil, 500, text("internal error")}})
	}
	for _, err := range []error{job.ErrTooManyJobs, job.ErrTooManyQueues} {
		p.fake.fail(err)
		if r := p.do("PUT", "/api/ns/q", "x"); r.status != 429 || !strings.Contains(r.raw, `{"msg":"the namespace h`) {
			t.Errorf("%v: got %d %s", err, r.status, r.raw)
		}
	}
	p.fake.fail(jobs.ErrOverloaded) // a claim for which there is no memory
	if r := p.do("GET", "/api/ns/q?timeout=9", ""); r.status != 503 || r.header.Get("Retry-After") == "" {
		t.Errorf("got %d %s", r.status, r.raw)
	}
}

func TestALongPollEndsWithAJobTheTimeoutOrARevokedToken(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	answer := make(chan reply, 1)
	poll := func(query string) {
		go func() { answer <- p.do("GET", "/api/ns/a,q?"+query, "") }()
		<-p.fake.waiting
	}
	poll("timeout=599")
	p.play([]step{{"PUT", "/api/ns/q", "x", nil, 201, published}})
	if r := <-answer; r.status != 200 || r.body != jobOf("null", "eA==", "q", 0, 86400) {
		t.Errorf("got %d %s", r.status, r.body)
	}
	poll("timeout=1")
	if r := <-answer; r.status != 404 || r.body != noJob {
		t.Errorf("got %d %s", r.status, r.body)
	}
	poll("timeout=4294967295")
	if err := p.server.SetTokens(nil, []string{"ns"}); err != nil {
		t.Fatal(err)
	}
	p.fake.sleep(0)
	if r := <-answer; r.status != 401 || r.body != text("invalid token") {
		t.Errorf("got %d %s", r.status, r.body)
	}
}

func TestJobsWithoutMemoryForTheirAnswerGoBack(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	for range 64 {
		p.play([]step{{"PUT", "/api/ns/q", strings.Repeat("x", 1<<20), nil, 201, published}})
	}
	if r := p.do("GET", "/api/ns/q?count=64", ""); r.status != 503 || p.fake.requeued != 64 {
		t.Errorf("got %d, %d jobs went back, want 503 and 64", r.status, p.fake.requeued)
	}
	if r := p.do("GET", "/api/ns/q?count=4", ""); r.status != 200 {
		t.Errorf("got %d, want 200", r.status)
	}
}

// Not parallel: it measures what the whole process allocates.
func TestAnAnswerIsReservedBeforeItIsMade(t *testing.T) {
	p := listen(t, nil)
	large := make([]byte, 1<<20)
	messages := make([]job.Message, 64)
	for i := range messages {
		messages[i].Payload = large
	}
	p.fake.Publish(&job.Publish{Namespace: p.fake.Namespaces["ns"], Queue: "q", Tries: 1, Messages: messages})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r := p.do("GET", "/api/ns/q?count=64", "")
	runtime.ReadMemStats(&after)
	if r.status != 503 {
		t.Fatalf("got %d, want 503", r.status)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
		t.Errorf("a claim that is rejected for want of memory allocates %d MiB", took>>20)
	}
}

func TestAClaimWithoutMemoryForItsAnswerCostsTheTokenNothing(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	p.limit(t, control.Token{Consume: partition.Rate{Count: 64, Per: time.Hour}})
	for range 64 {
		p.play([]step{{"PUT", "/api/ns/q", strings.Repeat("x", 1<<20), nil, 201, published}})
	}
	for range 2 {
		if r := p.do("GET", "/api/ns/q?count=64", ""); r.status != 503 {
			t.Errorf("got %d, want 503", r.status)
		}
	}
	if r := p.do("GET", "/api/ns/q?count=4", ""); r.status != 200 || strings.Count(r.raw, "job_id") != 4 {
		t.Errorf("got %d and %d jobs, want 200 and 4", r.status, strings.Count(r.raw, "job_id"))
	}
}

func TestSizesWithoutATokenAreReadOnceASecondForAll(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	p.fake.held = make(chan struct{})
	answers := make(chan reply)
	const clients = 50
	for range clients {
		go func() { answers <- p.do("GET", "/api/ns/q/size", "", headerToken+": none") }()
	}
	for p.fake.holding.Load() == 0 {
		runtime.Gosched()
	}
	go func() { answers <- p.do("GET", "/api/ns/q/size", "") }() // with its token
	for p.fake.holding.Load() < 2 {
		runtime.Gosched()
	}
	close(p.fake.held)
	for range clients + 1 {
		if r := <-answers; r.status != 200 || r.raw != `{"namespace":"ns","queue":"q","size":0}` {
			t.Errorf("got %d %s", r.status, r.raw)
		}
	}
	// The 50 may have come in two different seconds.
	if reads := p.fake.holding.Load(); reads > 3 {
		t.Errorf("%d reads for %d requests without a token and one with", reads, clients)
	}
}
