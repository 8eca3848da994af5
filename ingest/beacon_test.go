package ingest

import (
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/valyala/fasthttp/fasthttputil"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/partition"
)

const asText = "Content-Type: text/plain;charset=UTF-8"

// beacon sends one, and checks that the answer says nothing.
func (p *port) beacon(path, body string) {
	p.t.Helper()
	if r := p.do("POST", path, body, asText); r.status != http.StatusNoContent || r.raw != "" {
		p.t.Errorf("%s %.40q: got %d %q, want 204", path, body, r.status, r.raw)
	}
}

// payloadsOf decodes entries of the store.
func payloadsOf(t *testing.T, entries []string) (list []string) {
	t.Helper()
	for _, raw := range entries {
		e, err := partition.ParseEntry([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, string(e.Payload))
	}
	return list
}

func TestTheFormOfABeaconIsToldByItsBody(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		body string
		want []string // of default/p
	}{
		{`{"a":1}`, []string{`{"a":1}`}},
		{"plain text", []string{"plain text"}},
		{"\n", []string{"\n"}},
		{`"a string"`, []string{`"a string"`}},
		{"12\n34", []string{"12\n34"}},
		{`[1,2]`, []string{"1", "2"}},
		{" \n[1,\n2]", []string{"1", "2"}},
		{`[1,2`, []string{`[1,2`}},
		{"[1]\n[2]", []string{"[1]\n[2]"}},
		{"{\"a\":1}\n{\"b\":2}\n", []string{`{"a":1}`, `{"b":2}`}},
		{"{\"a\":1}\nno JSON", []string{`{"a":1}`, "no JSON"}},
		{"{\n\"a\":1}", []string{"{\n\"a\":1}"}},
		{"{\"a\":\n1", []string{"{\"a\":\n1"}},
		{`{"batch":[{"data":1},{"data":2}]}`, []string{"1", "2"}},
	} {
		store := newFake()
		p := listen(t, store, nil)
		p.beacon("/beacon/default/p", row.body)
		stored := func() bool { return len(store.entries("default/p")) == len(row.want) }
		eventually(t, stored)
		if got := payloadsOf(t, store.entries("default/p")); !slices.Equal(got, row.want) {
			t.Errorf("%q: stored %q, want %q", row.body, got, row.want)
		}
	}
}

func TestABeaconForSeveralPartitionsNamesThemInItsItems(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		"{\"partition\":\"a\",\"data\":1}\n{\"partition\":\"b\",\"data\":2}\n",
		`[{"partition":"a","data":1},{"partition":"b","data":2}]`,
		`{"batch":[{"partition":"a","data":1},{"partition":"b","data":2}]}`,
	} {
		store := newFake()
		p := listen(t, store, nil)
		p.beacon("/beacon/default", body)
		eventually(t, func() bool { return len(store.entries("default/a"))+len(store.entries("default/b")) == 2 })
	}
}

func TestARejectedBeaconIsCountedAndNotAnswered(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ path, body, code string }{
		"no token":               {"/beacon/default/p", "1", "unauthorized"},
		"a wrong token":          {"/beacon/default/p?k=third", "1", "unauthorized"},
		"two tokens":             {"/beacon/default/p?k=first&k=second", "1", "unauthorized"},
		"another's token":        {"/beacon/default/p?k=small", "1", "forbidden"},
		"no such namespace":      {"/beacon/nobody/p?k=first", "1", "forbidden"},
		"a bad partition":        {"/beacon/default/a%20b?k=first", "1", "bad_request"},
		"an empty body":          {"/beacon/default/p?k=first", "", "empty_body"},
		"an opaque mixed one":    {"/beacon/default?k=first", "text", "unsupported_type"},
		"a mixed one of one":     {"/beacon/default?k=first", `{"a":1}`, "bad_json"},
		"a mixed one with text":  {"/beacon/default?k=first", "{\"partition\":\"a\",\"data\":1}\ntext", "bad_ndjson"},
		"too large":              {"/beacon/default/p?k=first", strings.Repeat("x", maxBeacon+1), "body_too_large"},
		"too large, not by much": {"/beacon/default/p?k=first", strings.Repeat("x", maxBeacon), "entry_too_large"},
	} {
		store := newFake()
		p := listen(t, store, withTokens(store))
		if name == "a bad partition" { // it is of no route, so it is answered
			p.do("POST", row.path, row.body, asText).expect(t, 400, row.code)
		} else {
			p.beacon(row.path, row.body)
		}
		if n := p.metric("rejections_total", row.code); n != 1 {
			t.Errorf("%s: %v rejections counted as %s, want 1", name, n, row.code)
		}
		if stored := store.entries("default/p"); len(stored) > 0 {
			t.Errorf("%s: stored %q", name, stored)
		}
	}
}

func TestABeaconOf64KiBIsTaken(t *testing.T) {
	t.Parallel()
	store := newFake()
	p := listen(t, store, withTokens(store))
	line := `{"x":"` + strings.Repeat("x", 16<<10-9) + "\"}\n"
	p.beacon("/beacon/default/p?k=first", strings.Repeat(line, 4))
	eventually(t, func() bool { return len(store.entries("default/p")) == 4 })
}

func TestTheTokenOfABeaconStaysOutOfTheLog(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zap.DebugLevel)
	store := newFake()
	ln := fasthttputil.NewInmemoryListener()
	p := listenOn(t, store, withTokens(store), ln, func() (net.Conn, error) { return ln.Dial() }, zap.New(core))
	store.produce = failWith(partition.ErrBroken)
	for _, path := range []string{"/beacon/default/p?k=first", "/beacon/default/p?k=s3cret"} {
		p.do("POST", path, "1", asText)
	}
	p.raw("POST /beacon/default/%zz?k=s3cret HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
	p.raw("POST /beacon/default/p?k=s3cret HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n")
	for _, e := range logged.All() {
		text := e.Message
		for _, f := range e.Context {
			text += " " + f.String
			if err, ok := f.Interface.(error); ok {
				text += " " + err.Error()
			}
		}
		if strings.Contains(text, "s3cret") || strings.Contains(text, "k=first") {
			t.Errorf("the log has %q", text)
		}
	}
}

func TestABeaconIsPostedOnly(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	r := p.do("GET", "/beacon/default/p", "")
	r.expect(t, 405, "method_not_allowed")
	if allow := r.header.Get("Allow"); allow != "POST, OPTIONS" {
		t.Errorf("Allow: %q", allow)
	}
}
