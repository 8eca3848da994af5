package ingest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/valyala/fasthttp"
	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// echo answers with the body, under a route of its own.
func echo(x *Exchange) *Rejection {
	x.SetRoute("echo")
	body, rejected := x.Body()
	if rejected != nil {
		return rejected
	}
	return x.Answer(fasthttp.StatusCreated, "application/json", []byte(`{"message":"`+string(body)+`"}`))
}

// mounted serves /api/ and the namespace "mail".
func mounted(edit func(*Config)) func(*Config) {
	return func(c *Config) {
		c.Mounts = []Mount{
			{Name: "api", Prefix: "/api/", MaxBody: 4 << 20, Handler: echo, Failure: func(x *Exchange, r *Rejection) {
				x.Ctx.SetBodyString(`{"message":"failed: ` + string(r.Code) + `"}`)
			}},
			{Name: "jobs", Owns: func(name string) bool { return name == "mail" }, Handler: func(x *Exchange) *Rejection {
				name, _, _ := strings.Cut(string(x.Path()), "/")
				if _, rejected := x.Authenticate(name, x.Bearer()); rejected != nil {
					return rejected
				}
				return echo(x)
			}},
		}
		c.Mounts = append(c.Mounts, Mount{Name: "any", Prefix: "/any/", AnyPath: true, Handler: func(x *Exchange) *Rejection {
			if _, rejected := x.RawBody(1 << 10); rejected != nil {
				return rejected
			}
			return x.Answer(fasthttp.StatusCreated, "application/json", []byte(`{"message":"`+string(x.Path())+`"}`))
		}})
		c.Tokens = map[string][]Token{"mail": nil} // open
		if edit != nil {
			edit(c)
		}
	}
}

func TestAMountServesItsPathsAndNoOthers(t *testing.T) {
	t.Parallel()
	p := listenTCP(t, newFake(), mounted(nil))
	big := strings.Repeat("x", 3<<20)
	for _, c := range []struct {
		path, body string
		status     int
		answer     string
	}{
		{"/api/mail/q", "job", 201, "job"},
		{"/api/mail/q", big, 201, big},
		{"/api/mail/q", big + big, 413, "failed: body_too_large"},
		{"/api/mail/q", "", 400, "failed: empty_body"},
		{"/api//mail", "job", 400, "failed: bad_request"},
		{"/any/%2C//q/../x", "job", 201, "/any/%2C//q/../x"},
		{"/any/../v1/default/q", "job", 201, "/any/../v1/default/q"},
		{"//any/x", "job", 400, "bad_request"},
		{"/any/x", big, 413, "body_too_large"},
		{"/v1/mail/_q/claim?count=1", "job", 201, "job"},
		{"/v1/mail", "job", 201, "job"},
		{"/v1/mail/q", big, 413, "body_too_large"},
		{"/v1/default/q", "entry", 200, "accepted"},
		{"/v1/none/q", "entry", 404, "no_such_namespace"},
		{"/apis", "entry", 404, "no_such_route"},
	} {
		if r := p.post(c.path, c.body); r.status != c.status || !strings.Contains(r.raw, c.answer) {
			t.Errorf("%s with %d bytes: got %d %.80q, want %d %.80q", c.path, len(c.body), r.status, r.raw, c.status, c.answer)
		}
	}
	absolute := fmt.Sprintf("POST http://x/api/mail/q HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(big), big)
	if r, _ := p.raw(absolute); r.status != 201 {
		t.Errorf("an absolute target: got %d %.80s", r.status, r.raw)
	}
	if got := p.metric("requests_total", "201", "echo"); got != 5 {
		t.Errorf("counted %v requests of the mount, want 5", got)
	}
	if got := p.metric("rejections_total", "body_too_large"); got != 3 {
		t.Errorf("counted %v bodies that were too large, want 3", got)
	}
}

func TestAPanicOfAMountIsAnsweredInItsForm(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), mounted(func(c *Config) {
		c.Mounts[0].Handler = func(x *Exchange) *Rejection {
			if _, rejected := x.Body(); rejected != nil {
				return rejected
			}
			panic("a bug")
		}
	}))
	r := p.post("/api/x", "body")
	if r.status != 500 || r.body.Message != "failed: internal" || p.metric("panics_total") != 1 {
		t.Errorf("got %d %q", r.status, r.raw)
	}
}

