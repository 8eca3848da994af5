package ingest

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// constants reads the values of all constants of a type from wire/codes.go, so
// that no test forgets a new one.
func constants(t *testing.T, typeName string) (values []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "wire/codes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if name, ok := spec.Type.(*ast.Ident); ok && name.Name == typeName {
			value, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			values = append(values, value)
		}
		return true
	})
	return values
}

func TestEveryCodeHasItsRow(t *testing.T) {
	t.Parallel()
	codes := constants(t, "Code")
	if len(codes) != len(wire.Responses) {
		t.Errorf("%d codes, %d rows", len(codes), len(wire.Responses))
	}
	for _, code := range codes {
		f, ok := wire.Responses[wire.Code(code)]
		if !ok || f.Status < 400 || f.Message == "" {
			t.Errorf("%s: row %+v", code, f)
		}
		if wantRetry := f.Status == 429 || f.Status == 503; wantRetry != (f.RetryAfter != "") {
			t.Errorf("%s: %d with Retry-After %q", code, f.Status, f.RetryAfter)
		}
		if strings.ContainsAny(f.Message, "\"\n") {
			t.Errorf("%s: %q needs escaping", code, f.Message)
		}
	}
	for _, reason := range constants(t, "Reason") {
		counted := reason == string(wire.ReasonUnskewed) || reason == string(wire.ReasonLooksCompressed) || reason == string(wire.ReasonLooksBatched)
		for _, r := range rejectionReasons {
			counted = counted || reason == string(r)
		}
		if !counted {
			t.Errorf("%s is not counted", reason)
		}
	}
}

