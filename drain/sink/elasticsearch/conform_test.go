package elasticsearch

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
)

func parseTime(text string) (int64, error) {
	at, err := time.Parse("2006-01-02T15:04:05.000Z", text)
	return at.UnixMilli(), err
}

// answering is a fixed answer, as a proxy or a broken cluster gives it.
func answering(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// hangUp closes the connection instead of answering.
func hangUp(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// unanswered does what is asked, and hangs up.
func (c *cluster) unanswered(w http.ResponseWriter, r *http.Request) {
	c.bulk(r)
	hangUp(w, r)
}

func TestConforms(t *testing.T) {
	t.Parallel()
	sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
		c := newCluster(t)
		instead := func(name string, permanent bool, answer http.HandlerFunc) sinktest.Fault {
			return sinktest.Fault{Name: name, Permanent: permanent, Start: func() func() {
				c.set(answer)
				return func() { c.set(nil) }
			}}
		}
		items := func(name string, permanent bool, reject func(n int, id string) *fail) sinktest.Fault {
			return sinktest.Fault{Name: name, Permanent: permanent, Start: func() func() {
				c.rejecting(reject)
				return func() { c.rejecting(nil) }
			}}
		}
		the3rd := func(f fail) func(int, string) *fail {
			return func(n int, _ string) *fail {
				if n != 3 {
					return nil
				}
				return &f
			}
		}
		return sinktest.Fixture{
			Sink: c.sink(t), Received: c.records, Stall: c.stalled,
			Faults: []sinktest.Fault{
				instead("hangs up", false, hangUp),
				instead("does it and hangs up", false, c.unanswered),
				instead("503", false, answering(503, "")),
				instead("401", false, answering(401, `{"error":{"type":"security_exception"},"status":401}`)),
				instead("a proxy's 400", false, answering(400, "<html>c4n4ry")),
				instead("400", true, answering(400, `{"error":{"type":"illegal_argument_exception","reason":"c4n4ry"},"status":400}`)),
				instead("413", true, answering(413, "")),
				instead("a page", false, answering(200, "<html>")),
				instead("another service", false, answering(200, `{"ok":true}`)),
				instead("too few items", false, answering(200, `{"errors":true,"items":[{"create":{"status":201}}]}`)),
				instead("brackets", false, answering(200, strings.Repeat("[", 60<<10))),
				items("one does not fit", true, the3rd(fail{400, "document_parsing_exception", "c4n4ry"})),
				items("no room for one", false, the3rd(fail{429, "es_rejected_execution_exception", "c4n4ry"})),
				items("no shard for one", false, the3rd(fail{503, "unavailable_shards_exception", "c4n4ry"})),
				items("no right", false, func(int, string) *fail { return &fail{403, "security_exception", "c4n4ry"} }),
				items("no index", false, func(int, string) *fail { return &fail{404, "index_not_found_exception", "c4n4ry"} }),
			},
		}
	}})
}

const aKind = `{"error":{"type":"a_kind","reason":"c4n4ry"},"status":400}`

// outcomeOf is what a status asks of the drain, with the text aKind. With 200 there are no items.
func outcomeOf(status int) string {
	switch {
	case status == 400, status == 413:
		return "permanent"
	case status == 429, status == 503:
		return "throttle 1s"
	case status < 200, status/100 == 3, status == 401, status == 404, status == 405:
		return "not connected"
	}
	return "retry"
}

