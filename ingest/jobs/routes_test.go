package jobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/verb"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// TestEachRejectionOfARouteHasItsCode is the table of what clients do wrong.
func TestEachRejectionOfARouteHasItsCode(t *testing.T) {
	t.Parallel()
	p := served(t, nil, func(c *ingest.Config) { c.MaxBody = 200_000 })
	big := strings.Repeat("x", 33<<10)
	long := strings.Repeat("q", 256)
	many := strings.Repeat("q,", 3) + strings.Join(slices.Collect(func(yield func(string) bool) {
		for i := range 65 {
			if !yield(fmt.Sprint("q", i)) {
				return
			}
		}
	}), ",")
	for _, c := range []struct {
		method, path, body string
		status             int
		code               wire.Code
		headers            []string
	}{
		{"POST", "/v1/mail/q?delay=5", "x", 400, "bad_delay", nil},
		{"POST", "/v1/mail/q?delay=-5s", "x", 400, "bad_delay", nil},
		{"POST", "/v1/mail/q?on_end=", "x", 400, "bad_on_end", nil},
		{"POST", "/v1/mail/q?on_end=_out", "x", 400, "bad_on_end", nil},
		{"POST", "/v1/mail/q?on_end=a%20b", "x", 400, "bad_on_end", nil},
		{"POST", "/v1/mail/_out", "x", 400, "bad_queue", nil},
		{"POST", "/v1/mail/_out/claim", "", 400, "bad_queue", nil},
		{"POST", "/v1/mail/q?delay=", "x", 400, "bad_delay", nil},
		{"POST", "/v1/mail/q?delay=1200000h", "x", 400, "bad_delay", nil},
		{"POST", "/v1/mail/q?ttl=x", "x", 400, "bad_ttl", nil},
		{"POST", "/v1/mail/q?ttl=5s&delay=5s", "x", 400, "bad_ttl", nil},
		{"POST", "/v1/mail/q?tries=0", "x", 400, "bad_tries", nil},
		{"POST", "/v1/mail/q?tries=65536", "x", 400, "bad_tries", nil},
		{"POST", "/v1/mail/q?tries=%2b1", "x", 400, "bad_tries", nil},
		{"POST", "/v1/mail/q?tries=18446744073709551617", "x", 400, "bad_tries", nil},
		{"POST", "/v1/mail/q?id=", "x", 400, "bad_id", nil},
		{"POST", "/v1/mail/q?id=a.b", "x", 400, "bad_id", nil},
		{"POST", "/v1/mail/q?id=" + strings.Repeat("x", 65), "x", 400, "bad_id", nil},
		{"POST", "/v1/mail/q?id=a", "[1,2]", 400, "bad_id", []string{asJSON}},
		{"POST", "/v1/mail/q?shards=0", "x", 400, "bad_shards", nil},
		{"POST", "/v1/mail/q?shards=1001", "x", 400, "bad_shards", nil},
		{"POST", "/v1/mail/q?shards=2&id=a", "x", 400, "bad_shards", nil},
		{"POST", "/v1/mail/q?shards=2", "[1,2]", 400, "bad_shards", []string{asJSON}},
		{"POST", "/v1/mail/q?dedup=25h", "x", 400, "bad_dedup", []string{"Idempotency-Key: k"}},
		{"POST", "/v1/mail/q?dedup=1h", "x", 400, "bad_dedup", nil},
		{"POST", "/v1/mail/q?unique=0s&unique_key=a", "x", 400, "bad_unique", nil},
		{"POST", "/v1/mail/q?unique=0&id=a", "x", 400, "bad_unique", nil},
		{"POST", "/v1/mail/q?unique=87600h&id=a", "x", 400, "bad_unique", nil},
		{"POST", "/v1/mail/q?unique=1m", "x", 400, "bad_unique", nil},
		{"POST", "/v1/mail/q?unique=1m&unique_key=a&shards=2", "x", 400, "bad_unique", nil},
		{"POST", "/v1/mail/q?unique=1m&unique_key=a", "[1,2]", 400, "bad_unique", []string{asJSON}},
		{"POST", "/v1/mail/q?unique_key=a", "x", 400, "bad_unique_key", nil},
		{"POST", "/v1/mail/q?unique=1m&unique_key=", "x", 400, "bad_unique_key", nil},
		{"POST", "/v1/mail/q?unique=1m&unique_key=a&id=b", "x", 400, "bad_unique_key", nil},
		{"POST", "/v1/mail/q?unique=1m&unique_key=a%0ab", "x", 400, "bad_unique_key", nil},
		{"POST", "/v1/mail/q?unique=1m&unique_key=%ff", "x", 400, "bad_unique_key", nil},
		{"POST", "/v1/mail/q?unique=1m&unique_key=" + strings.Repeat("k", 1024), "x", 400, "bad_unique_key", nil},
		{"POST", "/v1/mail/q?on_conflict=keep", "x", 400, "bad_on_conflict", nil},
		{"POST", "/v1/mail/q?unique=1m&id=a&on_conflict=drop", "x", 400, "bad_on_conflict", nil},
		{"GET", "/v1/mail/q/jobs/0ATN8Z2M3QF6Y00000G4S7W1KX?wait=1s", "", 404, "no_such_job", nil},
		{"POST", "/v1/mail/q?dealy=5s", "x", 400, "bad_parameter", nil},
		{"POST", "/v1/mail/q?x=1", "x", 400, "bad_parameter", nil},
		{"POST", "/v1/mail/q?delay=5s&delay=6s", "x", 400, "bad_parameter", nil},
		{"POST", "/v1/mail/q", "x", 400, "bad_header", []string{"Idempotency-Key: " + strings.Repeat("k", 129)}},
		{"POST", "/v1/mail/q", "", 400, "empty_body", nil},
		{"POST", "/v1/mail/q", "\n\n", 400, "empty_batch", []string{asNDJSON}},
		{"POST", "/v1/mail/q", "[]", 400, "empty_batch", []string{asJSON}},
		{"POST", "/v1/mail/q", "{", 400, "bad_json", []string{asJSON}},
		{"POST", "/v1/mail/q", big, 413, "entry_too_large", nil},
		{"POST", "/v1/mail/q", "1\n" + big, 413, "entry_too_large", []string{asNDJSON}},
		{"POST", "/v1/mail/q", strings.Repeat("1\n", 1001), 413, "too_many_entries", []string{asNDJSON}},
		{"POST", "/v1/mail/q", strings.Repeat("x", 200_001), 413, "body_too_large", nil},
		{"POST", "/v1/mail/q", "x", 415, "unsupported_encoding", []string{"Content-Encoding: br"}},

		{"POST", "/v1/mail/_q", "x", 400, "bad_queue", nil},
		{"POST", "/v1/mail/.q", "x", 400, "bad_queue", nil},
		{"POST", "/v1/mail/" + long, "x", 400, "bad_queue", nil},
		{"POST", "/v1/mail/q,r", "x", 400, "bad_queue", nil},
		{"POST", "/v1/mail/q,r/settle", "x", 400, "bad_queue", nil},
		{"POST", "/v1/mail/q,/claim", "", 400, "bad_queue", nil},
		{"POST", "/v1/mail/" + many + "/claim", "", 400, "bad_queue", nil},
		{"POST", "/v1/mail/q/claim?count=0", "", 400, "bad_count", nil},
		{"POST", "/v1/mail/q/claim?count=1001", "", 400, "bad_count", nil},
		{"POST", "/v1/mail/q/claim?ttr=0s", "", 400, "bad_ttr", nil},
		{"POST", "/v1/mail/q/take?ttr=60", "", 400, "bad_ttr", nil},
		{"POST", "/v1/mail/q/take?ttr=721h", "", 400, "bad_ttr", nil},
		{"POST", "/v1/mail/q/claim?wait=10m1s", "", 400, "bad_wait", nil},
		{"POST", "/v1/mail/q/claim?wait=-1s", "", 400, "bad_wait", nil},
		{"POST", "/v1/mail/q/claim?timeout=1s", "", 400, "bad_parameter", nil},

		{"POST", "/v1/mail/q/settle?x=1", "{}", 400, "bad_parameter", nil},
		{"POST", "/v1/mail/q/settle", "", 400, "empty_body", nil},
		{"POST", "/v1/mail/q/settle", "\n", 400, "empty_batch", nil},
		{"POST", "/v1/mail/q/settle", strings.Repeat("{}\n", 1001), 413, "too_many_entries", nil},

		{"DELETE", "/v1/mail/q", "", 400, "bad_state", nil},
		{"DELETE", "/v1/mail/q?state=dead", "", 400, "bad_state", nil},
		{"GET", "/v1/mail/q/forecast?step=1ms", "", 400, "bad_step", nil},
		{"GET", "/v1/mail/q/forecast?steps=1001", "", 400, "bad_steps", nil},
		{"GET", "/v1/mail/q/dead?limit=0", "", 400, "bad_limit", nil},
		{"GET", "/v1/mail/q/dead?limit=101", "", 400, "bad_limit", nil},
		{"GET", "/v1/mail/q/dead?offset=-1", "", 400, "bad_offset", nil},
		{"GET", "/v1/mail/q/dead?offset=1000000001", "", 400, "bad_offset", nil},
		{"GET", "/v1/mail/q/dead?do=respawn", "", 400, "bad_parameter", nil},
		{"POST", "/v1/mail/q/dead", "", 400, "bad_do", nil},
		{"POST", "/v1/mail/q/dead?do=burn", "", 400, "bad_do", nil},
		{"POST", "/v1/mail/q/dead?do=delete&limit=0", "", 400, "bad_limit", nil},
		{"POST", "/v1/mail/q/dead?do=delete&limit=10001", "", 400, "bad_limit", nil},
		{"POST", "/v1/mail/q/dead?do=respawn&ttl=-1s", "", 400, "bad_ttl", nil},
		{"POST", "/v1/mail/q/dead?do=delete&ttl=1s", "", 400, "bad_ttl", nil},
		{"POST", "/v1/mail/q/dead?do=delete&reason=bored", "", 400, "bad_reason", nil},
		{"POST", "/v1/mail/q/dead?do=delete&error=" + strings.Repeat("x", 1025), "", 400, "bad_error", nil},
		{"POST", "/v1/mail/q/dead?do=delete&error=", "", 400, "bad_error", nil},
		{"POST", "/v1/mail/q/dead?do=delete&age=x", "", 400, "bad_age", nil},
		{"POST", "/v1/mail/q/dead?do=delete&limit=1", `{"ids":["x"]}`, 400, "bad_parameter", nil},
		{"POST", "/v1/mail/q/dead?do=delete", `{"ids":[]}`, 400, "bad_json", nil},
		{"POST", "/v1/mail/q/dead?do=delete", `{"ids":["x"],"id":"y"}`, 400, "bad_json", nil},
		{"POST", "/v1/mail/q/dead?do=delete", `{"ids":["x"]}{}`, 400, "bad_json", nil},
		{"POST", "/v1/mail/q/dead?do=delete", `{"ids":["x"` + strings.Repeat(`,"x"`, 1000) + `]}`, 400, "bad_json", nil},
		{"POST", "/v1/mail/q/jobs/x/promote", "", 404, "no_such_job", nil},
		{"GET", "/v1/mail/q/peek", "", 404, "no_such_job", nil},
		{"GET", "/v1/mail/q/jobs/x", "", 404, "no_such_job", nil},
		{"DELETE", "/v1/mail/q/jobs/00000000000000000000000000", "", 404, "no_such_job", nil},

		{"PATCH", "/v1/mail/q/jobs/x?delay=1s", `{"delay_ms":1}`, 400, "bad_parameter", nil},
		{"PATCH", "/v1/mail/q/jobs/x", "", 400, "empty_body", nil},
		{"PATCH", "/v1/mail/q/jobs/x", "{}", 400, "bad_json", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `[{"delay_ms":1}]`, 400, "bad_json", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"delay_ms":1} {}`, 400, "bad_json", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"delay":1}`, 400, "bad_json", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"DELAY_MS":1}`, 400, "bad_json", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"delay_ms":1,"delay_ms":1}`, 400, "bad_json", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"data":1,"d\u0061ta":1}`, 400, "bad_json", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"data":` + strings.Repeat("[", 10_000) + strings.Repeat("]", 10_000) + "}", 400, "bad_json", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"tries":5}`, 400, "bad_json", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"delay_ms":-1}`, 400, "bad_delay_ms", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"delay_ms":1.5}`, 400, "bad_delay_ms", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"delay_ms":1e3}`, 400, "bad_delay_ms", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"delay_ms":"1"}`, 400, "bad_delay_ms", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"delay_ms":null}`, 400, "bad_delay_ms", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"delay_ms":4294967296001}`, 400, "bad_delay_ms", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"delay_ms":18446744073709551617}`, 400, "bad_delay_ms", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"delay_ms":1,"at":"2100-01-01T00:00:00Z"}`, 400, "bad_at", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"at":"1970-01-01T00:00:05Z"}`, 400, "bad_at", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"at":"0000-01-01T00:00:00Z"}`, 400, "bad_at", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"at":"9999-01-01T00:00:00Z"}`, 400, "bad_at", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"at":5000000}`, 400, "bad_at", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"at":null}`, 400, "bad_at", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"data":1,"data_base64":"eA=="}`, 400, "bad_data", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"data_base64":"e"}`, 400, "bad_data", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"data_base64":[120]}`, 400, "bad_data", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"data_base64":null}`, 400, "bad_data", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"data":"` + big + `"}`, 413, "entry_too_large", nil},
		{"PATCH", "/v1/mail/q/jobs/x", `{"data":"` + strings.Repeat("x", 200_001) + `"}`, 413, "body_too_large", nil},
		{"PATCH", "/v1/mail/q/jobs/00000000000000000000000000", `{"delay_ms":1}`, 404, "no_such_job", nil},
		{"PATCH", "/v1/mail/_q/jobs/x", `{"delay_ms":1}`, 400, "bad_queue", nil},
		{"PATCH", "/v1/mail/q", `{"delay_ms":1}`, 405, "method_not_allowed", nil},

		{"GET", "/v1/mail/q/claim", "", 405, "method_not_allowed", nil},
		{"PUT", "/v1/mail/q", "", 405, "method_not_allowed", nil},
		{"POST", "/v1/mail", "x", 404, "no_such_route", nil},
		{"POST", "/v1/mail/", "x", 404, "no_such_route", nil},
		{"POST", "/v1/mail/q/", "x", 404, "no_such_route", nil},
		{"POST", "/v1/mail/q", "x", 200, "", nil},
		{"GET", "/v1/mail/q/", "", 404, "no_such_route", nil},
		{"DELETE", "/v1/mail/q/?state=all", "", 404, "no_such_route", nil},
		{"GET", "/v1/mail/q/jobs/", "", 404, "no_such_route", nil},
		{"GET", "/v1/mail/q/_schedules", "", 404, "no_such_route", nil},
		{"GET", "/v1/mail/q/_owners", "", 404, "no_such_route", nil},
		{"POST", "/v1/mail/q/_times", "x", 404, "no_such_route", nil},
		{"GET", "/v1/mail/q/jobs/a/b", "", 404, "no_such_route", nil},
		{"POST", "/v1/nobody/q", "x", 404, "no_such_namespace", nil},
	} {
		r := p.do(c.method, c.path, c.body, c.headers...)
		if r.status != c.status || r.Error != string(c.code) {
			t.Errorf("%s %.80s %.20q: got %d %.300s, want %d %s", c.method, c.path, c.body, r.status, r.raw, c.status, c.code)
		}
		if r.status >= 400 && p.metric("rejections_total", r.Error) == 0 {
			t.Errorf("%s is not counted", r.Error)
		}
	}
	if r := p.do("PUT", "/v1/mail/q/jobs/x", ""); r.header.Get("Allow") != "GET, HEAD, PATCH, DELETE, OPTIONS" {
		t.Errorf("Allow: %q", r.header.Get("Allow"))
	}
	if runs, _ := p.store.ran(); runs != 1 {
		t.Errorf("the store was asked %d times", runs)
	}
}

func TestErrorsOfTheStoreAreAnswered(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	id := p.do("POST", "/v1/mail/q", "x").IDs[0]
	routes := []struct{ method, path, body string }{
		{"POST", "/v1/mail/q", "x"}, {"POST", "/v1/mail/q/claim", ""}, {"POST", "/v1/mail/q/claim?wait=10ms", ""}, {"POST", "/v1/mail/q/settle", `{"id":"` + id + `","do":"nack"}`},
		{"POST", "/v1/mail/q/settle", `{"id":"` + id + `","do":"ack"}`}, {"DELETE", "/v1/mail/q/jobs/" + id, ""},
		{"GET", "/v1/mail/q", ""}, {"GET", "/v1/mail/q/peek", ""}, {"GET", "/v1/mail/q/forecast", ""}, {"GET", "/v1/mail/q/dead", ""}, {"GET", "/v1/mail/q/jobs/" + id, ""},
		{"DELETE", "/v1/mail/q?state=all", ""}, {"POST", "/v1/mail/q/dead?do=respawn", ""}, {"POST", "/v1/mail/q/dead?do=delete", ""},
	}
	for _, c := range []struct {
		err     error
		status  int
		code    string
		unknown bool
	}{
		{partition.ErrUnavailable, 503, "store_unavailable", false},
		{partition.ErrFull, 503, "store_full", false},
		{partition.ErrBroken, 503, "store_unavailable", false},
		{partition.ErrUnknown, 503, "store_unavailable", true},
		{fmt.Errorf("a slow replica: %w", partition.ErrUnconfirmed), 503, "store_unavailable", true},
		{job.ErrTooManyJobs, 429, "too_many_jobs", false},
		{job.ErrTooManyQueues, 429, "too_many_queues", false},
		{job.ErrBadArgument, 500, "internal", false},
	} {
		p.store.With(func() {
			p.store.Fail = func(*job.Batch) error { return c.err }
			p.store.readErr = c.err
		})
		for _, route := range routes {
			r := p.do(route.method, route.path, route.body)
			want := c.unknown && (route.method != "GET" || c.err != partition.ErrUnknown)
			if r.status != c.status || r.Error != c.code || (r.Outcome == "unknown") != want {
				t.Errorf("%v, %s %s: got %d %s", c.err, route.method, route.path, r.status, r.raw)
			}
			if retry := r.header.Get("Retry-After"); (retry == "") != (c.status == 500) {
				t.Errorf("%v: Retry-After %q", c.err, retry)
			}
		}
	}
}

func TestSettleAnswersEachLine(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	p.do("POST", "/v1/mail/q", "[1,2,3,4,5,6]", asJSON)
	jobs := p.do("POST", "/v1/mail/q/claim?count=5", "").Jobs
	other := p.do("POST", "/v1/mail/r", "x").IDs[0]
	ready := p.do("GET", "/v1/mail/q/peek", "")
	var next struct{ ID string }
	if err := json.Unmarshal([]byte(ready.raw), &next); err != nil || ready.State != "ready" {
		t.Fatalf("%s: %v", ready.raw, err)
	}
	var body bytes.Buffer
	var want []string
	line := func(result, format string, args ...any) {
		fmt.Fprintf(&body, format+"\n", args...)
		want = append(want, result)
	}
	line("acked", `{"id":%q,"attempt":1,"do":"ack"}`, jobs[0].ID)
	line("ready", `{"id":%q,"attempt":1,"do":"nack","ms":0}`, jobs[1].ID)
	line("dead", `{"id":%q,"attempt":1,"do":"bury","error":"no \\u0000 such user"}`, jobs[2].ID)
	line("leased", `{"id":%q,"attempt":1,"do":"touch","ms":5000}`, jobs[3].ID)
	line("ready", `{"id":%q,"do":"requeue"}`, jobs[4].ID)
	line("leased", `{"id":%q,"attempt":1,"do":"touch","ms":5000,"progress":40,"note":"row 7"}`, jobs[3].ID)
	line("leased", `{"id":%q,"attempt":1,"do":"touch","ms":5000,"progress":null}`, jobs[3].ID)
	line("gone", `{"id":%q,"attempt":2,"do":"nack"}`, jobs[3].ID)
	line("dead", `{"id":%q,"do":"kill"}`, jobs[3].ID)
	line("gone", `{"id":%q,"do":"ack"}`, other) // of another queue
	line("gone", `{"id":"%s-order-17","do":"nack"}`, jobs[3].ID)
	line("deleted", `{"id":%q,"do":"ack"}`, next.ID)
	for _, wrong := range []string{
		`{"id":"ID","do":"ack","error":"no"}`, `{"id":"ID","do":"nack","error":7}`, `{"id":"ID"}`, `{"id":"ID","do":"eat"}`, `{`, `[]`, `{"id":"ID","do":"ack"}{}`, `{"id":"ID","do":"ack","attempt":-1}`, `{"id":"ID","do":"ack","attempt":2147483648}`,
		`{"id":"ID","do":"ack","attempt":1.5}`, `{"id":"ID","do":"nack","ms":-1}`, `{"id":"ID","do":"nack","ms":2592000001}`, `{"id":"ID","do":"nack","ms":99999999999999999999}`,
		`{"id":"ID","do":"ack","ms":1}`, `{"id":"ID","do":"touch"}`, `{"id":"ID","do":"ack","when":1}`, `{"id":7,"do":"ack"}`,
		`{"id":"ID","do":"touch","ms":1,"progress":101}`, `{"id":"ID","do":"touch","ms":1,"progress":-1}`, `{"id":"ID","do":"touch","ms":1,"progress":"7"}`, `{"id":"ID","do":"touch","ms":1,"progress":0.5}`,
		`{"id":"ID","do":"touch","ms":1,"note":"x"}`, `{"id":"ID","do":"touch","ms":1,"progress":1,"note":7}`, `{"id":"ID","do":"ack","progress":1}`, `{"id":"ID","do":"defer","ms":1,"progress":1}`,
	} {
		line("bad_item", "%s", strings.ReplaceAll(wrong, "ID", jobs[3].ID))
	}
	r := p.do("POST", "/v1/mail/q/settle", body.String())
	if r.status != 200 || len(r.Results) != len(want) {
		t.Fatalf("got %d %s", r.status, r.raw)
	}
	for i, x := range r.Results {
		if x.I != i || x.State+x.Error != want[i] || (x.Error != "") != (x.Message != "") {
			t.Errorf("line %d, %s: got %+v, want %s", i, strings.Split(body.String(), "\n")[i], x, want[i])
		}
	}
}

func TestRoutesOfQueuesOnABufferSayThatItNeedsTheKind(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	for _, r := range routes {
		if r.tail == "" || r.method == "DELETE" || r.method == "PUT" || r.method == "PATCH" { // those of a partition; 405
			continue
		}
		tail := strings.NewReplacer("{job}", "x", "{schedule}", "daily", "{owner}", "billing").Replace(r.tail)
		path := "/v1/tele/q/" + tail
		if strings.HasPrefix(tail, "_") {
			path = "/v1/tele/" + tail
		}
		if a := p.do(r.method, path, "x"); a.status != 400 || a.Error != "bad_partition" || !strings.Contains(a.Message, "tele is a buffer or no namespace") || !strings.Contains(a.Message, "kind: queue") {
			t.Errorf("%s %s: got %d %s", r.method, path, a.status, a.raw)
		}
	}
	for _, path := range []string{"/v1/tele/q/r", "/v1/tele/q/claims", "/v1/tele/claim/q", "/v1/tele/.claim"} {
		if a := p.do("POST", path, "x"); a.Error != "bad_partition" || strings.Contains(a.Message, "queue") {
			t.Errorf("%s: got %d %s", path, a.status, a.raw)
		}
	}
}

func TestAMissingQueueIsNamed(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	for _, path := range []string{"/v1/mail", "/v1/mail/"} {
		if a := p.do("POST", path, "x"); a.Error != "no_such_route" || a.Message != "the name of a queue is missing: /v1/mail/{queue}" {
			t.Errorf("%s: got %d %s", path, a.status, a.raw)
		}
	}
}

func TestSettleSaysWhatIsWrongWithALine(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	id := p.do("POST", "/v1/mail/q", "x").IDs[0]
	p.do("POST", "/v1/mail/q/claim", "")
	for line, want := range map[string]string{
		`{"do":"ack"}`: "id is missing", `{}`: "id is missing", `null`: "id is missing", `{"id":null,"do":"ack"}`: "id is missing", `{"id":"","do":"ack"}`: "id is missing",
		`{"id":"order-17","do":"ack"}`: "id is not the id of a job", `{"id":"nonsense","do":"nack"}`: "id is not the id of a job",
		`{"id":"x\"y","do":"ack"}`: "id is not the id of a job", `{"id":"` + strings.ToLower(id) + `","do":"ack"}`: "id is not the id of a job",
		`{"id":"` + id[:25] + `","do":"ack"}`: "id is not the id of a job", `{"id":"` + id + `-","do":"ack"}`: "id is not the id of a job",
		`{"id":"` + id + `"}`: "do is missing", `{"id":7,"do":"ack"}`: "id is a string, not a number", `{"id":[],"do":"ack"}`: "id is a string, not an array",
		`[{"id":"` + id + `","do":"ack"}]`: "the line is an array: it is one object", `7`: "the line is a number: it is one object", `"x"`: "the line is a string: it is one object",
		`{"id":"` + id + `","do":"nack","ms":"50"}`:          "ms is a number, not a string",
		`{"id":"` + id + `","do":"nack","ms":1.5}`:           "ms is a whole number",
		`{"id":"` + id + `","do":"ack","attempt":true}`:      "attempt is a number, not a boolean",
		`{"id":"` + id + `","do":"nack","delay":50}`:         `unknown field "delay": a line has id, attempt, do, ms (for nack, touch and defer)`,
		`{"do":"ack","` + strings.Repeat("x", 9999) + `":1}`: "unknown field of a long name: a line has id",
		`{"id":`: "the line is no JSON", `x`: "the line is no JSON",
		`{"id":"` + id + `","do":"ack"} {}`:                                           "something follows the object",
		`{"id":"` + id + `","do":"defer"}`:                                            "defer needs ms",
		`{"id":"` + id + `","do":"nack","result":1}`:                                  "result is for ack",
		`{"id":"` + id + `","do":"ack","result":"` + strings.Repeat("x", 4096) + `"}`: "result has at most 4096 bytes",
	} {
		r := p.do("POST", "/v1/mail/q/settle", line)
		if len(r.Results) != 1 || r.Results[0].Error != "bad_item" || !strings.HasPrefix(r.Results[0].Message, want) || len(r.Results[0].Message) > 200 {
			t.Errorf("%.80s: got %d %s, want %q", line, r.status, r.raw, want)
		}
	}
	if r := p.do("GET", "/v1/mail/q/jobs/"+id, ""); r.State != "leased" {
		t.Errorf("a line that is wrong changed the job: %s", r.raw)
	}
}

func TestTheOpenAPIDocumentHasTheRoutes(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text = verb.Describe(text, false)
	// Parameters stand beside the methods of a path, and are a list.
	text = regexp.MustCompile(`(?m)^    parameters:\n(      - .*\n)+`).ReplaceAll(text, nil)
	var d struct {
		Paths map[string]map[string]struct {
			OperationID string `yaml:"operationId"`
			Tags        []string
		}
	}
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	var got, want []string
	for path, methods := range d.Paths {
		for method, operation := range methods {
			if slices.Contains(operation.Tags, "queues") {
				got = append(got, strings.ToUpper(method)+" "+path+" "+operation.OperationID)
			}
		}
	}
	for _, r := range routes {
		path := "/v1/{namespace}/{queue}/" + r.tail
		switch r.name {
		case "publish", "counts":
			continue // in those of a partition, whose path is the same
		case "purge":
			path = "/v1/{namespace}/{partition}"
		case "times", "owners", "owner", "register", "deregister", "heartbeat", "all_schedules":
			path = "/v1/{namespace}/" + r.tail
		case "claim", "take":
			path = "/v1/{namespace}/{queues}/" + r.tail
		}
		want = append(want, r.method+" "+path+" "+r.name)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the document has\n%s\nand the engine\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