func TestAMountReservesMemoryAndGivesItBack(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), mounted(func(c *Config) {
		c.Mounts[0].Handler = func(x *Exchange) *Rejection {
			if rejected := x.Reserve(65 << 20); rejected == nil || rejected.Code != wire.CodeOverloaded {
				return Reject(wire.CodeInternal, "reserved more than there is")
			}
			if rejected := x.Reserve(1 << 20); rejected != nil {
				return rejected
			}
			if held := x.server.memory.Held.Used(); held < 1<<20 {
				return Reject(wire.CodeInternal, fmt.Sprintf("reserved %d", held))
			}
			x.release()
			if held := x.server.memory.Held.Used(); held != 0 {
				return Reject(wire.CodeInternal, fmt.Sprintf("kept %d", held))
			}
			return nil
		}
		c.Mounts[0].Failure = nil
	}))
	if r := p.post("/api/x", "body"); r.status != 200 {
		t.Error(r.raw)
	}
}

func TestRequestsThatWaitEndWhenTheServerRetires(t *testing.T) {
	t.Parallel()
	waiting := make(chan struct{})
	wait := func(x *Exchange) *Rejection {
		close(waiting)
		<-x.Stopping()
		return nil
	}
	p := listen(t, newFake(), mounted(func(c *Config) { c.Mounts[0].Handler = wait }))
	next := listen(t, newFake(), nil)
	answered := make(chan int)
	go func() {
		resp, err := p.client.Get("http://data.port/api/poll")
		if err != nil {
			answered <- 0
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		answered <- resp.StatusCode
	}()
	<-waiting
	if err := p.Retire(t.Context(), next.Server); err != nil {
		t.Error(err)
	}
	if status := <-answered; status != http.StatusOK {
		t.Errorf("got %d", status)
	}
}

func TestTokensChangeWhileTheServerRuns(t *testing.T) {
	t.Parallel()
	of := func(text string) Token {
		return Token{Hash: sha256.Sum256([]byte(text)), Name: text, Rate: Quota{1000, 1}}
	}
	p := listen(t, newFake(), mounted(nil))
	post := func(path, token string, want int) {
		t.Helper()
		if r := p.post(path, "x", "Authorization: Bearer "+token); r.status != want {
			t.Errorf("%s with %q: got %d, want %d", path, token, r.status, want)
		}
	}
	set := func(tokens map[string][]Token, closed ...string) {
		t.Helper()
		if err := p.SetTokens(tokens, closed); err != nil {
			t.Error(err)
		}
	}
	post("/v1/mail/q", "", 201)
	set(map[string][]Token{"mail": {of("one")}, "default": {of("two")}})
	post("/v1/mail/q", "", 401)
	post("/v1/mail/q", "one", 201)
	post("/v1/mail/q", "two", 403)
	post("/v1/default/q", "two", 200)
	post("/v1/default/q", "one", 403)
	kept := p.keyring.Load().find("mail", of("one"))
	set(map[string][]Token{"mail": {of("one"), of("three")}}, "default")
	if p.keyring.Load().find("mail", of("one")) != kept {
		t.Error("a token that did not change lost what it had used of its rate")
	}
	post("/v1/default/q", "two", 401)
	post("/v1/mail/q", "three", 201)
	set(map[string][]Token{"default": {of("two")}})
	post("/v1/mail/q", "", 401) // a namespace made at run time, before its tokens are known
	set(map[string][]Token{"mail": {of("one"), of("three")}}, "default")
	x := &Exchange{server: p.Server}
	if x.Revoked(kept) || x.Revoked(nil) {
		t.Error("a token that exists is taken for revoked")
	}
	set(nil)
	if !x.Revoked(kept) {
		t.Error("a removed token is not revoked")
	}
	var wrong *partition.FieldError
	if err := p.SetTokens(map[string][]Token{"nowhere": nil}, nil); !errors.As(err, &wrong) {
		t.Errorf("tokens of no namespace: %v", err)
	}
}

func TestARejectionAboutJobsSpeaksOfJobs(t *testing.T) {
	t.Parallel()
	var code atomic.Value
	p := listenTCP(t, newFake(), mounted(func(c *Config) {
		c.MaxBody, c.MaxDecompressed, c.MaxEntry = 2000, 2000, 2000
		c.Mounts[1].MaxBody = 1000
		c.Mounts[1].Handler = func(x *Exchange) *Rejection {
			if c := code.Load().(string); c != "" {
				return Reject(wire.Code(c), "")
			}
			return echo(x)
		}
	}))
	check := func(what string, r *reply) {
		t.Helper()
		if text := r.body.Message; text == "" || strings.Contains(text, "entr") || strings.Contains(text, "artition") {
			t.Errorf("%s: %q", what, text)
		}
	}
	for _, c := range constants(t, "Code") {
		switch wire.Code(c) {
		case wire.CodeBadPartition, wire.CodeNoSuchPartition, wire.CodeTooManyPartitions, wire.CodeUnsupportedType:
			continue // no queue has partitions
		}
		code.Store(c)
		check(c, p.post("/v1/mail/q", "x"))
	}
	code.Store("")
	check("an empty body", p.post("/v1/mail/q", ""))
	check("a large body", p.post("/v1/mail/q", strings.Repeat("x", 1001)))
	check("a large decompressed body", p.post("/v1/mail/q", gzipped(t, strings.Repeat("x", 2001)), "Content-Encoding: gzip"))
}

func TestMountsThatHideRoutesAreRejected(t *testing.T) {
	t.Parallel()
	for name, mounts := range map[string][]Mount{
		"no handler":          {{Name: "a", Prefix: "/api/"}},
		"no prefix":           {{Name: "a", Handler: echo}},
		"a route of a buffer": {{Name: "a", Prefix: "/v1/", Handler: echo}},
		"an SDK":              {{Name: "a", Prefix: "/posthog/", Handler: echo}},
		"no slash":            {{Name: "a", Prefix: "/api", Handler: echo}},
		"twice":               {{Name: "a", Prefix: "/api/", Handler: echo}, {Name: "b", Prefix: "/api/x/", Handler: echo}},
	} {
		cfg := DefaultConfig()
		cfg.Mounts = mounts
		var wrong *partition.FieldError
		if _, err := newMounts(cfg); !errors.As(err, &wrong) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAMountHoldsNothingThatItsClientOnlyAnnounces(t *testing.T) {
	t.Parallel()
	var read atomic.Int64
	p := listen(t, newFake(), mounted(func(c *Config) {
		c.Mounts[0].Handler = func(x *Exchange) *Rejection {
			body, rejected := x.RawBody(4 << 20)
			read.Add(int64(len(body)))
			return rejected
		}
	}))
	c := p.sends("POST /api/x HTTP/1.1\r\nHost: x\r\nContent-Length: 4000000\r\n\r\nabc")
	eventually(t, func() bool { return p.Requests() == 1 || p.Connections() == 1 })
	if held := p.memory.Held.Used(); held > 1<<20 {
		t.Errorf("%d bytes are reserved for a body that did not arrive", held)
	}
	_ = c.Close()
	eventually(t, func() bool { return p.Connections() == 0 })
	if read.Load() != 0 {
		t.Error("a body that was cut short was read")
	}
}

// document is what the tests read of openapi.yaml.
type document struct {
	OpenAPI string `yaml:"openapi"`
	Paths   map[string]map[string]struct {
		OperationID string               `yaml:"operationId"`
		Tags        []string             `yaml:"tags"`
		Responses   map[string]yaml.Node `yaml:"responses"`
	} `yaml:"paths"`
	Components struct {
		Schemas map[string]struct {
			Enum []string `yaml:"enum"`
		} `yaml:"schemas"`
	} `yaml:"components"`
}

func readDocument(t *testing.T) (d document) {
	t.Helper()
	// Parameters stand beside the methods of a path, and are a list.
	text := regexp.MustCompile(`(?m)^    parameters:\n(      - .*\n)+`).ReplaceAll(openAPI(), nil)
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTheOpenAPIDocumentHasTheRoutes(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	if !strings.HasPrefix(d.OpenAPI, "3.1") {
		t.Errorf("openapi: %q", d.OpenAPI)
	}
	var want, got []string
	for _, r := range routes {
		want = append(want, r.method+" "+r.pattern+" "+r.name)
	}
	for path, methods := range d.Paths {
		for method, operation := range methods {
			if slices.Contains(operation.Tags, "queues") {
				continue // of the package jobs, which has a test of its own
			}
			got = append(got, strings.ToUpper(method)+" "+path+" "+operation.OperationID)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the document has\n%s\nand the server\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTheOpenAPIDocumentHasTheCodesAndReasons(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	source, err := os.ReadFile("wire/codes.go")
	if err != nil {
		t.Fatal(err)
	}
	for schema, form := range map[string]string{"Code": `Code\w+ +Code += "(\w+)"`, "Reason": `Reason\w+ +Reason += "(\w+)"`} {
		var want []string
		for _, m := range regexp.MustCompile(form).FindAllStringSubmatch(string(source), -1) {
			want = append(want, m[1])
		}
		got := d.Components.Schemas[schema].Enum
		for _, name := range want {
			if !slices.Contains(got, name) {
				t.Errorf("the document's %s lacks %s", schema, name)
			}
		}
		if len(want) < 5 {
			t.Errorf("only %d constants of %s found: the test proves nothing", len(want), schema)
		}
	}
}

func TestTheOpenAPIDocumentIsServed(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	resp, err := p.client.Get("http://data.port/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || string(text) != string(openAPI()) || kind != "application/yaml" {
		t.Errorf("got %d %q %.60q", resp.StatusCode, kind, text)
	}
}