// TestEveryCodeCanBeReached makes a server answer with each row of the table.
// framing_test.go tests the rows of framing in depth, handle_test.go timeouts.
func TestEveryCodeCanBeReached(t *testing.T) {
	t.Parallel()
	reached := map[string]*reply{}
	note := func(r *reply) {
		reached[r.body.Error] = r
	}
	store := newFake()
	p := listenTCP(t, store, func(c *Config) {
		c.MaxBody, c.MaxEntry, c.MaxEntries = 5000, 1000, 2
		c.Mounts = []Mount{{Name: "reject", Prefix: "/reject/", Handler: func(x *Exchange) *Rejection {
			return Reject(wire.Code(strings.TrimPrefix(string(x.Path()), "/reject/")), "")
		}}}
	})
	raw := func(text string) *reply {
		r, _ := p.raw(text)
		return r
	}
	note(p.post("/v1/default/%70", "x"))
	note(p.post("/v1/default/p", ""))
	note(p.post("/v1/default/p", "\n", asNDJSON))
	note(p.post("/v1/default", "{", asNDJSON))
	note(p.post("/v1/default/p", "{", asJSON))
	note(p.post("/v1/default/-", "x"))
	note(p.post("/v1/-/p", "x"))
	note(p.post("/v1/default/p", "x", "X-Sent-At: x"))
	note(p.post("/v1/default/p", "x", "X-Client-Discards: x"))
	note(p.post("/v1/default/p", "x", "Content-Encoding: gzip"))
	note(p.post("/v1/nobody/p", "x"))
	note(p.post("/v1/default/p", "x", "Origin: http://evil.example"))
	note(raw("GET /v1/default/p HTTP/1.1\r\nHost: evil.example\r\n\r\n"))
	note(p.do("GET", "/v1/default/p", ""))
	note(p.post("/nowhere", "x"))
	note(p.do("PUT", "/v1/default/p", "x"))
	impatient := listenTCP(t, newFake(), hasty)
	late, _ := impatient.raw(request11("POST /v1/default/p", "Content-Length: 9\r\n", "x"))
	note(late)
	note(p.post("/v1/default/p", strings.Repeat("x", 5001)))
	note(p.post("/v1/default/p", "1\n2\n3", asNDJSON))
	note(p.post("/v1/default/p", strings.Repeat("x", 1001)))
	note(p.post("/v1/default/p", "x", "Content-Encoding: br"))
	note(p.post("/v1/default", "x"))
	note(raw(request11("POST /v1/default/p", "X: "+strings.Repeat("x", 9000)+"\r\n", "")))
	note(raw("GET /livez HTTP/9.9\r\n\r\n"))
	for _, code := range []wire.Code{ // the package jobs reaches them
		wire.CodeBadQueue, wire.CodeBadParameter, wire.CodeBadDelay, wire.CodeBadTTL, wire.CodeBadAfter, wire.CodeBadReason, wire.CodeBadError, wire.CodeBadAge, wire.CodeBadTries, wire.CodeBadID, wire.CodeBadShards, wire.CodeBadDedup,
		wire.CodeBadCount, wire.CodeBadTTR, wire.CodeBadWait, wire.CodeBadState, wire.CodeBadStep, wire.CodeBadSteps, wire.CodeBadDo, wire.CodeBadLimit, wire.CodeBadOffset,
		wire.CodeBadSchedule, wire.CodeBadName, wire.CodeBadAt, wire.CodeBadFrom, wire.CodeBadTo, wire.CodeBadForce, wire.CodeBadOnEnd, wire.CodeBadUnique, wire.CodeBadUniqueKey, wire.CodeBadOnConflict, wire.CodeBadPrepare, wire.CodeBadCheck, wire.CodeBadCheckAfter, wire.CodeBadChecks, wire.CodeBadDelayMS, wire.CodeBadData, wire.CodeBadVersion, wire.CodeBadSchedules, wire.CodeNoSuchOwner, wire.CodeOtherOwner, wire.CodeOldVersion, wire.CodeNoSuchTrace, wire.CodeNoSuchQueue, wire.CodeForeignType, wire.CodeBadJob, wire.CodeNotDelayed, wire.CodePrepared, wire.CodeNotPrepared, wire.CodeAlreadyDecided, wire.CodeNoSuchSchedule, wire.CodeRunUnfinished, wire.CodeScheduleEnded,
		wire.CodeRevisionMismatch, wire.CodeTooManySchedules, wire.CodeHungUp, wire.CodeNoSuchJob, wire.CodeTooManyJobs, wire.CodeTooManyQueues,
	} {
		note(p.do("GET", "/reject/"+string(code), ""))
	}
	store.produce = failWith(partition.ErrTooManyPartitions)
	note(p.post("/v1/default/p", "x"))
	store.produce = failWith(partition.ErrTooManyKeys)
	note(p.post("/v1/default/p", "x", "Idempotency-Key: k"))
	store.produce = failWith(partition.ErrFull)
	note(p.post("/v1/default/p", "x"))
	store.produce = failWith(partition.ErrUnknown)
	note(p.post("/v1/default/p", "x"))
	store.now = func() (int64, bool) { panic("a bug") }
	note(p.post("/v1/default/p", "x"))
	store.now = func() (int64, bool) { return now, true }
	p.memory.Held.Give(-p.cfg.MaxInflightBytes)
	note(p.post("/v1/default/p", "x"))
	p.memory.Held.Give(p.cfg.MaxInflightBytes)
	p.SetReady(func() error { return errors.New("the store's \"clock\" is unknown\n") })
	note(p.do("GET", "/readyz", ""))
	p.stopping.Store(true)
	note(p.post("/v1/default/p", "x"))

	withToken := listen(t, newFake(), func(c *Config) {
		c.MaxEntries = 2
		c.Tokens = map[string][]Token{"small": {{Hash: hashOf("slow"), Rate: Quota{2, time.Second}}}}
	})
	note(withToken.post("/v1/small/p", "x"))
	note(withToken.post("/v1/other/p", "x", bearerHeader("slow")))
	for reached["rate_limited"] == nil {
		note(withToken.post("/v1/small/p", "1\n2", asNDJSON, bearerHeader("slow")))
	}

	for code, f := range wire.Responses {
		r := reached[string(code)]
		if r == nil {
			t.Errorf("%s was not reached", code)
			continue
		}
		if r.status != f.Status || r.header.Get("Retry-After") != f.RetryAfter || r.body.Message == "" {
			t.Errorf("%s: got %d, Retry-After %q, %s", code, r.status, r.header.Get("Retry-After"), r.raw)
		}
		counted := 0.
		for _, of := range []*port{p, withToken, impatient} {
			counted += of.metric("rejections_total", string(code))
		}
		if counted == 0 {
			t.Errorf("%s is not counted", code)
		}
	}
	if scope := reached["too_many_partitions"].body.Scope; scope != "namespace" {
		t.Errorf("too_many_partitions has scope %q", scope)
	}
	if scope := reached["rate_limited"].body.Scope; scope != "token" {
		t.Errorf("rate_limited has scope %q", scope)
	}
	if challenge := reached["unauthorized"].header.Get("WWW-Authenticate"); challenge != "Bearer" {
		t.Errorf("unauthorized challenges with %q", challenge)
	}
	if outcome := reached["store_unavailable"].body.Outcome; outcome != "unknown" {
		t.Errorf("an unknown outcome is answered %q", outcome)
	}
	if message := reached["not_ready"].body.Message; message != "not ready: the store's \"clock\" is unknown\n" {
		t.Errorf("the reason reads %q", message)
	}
}