func TestKeepsThePromisesOfHTTPTargets(t *testing.T) {
	t.Parallel()
	const names = "index: want small letters, digits, ._+-, {namespace} and {date}, and a letter or digit first"
	sinktest.RunHTTP(t, sinktest.HTTP{
		New: New, URL: "elasticsearch://u:s3cret@HOST/events", TLS: "elasticsearch://u:s3cret@HOST/events?tls=1",
		Wrong: map[string]string{
			"elasticsearch:":                         "sink elasticsearch:: names no host: write elasticsearch://host:9200/index",
			"elasticsearch://u:s3cret@h":             "sink elasticsearch://…@h: names no index: write elasticsearch://host:9200/index",
			"elasticsearch://u:s3cret@h:0/i":         "sink elasticsearch://…@h:0/…: port is not 1 to 65535",
			"elasticsearch://h/Index":                "sink elasticsearch://h/…: " + names,
			"elasticsearch://h/_all":                 "sink elasticsearch://h/…: " + names,
			"elasticsearch://h/a/b":                  "sink elasticsearch://h/…: " + names,
			"elasticsearch://h/a*":                   "sink elasticsearch://h/…: " + names,
			"elasticsearch://h/{partition}":          "sink elasticsearch://h/…: " + names,
			"elasticsearch://h/" + many(30, ""):      "sink elasticsearch://h/…: index: longer than 128 bytes",
			"elasticsearch://h/i?tls=yes":            `sink elasticsearch://h/…?…: tls: "yes", want 1 or nothing`,
			"elasticsearch://h/i?api_key=s3cret!":    "sink elasticsearch://h/…?…: api_key: want base64, the encoded form",
			"elasticsearch://u:p@h/i?api_key=s3cret": "sink elasticsearch://…@h/…?…: api_key: the URL has a user already",
			"elasticsearch://h/i?apikey=s3cret":      `sink elasticsearch://h/…?…: unknown option "apikey": did you mean api_key? known are tls, api_key`,
			"elasticsearch://h/i#x":                  "sink elasticsearch://h/…: a # in the URL is written %23",
		},
		Transport: func(s sink.Sink) *http.Transport { return s.(*Sink).client },
		Accept:    answering(200, `{"errors":false}`),
		Answer:    func(w io.Writer, _ int) { _, _ = io.WriteString(w, aKind) },
		Outcome:   outcomeOf,
		Fault:     "retry", Cut: "retry", Endless: "retry", Reads: 50_000,
	})
}

// Whatever a host answers, only entries of the Write are named, each once.
func FuzzVerdicts(f *testing.F) {
	for _, seed := range []string{
		`{"errors":false}`, `{"errors":true,"items":[{"create":{"status":201}},{"create":{"status":409}},{"create":{"status":400,"error":{"type":"a","reason":"b"}}}]}`,
		`{"errors":true,"items":[{},[],null]}`, `{"errors":true,"errors":false}`, `{"errors":true,"items":[{"create":{"status":"400","error":"text"}},1,2]}`, "[", "",
	} {
		f.Add([]byte(seed))
	}
	at := []position{{0, 0}, {0, 1}, {1, 0}}
	f.Fuzz(func(t *testing.T, answer []byte) {
		failed, err := verdicts(answer, 1<<20, at)
		if failed == nil {
			return
		}
		if err != nil || len(failed.Failed) == 0 || len(failed.Failed) > len(at) {
			t.Fatalf("got %v, %v", failed, err)
		}
		next := 0
		for _, e := range failed.Failed {
			for next < len(at) && at[next] != (position{e.Batch, e.Entry}) {
				next++
			}
			if next++; next > len(at) || e.Err == nil || len(e.Err.Error()) > 200 {
				t.Fatalf("got %+v", e)
			}
		}
	})
}

// Whatever a client sends, a document is one line of JSON and each name is there once.
func FuzzPayload(f *testing.F) {
	for _, seed := range []string{`{"a":1}`, `{"a":1,"\u0061":2}`, "{\n\"a\":[{}]\r}", "[1]", "text\u2028", "\xff", `{"":{"":{}}}`, `{"\ud800":1,"\ud801":2}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		line := append(appendPayload([]byte(`{"seq":1`), payload), '}')
		if bytes.ContainsAny(line, "\r\n") || !json.Valid(line) {
			t.Fatalf("%q became %q", payload, line)
		}
		x := index{fields: map[string]string{}}
		if err := x.parse(line, map[string]string{}); err != nil && bytes.Contains([]byte(err.Error()), []byte("duplicate")) {
			t.Fatalf("%q became %q: %v", payload, line, err)
		}
	})
}