func TestStoreErrorsAreAnsweredByTheTable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err           error
		status        int
		code, outcome string
	}{
		{partition.ErrUnavailable, 503, "store_unavailable", ""},
		{partition.ErrFull, 503, "store_full", ""},
		{partition.ErrUnknown, 503, "store_unavailable", "unknown"},
		{partition.ErrBroken, 503, "store_unavailable", ""},
		{errors.New("anything else"), 503, "store_unavailable", "unknown"},
	} {
		store := newFake()
		store.produce = failWith(c.err)
		r := listen(t, store, nil).post("/v1/default/p", "x")
		if r.status != c.status || r.body.Error != c.code || r.body.Outcome != c.outcome {
			t.Errorf("%v: got %d %s", c.err, r.status, r.raw)
		}
	}
}

func TestABodyThatIsProbablyAMistakeIsStoredWithAWarning(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	const compressed, batched = "0:warning/looks_compressed", "0:warning/looks_batched"
	for _, row := range []struct{ name, body, kind, want string }{
		{"gzip without its header", gzipped(t, "lap 3"), "text/plain", compressed},
		{"zstd without its header", zstded(t, "lap 3"), "", compressed},
		{"gzip as NDJSON", gzipped(t, "{}\n{}"), "application/x-ndjson", compressed},
		{"NDJSON as text", "{\"a\":1}\n{\"a\":2}\n", "text/plain", batched},
		{"NDJSON with CR LF", "\r\n{\"a\":1}\r\n[2]\r\n", "application/octet-stream", batched},
		{"NDJSON that ends badly", "{\"a\":1}\n{\"a\":2}\n{", "", batched},

		{"one object", `{"a":1}`, "text/plain", ""},
		{"one object and a line feed", "{\"a\":1}\n", "text/plain", ""},
		{"an object over two lines", "{\"a\":\n1}", "text/plain", ""},
		{"an object as JSON", "{\"a\":\n1}", "application/json", ""},
		{"a list as text", "[1,2]", "text/plain", ""},
		{"numbers", "1\n2\n", "text/plain", ""},
		{"an object and text", "{\"a\":1}\nlap", "text/plain", ""},
		{"text and an object", "lap\n{\"a\":1}\n{}", "text/plain", ""},
		{"half a magic number", "\x1f\x8b", "text/plain", ""},
		{"NDJSON", "{\"a\":1}\n{\"a\":2}\n", "application/x-ndjson", ""},
		{"a JSON string that has lines", `"{}\n{}"`, "application/json", ""},
	} {
		r := p.post("/v1/default/p", row.body, "Content-Type: "+row.kind)
		if r.status != 200 || r.body.Rejected != 0 || r.results() != row.want {
			t.Errorf("%s: got %d %s, want %q", row.name, r.status, r.raw, row.want)
		}
	}
	minimal := p.post("/v1/default/p", "{}\n{}", "Prefer: return=minimal")
	if minimal.status != 200 || minimal.results() != batched {
		t.Errorf("with return=minimal: got %d %s", minimal.status, minimal.raw)
	}
	twice := p.post("/v1/default/p", gzipped(t, gzipped(t, "x")), "Content-Encoding: gzip")
	if twice.results() != compressed {
		t.Errorf("compressed twice: got %s", twice.raw)
	}
	p.beacon("/beacon/default/p", gzipped(t, "x"))
	eventually(t, func() bool { return p.metric("suspected_mistakes_total", "default", "looks_compressed") == 5 })
	if got := p.metric("suspected_mistakes_total", "default", "looks_batched"); got != 4 {
		t.Errorf("%v looked batched, want 4", got)
	}
}

func TestAnEntryHasOneResult(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), func(c *Config) { c.MaxEntry = 16 })
	const old = "X-Event-Ts: 1"
	if r := p.post("/v1/default/p", "{}\n{}", old); r.results() != "0:warning/unskewed" {
		t.Errorf("got %s", r.raw)
	}
	body := "\x1f\x8b\x08" + strings.Repeat("x", 20)
	if r := p.post("/v1/default/p", body+"\n1", asNDJSON); r.results() != "0:drop/too_large" {
		t.Errorf("got %s", r.raw)
	}
	if r := p.post("/v1/default/p", "\x1f\x8b\x08\n"+body, asNDJSON); r.results() != "0:warning/looks_compressed 1:drop/too_large" {
		t.Errorf("got %s", r.raw)
	}
}
