package lmstfy

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

var masks = []struct {
	find *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`[0-9A-Z]{26}`), "ID"},
	{regexp.MustCompile(`"elapsed_ms":\d+`), `"elapsed_ms":N`},
	{regexp.MustCompile(`"ttl":863[4-9]\d`), `"ttl":86400`}, // a day, less what a busy machine takes
}

func masked(text string) string {
	for _, m := range masks {
		text = m.find.ReplaceAllString(text, m.with)
	}
	return text
}

// jobOf is a job as consume shows it.
func jobOf(attributes, data, queue string, remainTries, ttl int) string {
	return fmt.Sprintf(`{"attributes":%s,"data":%q,"elapsed_ms":N,"job_id":"ID","msg":"new job","namespace":"ns","queue":%q,"remain_tries":%d,"ttl":%d}`,
		attributes, data, queue, remainTries, ttl)
}

func text(s string) string { return `{"error":"` + s + `"}` }

const (
	published = `{"job_id":"ID","msg":"published"}`
	noJob     = `{"msg":"no job available"}`
	notFoundA = `{"error":"api not found"}`
	badNS     = `{"error":"namespace name contains forbidden characters"}`
	badQueue  = `{"error":"queue name contains forbidden characters"}`
	tooLong   = `{"error":"namespace or queue name too long"}`
	notArray  = `{"error":"request body should be an array of objects"}`
)

// step is a request and its answer. $ in a path is the id that the last publish answered.
type step struct {
	method, path, body string
	headers            []string
	status             int
	want               string
}

func (p *port) play(steps []step) {
	p.t.Helper()
	id := ""
	for _, s := range steps {
		path := strings.ReplaceAll(s.path, "$", id)
		r := p.do(s.method, path, s.body, s.headers...)
		name := fmt.Sprintf("%s %.120s with %d bytes and %q", s.method, path, len(s.body), s.headers)
		if r.status != s.status || r.body != s.want {
			p.t.Errorf("%s: got %d %.300s, want %d %.300s", name, r.status, r.body, s.status, s.want)
		}
		if rid := r.header.Get(headerRequestID); masked(rid) != "ID" {
			p.t.Errorf("%s: request id %q", name, rid)
		}
		wantType := jsonType
		if s.status == 204 {
			wantType = ""
		}
		if got := r.header.Get("Content-Type"); got != wantType {
			p.t.Errorf("%s: content type %q, want %q", name, got, wantType)
		}
		if found := masks[0].find.FindString(r.raw); found != "" && s.method == "PUT" {
			id = found
		}
	}
}

func TestPathsAndMethodsWithoutARouteAreNotFound(t *testing.T) {
	t.Parallel()
	steps := []step{{"HEAD", "/api/ns/q", "", nil, 404, ""}}
	for _, path := range []string{"/api/", "/api/ns", "/api/ns/", "/api/ns/q/", "/api/ns/q/nope", "/api/ns/q/peek/", "/api/ns/q/job", "/api/ns/q/job/", "/api/ns/q/job/x/y", "/api/ns/q/deadletter/x", "/api/ns/q/size/x", "/api/ns//", "/api/ns/q//peek"} {
		steps = append(steps, step{"GET", path, "", nil, 404, notFoundA}, step{"PUT", path, "x", nil, 404, notFoundA})
	}
	for _, method := range []string{"POST", "OPTIONS", "PATCH", "TRACE", "NOPE"} {
		steps = append(steps, step{method, "/api/ns/q", "", nil, 404, notFoundA})
	}
	for _, c := range []string{"DELETE /bulk", "GET /bulk", "PUT /peek", "DELETE /peek", "PUT /size", "DELETE /size", "PUT /deadletter/size", "POST /deadletter"} {
		method, rest, _ := strings.Cut(c, " ")
		steps = append(steps, step{method, "/api/ns/q" + rest, "", nil, 404, notFoundA})
	}
	listen(t, nil).play(steps)
}

func TestNamesAreCheckedFirst(t *testing.T) {
	t.Parallel()
	long, longest := strings.Repeat("n", 256), strings.Repeat("q", 255)
	noToken := []string{headerToken + ": none"}
	steps := []step{
		{"PUT", "/api/" + long + "/q", "", noToken, 400, tooLong},
		{"PUT", "/api/ns/" + long, "", noToken, 400, tooLong},
		{"PUT", "/api/n.s/" + long, "", nil, 400, tooLong},
		{"GET", "/api/ns/" + long + "/size", "", nil, 400, tooLong},
		{"GET", "/api/ns/" + long + "/peek", "", nil, 400, tooLong},
		{"GET", "/api/ns/" + long, "", nil, 404, noJob},
		{"GET", "/api/" + long + "/q", "", nil, 401, text("invalid token")},
		{"PUT", "/api/ns/" + longest, "", nil, 201, published},
		{"PUT", "/api/n.s/q.x?tries=x", "", noToken, 400, badNS},
		{"GET", "/api//q", "", nil, 400, badNS},
		{"PUT", "/api/ns/q.x?tries=x", "", noToken, 400, badQueue},
		{"PUT", "/api/ns/_q", "", nil, 400, badQueue},
		{"DELETE", "/api/ns/_q", "", nil, 400, badQueue},
		{"PUT", "/api/_ns/q", "", nil, 401, text("invalid token")},
		{"PUT", "/api/ns/-", "", nil, 201, published},
		{"GET", "/api/ns/_q", "", nil, 404, noJob},
		{"GET", "/api/ns/q.x", "", nil, 400, badQueue},
		{"GET", "/api/ns/q.x/peek", "", nil, 400, badQueue},
		{"GET", "/api/ns/a,b/peek", "", nil, 400, badQueue},
		{"DELETE", "/api/ns/a,b", "", nil, 400, badQueue},
		{"PUT", "/api/ns/a,b", "", nil, 400, badQueue},
	}
	for _, name := range []string{"q%20x", "q%00", "q%2fsize", "q%C3%BC", "q:x", "q{x}", "%zz", "q%", "..%2fq", "q*", "q+x", "%ff"} {
		steps = append(steps, step{"PUT", "/api/ns/" + name, "", nil, 400, badQueue}, step{"GET", "/api/ns/" + name, "", nil, 400, badQueue},
			step{"PUT", "/api/" + name + "/q", "", nil, 400, badNS})
	}
	listen(t, nil).play(steps)
}

func TestTokensAreCheckedSecond(t *testing.T) {
	t.Parallel()
	with := func(value string) []string { return []string{headerToken + ": " + value} }
	none, invalid, noPool := text("token not found"), text("invalid token"), text("pool not found")
	steps := []step{
		{"GET", "/api/ns/q", "", with("none"), 401, none},
		{"GET", "/api/ns/q", "", with(""), 401, none},
		{"GET", "/api/ns/q?token=", "", with("none"), 401, none},
		{"GET", "/api/ns/q", "", with("abc"), 401, invalid},
		{"GET", "/api/ns/q", "", with(token), 404, noJob},
		{"GET", "/api/ns/q", "", with("default:" + token), 404, noJob},
		{"GET", "/api/ns/q", "", with(":" + token), 404, noJob},
		{"GET", "/api/ns/q", "", with("fast:" + token), 401, invalid},
		{"GET", "/api/ns/q", "", with("nope:" + token), 404, noPool},
		{"GET", "/api/ns/q", "", with("nope:"), 404, noPool},
		{"GET", "/api/ns/q", "", with("a:b:c"), 404, noPool},
		{"GET", "/api/ns/q", "", with("default:"), 401, none},
		{"GET", "/api/ns/q", "", with("default:a:b"), 401, invalid},
		{"GET", "/api/ns/q", "", []string{headerToken + ": " + token, "x-token: " + token}, 401, none},
		{"GET", "/api/ns/q?token=" + token, "", with("none"), 404, noJob},
		{"GET", "/api/ns/q?token=default:" + token, "", with(""), 404, noJob},
		{"GET", "/api/ns/q?token=x&token=" + token, "", with("none"), 401, invalid},
		{"GET", "/api/ns/q?token=bad", "", nil, 404, noJob},
		{"GET", "/api/ns/q?token=" + token, "", with("bad"), 401, invalid},
		{"GET", "/api/ns/q", "", with(otherToken), 401, invalid},
		{"GET", "/api/other/q", "", nil, 401, invalid},
		{"GET", "/api/nope/q", "", nil, 401, invalid},
		{"GET", "/api/nope/q", "", with("none"), 401, none},
		{"GET", "/api/quick/q", "", with("fast:" + fastToken), 404, noJob},
		{"GET", "/api/quick/q", "", with(fastToken), 404, noJob},
		{"GET", "/api/quick/q", "", with("default:" + fastToken), 401, invalid},
		{"GET", "/api/open/q", "", with("none"), 404, noJob},
		{"GET", "/api/open/q", "", with("whatever"), 404, noJob},
		// Before the query and the body.
		{"PUT", "/api/ns/q?tries=x", "x", with("none"), 401, none},
		{"PUT", "/api/ns/q/bulk", "x", with("bad"), 401, invalid},
		// A form's body is the job, and holds no token.
		{"PUT", "/api/ns/q", "token=" + token, []string{headerToken + ": none", "Content-Type: application/x-www-form-urlencoded"}, 401, none},
		// The sizes want no token, but a pool.
		{"GET", "/api/ns/q/size", "", with("none"), 200, `{"namespace":"ns","queue":"q","size":0}`},
		{"GET", "/api/ns/q/size", "", with("bad"), 200, `{"namespace":"ns","queue":"q","size":0}`},
		{"GET", "/api/ns/q/size", "", with("nope:bad"), 404, noPool},
		{"GET", "/api/nope/q/size", "", with("none"), 200, `{"namespace":"nope","queue":"q","size":0}`},
		{"GET", "/api/ns/q/deadletter/size", "", with("none"), 200, `{"namespace":"ns","queue":"q","size":0}`},
		{"GET", "/api/ns/q/deadletter/size", "", with("nope:bad"), 404, noPool},
		{"GET", "/api/ns/q/deadletter", "", with("none"), 401, none},
	}
	for _, c := range []string{"PUT ", "PUT /bulk", "PUT /job/x", "GET /peek", "GET /job/x", "DELETE /job/x", "DELETE ", "GET /deadletter", "PUT /deadletter", "DELETE /deadletter"} {
		method, rest, _ := strings.Cut(c, " ")
		steps = append(steps, step{method, "/api/ns/q" + rest, "", with("none"), 401, none}, step{method, "/api/ns/q" + rest, "", with(otherToken), 401, invalid})
	}
	listen(t, nil).play(steps)
}

func TestPublishChecksItsParametersInOrder(t *testing.T) {
	t.Parallel()
	var steps []step
	add := func(query string, status int, want string) {
		for _, rest := range []string{"", "/job/x", "/bulk"} {
			body, answer := "x", want
			if rest == "/bulk" {
				body = `["x"]`
				if status == 201 {
					answer = `{"job_ids":["ID"],"msg":"published"}`
				}
			}
			steps = append(steps, step{"PUT", "/api/ns/qq" + rest + "?" + query, body, nil, status, answer})
		}
	}
	for _, n := range []string{"", "x", "-1", "+1", "%2B1", "%201", "1.5", "0x1", "1_0", "4294967296", "18446744073709551617", "%FF", "%zz", "1%00", "%D9%A1"} {
		add("delay="+n, 400, text("invalid delay"))
		add("ttl="+n, 400, text("invalid ttl"))
		add("tries="+n, 400, text("invalid tries"))
	}
	add("tries=65536", 400, text("invalid tries"))
	add("tries=0", 400, text("tries shouldn't be zero"))
	for _, ok := range []string{"", "delay=01", "ttl=0", "ttl=4294967295", "ttl=4294967295&delay=4294967295", "ttl=5&delay=5", "ttl=0&delay=6", "tries=65535", "delay=1&delay=x", "delay=86400", "DELAY=x", "%zz=1", "nope=1"} {
		add(ok, 201, published)
	}
	for _, short := range []string{"delay=4294967295", "ttl=5&delay=6", "delay=86401", "delay=10&ttl=5&tries=x"} {
		add(short, 400, text("ttl is shorter than delay"))
	}
	add("delay=x&delay=1", 400, text("invalid delay"))
	add("delay=x&ttl=x&tries=x", 400, text("invalid delay"))
	add("ttl=x&tries=0", 400, text("invalid ttl"))
	add("tries=1;ttl=x", 400, text("invalid tries"))
	listen(t, nil).play(steps)
}

func TestBodiesAreJobsWhateverTheyAre(t *testing.T) {
	t.Parallel()
	mib := strings.Repeat("x", 1<<20)
	tooLarge := text("body too large")
	p := listen(t, nil)
	p.play([]step{
		{"PUT", "/api/ns/e", "", nil, 201, published},
		{"GET", "/api/ns/e", "", nil, 200, jobOf("null", "", "e", 0, 86400)},
		{"PUT", "/api/ns/e", "\xff\x00", []string{"Content-Type: application/x-www-form-urlencoded", "Content-Encoding: gzip"}, 201, published},
		{"GET", "/api/ns/e", "", nil, 200, jobOf("null", "/wA=", "e", 0, 86400)},
		{"PUT", "/api/ns/e", mib, nil, 201, published},
		{"PUT", "/api/ns/e", mib + "x", nil, 413, tooLarge},
		{"PUT", "/api/ns/e/job/x", mib + "x", nil, 413, tooLarge},
		{"PUT", "/api/ns/e?tries=x", mib + "x", nil, 400, text("invalid tries")},
		{"PUT", "/api/ns/e/bulk", strings.Repeat(" ", 16<<20+1), nil, 413, tooLarge},
		{"PUT", "/api/ns/e", strings.Repeat(" ", 16<<20+1), nil, 413, tooLarge},
	})
	if got := len(p.fake.of("e")); got != 3 {
		t.Errorf("%d jobs are stored, want 3", got)
	}
	chunked := func(n int) string {
		return fmt.Sprintf("PUT /api/ns/e HTTP/1.1\r\nHost: x\r\nX-Token: %s\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", token, n, strings.Repeat("y", n))
	}
	if status, body := p.raw(chunked(1 << 20)); status != "201 Created" {
		t.Errorf("1 MiB in chunks: got %s %s", status, body)
	}
	if status, body := p.raw(chunked(1<<20 + 1)); status != "413 Request Entity Too Large" || body != tooLarge {
		t.Errorf("1 MiB and a byte in chunks: got %s %s", status, body)
	}
}

func TestBulkStoresEachValueOfAnArrayOrNone(t *testing.T) {
	t.Parallel()
	ids := func(n int) string {
		return `{"job_ids":["ID"` + strings.Repeat(`,"ID"`, n-1) + `],"msg":"published"}`
	}
	ones := func(n int) string { return "[" + strings.Repeat("1,", n-1) + "1]" }
	mib := strings.Repeat("x", 1<<20)
	noJobs, tooMany := text("no jobs"), text("too many jobs")
	p := listen(t, nil)
	var steps []step
	for _, body := range []string{"", "{}", `"x"`, "1", "true", "[1", "[1,]", "[1] x", "[1][2]", "[nope]", `{"a":[1]}`, "[\"\x01\"]", strings.Repeat("[", 20000) + strings.Repeat("]", 20000)} {
		steps = append(steps, step{"PUT", "/api/ns/b/bulk", body, nil, 400, notArray})
	}
	steps = append(steps,
		step{"PUT", "/api/ns/b/bulk", "[]", nil, 400, noJobs},
		step{"PUT", "/api/ns/b/bulk", " [ ] ", nil, 400, noJobs},
		step{"PUT", "/api/ns/b/bulk", "null", nil, 400, noJobs},
		step{"PUT", "/api/ns/b/bulk", ones(65), nil, 400, tooMany},
		step{"PUT", "/api/ns/b/bulk", ones(4 << 20), nil, 400, tooMany},
		step{"PUT", "/api/ns/b/bulk", `["` + mib + `"]`, nil, 413, text("job too large")},
		step{"PUT", "/api/ns/b/bulk", `[1,"` + mib + `"]`, nil, 413, text("job too large")},
		step{"PUT", "/api/ns/b/bulk?tries=0", "x", nil, 400, text("tries shouldn't be zero")},
		step{"GET", "/api/ns/b/size", "", nil, 200, `{"namespace":"ns","queue":"b","size":0}`},
		step{"PUT", "/api/ns/b/bulk", ones(64), nil, 201, ids(64)},
		step{"PUT", "/api/ns/m/bulk", `["` + mib[2:] + `"]`, nil, 201, ids(1)},
		step{"PUT", "/api/ns/v/bulk", " [1 , 2.50,\"a\\u0041\",{\"b\": 1,\"a\":[ ]},null,true,\"\xff\"]\n", nil, 201, ids(7)},
	)
	for _, data := range []string{"MQ==", "Mi41MA==", "ImFcdTAwNDEi", "eyJiIjogMSwiYSI6WyBdfQ==", "bnVsbA==", "dHJ1ZQ==", "Iv8i"} {
		steps = append(steps, step{"GET", "/api/ns/v", "", nil, 200, jobOf("null", data, "v", 0, 86400)})
	}
	p.play(steps)
}

func TestConsumeChecksItsParametersInOrder(t *testing.T) {
	t.Parallel()
	var steps []step
	add := func(queues, query string, status int, want string) {
		steps = append(steps, step{"GET", "/api/ns/" + queues + "?" + query, "", nil, status, want})
	}
	for _, n := range []string{"", "x", "-1", "%2B1", "1.5", "4294967296", "18446744073709551616"} {
		add("q", "ttr="+n, 400, text("invalid ttr"))
		add("q", "timeout="+n, 400, text("invalid timeout"))
		add("q", "count="+n, 400, text("invalid count"))
	}
	add("q", "count=0", 400, text("invalid count"))
	add("q", "count=101", 400, text("invalid count"))
	add("q", "ttr=x&timeout=x&count=x", 400, text("invalid ttr"))
	add(",", "timeout=x&count=0", 400, text("invalid timeout"))
	add(",", "count=0", 400, text("invalid count"))
	add(",", "", 400, text("invalid queue name(s)"))
	add(",,,", "", 400, text("invalid queue name(s)"))
	var queues []string
	for i := range 257 {
		queues = append(queues, fmt.Sprint("q", i))
	}
	add(strings.Join(queues[1:], ","), "", 404, noJob)
	add(strings.Join(queues, ","), "", 400, text("invalid queue name(s)"))
	for _, ok := range []string{"ttr=0", "ttr=4294967295", "count=100", "count=1", "freeze_tries=true", "freeze_tries=x", "timeout=0&ttr=1&count=2"} {
		add("q", ok, 404, noJob)
	}
	for _, queues := range []string{"q,", ",q", "a,,b", "a,b,", "a,a", "a%2Cb", strings.Repeat("q", 300) + ",b", strings.Repeat("a,", 2000)} {
		add(queues, "", 404, noJob)
	}
	listen(t, nil).play(steps)
}

func TestConsumeAnswersJobsInTheirForm(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	a, b := jobOf("null", "YQ==", "m1", 2, 86400), jobOf("null", "Yg==", "m2", 0, 0)
	p.play([]step{
		{"PUT", "/api/ns/m2?ttl=0", "b", nil, 201, published},
		{"PUT", "/api/ns/m2?ttl=0", "b", nil, 201, published},
		{"PUT", "/api/ns/m1?tries=3", "a", nil, 201, published},
		{"GET", "/api/ns/m1,m2?count=2", "", nil, 200, "[" + a + "," + b + "]"},
		{"GET", "/api/ns/m1%2Cm2?count=1", "", nil, 200, b},
		{"GET", "/api/ns/m1,m2?count=2", "", nil, 404, noJob},
		{"PUT", "/api/ns/m1", "a", nil, 201, published},
		{"GET", "/api/ns/m1?count=2", "", nil, 200, "[" + jobOf("null", "YQ==", "m1", 0, 86400) + "]"},
		// freeze_tries does not hand out a job for ever.
		{"PUT", "/api/ns/f", "a", nil, 201, published},
		{"GET", "/api/ns/f?ttr=0&freeze_tries=true", "", nil, 200, jobOf("null", "YQ==", "f", 0, 86400)},
		{"GET", "/api/ns/f?freeze_tries=true", "", nil, 404, noJob},
	})
}

func TestAttributesAreHeaders(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	yes := "Enable-Job-Version: yes"
	many := func(n int) (headers []string) {
		for i := range n {
			headers = append(headers, fmt.Sprintf("Job-Attr-%c: x", 'a'+i))
		}
		return headers
	}
	var letters []string
	for i := range 16 {
		letters = append(letters, fmt.Sprintf(`"%c":"x"`, 'a'+i))
	}
	tooMany := text("too many attributes, cannot exceed 16")
	play := func(attributes string, headers ...string) {
		t.Helper()
		p.play([]step{
			{"PUT", "/api/ns/at", "x", headers, 201, published},
			{"GET", "/api/ns/at", "", nil, 200, jobOf(attributes, "eA==", "at", 0, 86400)},
		})
	}
	play(`{"foo":"Bar"}`, yes, "Job-Attr-Foo: Bar")
	play(`{"foo":"Bar"}`, "Enable-Job-Version: YES", "JOB-ATTR-FOO: Bar")
	play("null", "Job-Attr-Foo: Bar")
	for _, version := range []string{"true", "1", "no", ""} {
		play("null", "Enable-Job-Version: "+version, "Job-Attr-Foo: Bar")
	}
	play("null", yes)
	play(`{"":"empty","l":"\u003c\"\u003e\\","x-y":""}`, yes, "Job-Attr-: empty", "Job-Attr-X-y: ", `Job-Attr-L: <">\`)
	play(`{"`+strings.Repeat("l", 32)+`":"`+strings.Repeat("v", 128)+`"}`, yes, "Job-Attr-"+strings.Repeat("L", 40)+": "+strings.Repeat("v", 140))
	play(`{"a":"1"}`, yes, "Job-Attr-A: 1", "Job-Attr-A: 2")
	play(`{"u":"\ufffd"}`, yes, "Job-Attr-U: \xe9")
	play("{"+strings.Join(letters, ",")+"}", append(many(16), yes)...)
	play("null", many(17)...)
	p.play([]step{
		{"PUT", "/api/ns/at", "x", append(many(17), yes), 400, tooMany},
		{"PUT", "/api/ns/at/bulk", "x", append(many(17), yes), 400, tooMany},
		{"PUT", "/api/ns/at?tries=x", "x", append(many(17), yes), 400, text("invalid tries")},
		{"PUT", "/api/ns/at", strings.Repeat("x", 1<<20+1), append(many(17), yes), 413, text("body too large")},
		{"PUT", "/api/ns/at/bulk", "[1,2]", []string{yes, "Job-Attr-Foo: Bar"}, 201, `{"job_ids":["ID","ID"],"msg":"published"}`},
		{"GET", "/api/ns/at?count=9", "", nil, 200, "[" + jobOf(`{"foo":"Bar"}`, "MQ==", "at", 0, 86400) + "," + jobOf(`{"foo":"Bar"}`, "Mg==", "at", 0, 86400) + "]"},
	})
}

func TestPeekGetAckAndPurge(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	shown := func(attributes, data string, remain, ttl int) string {
		return strings.Replace(jobOf(attributes, data, "q", remain, ttl), `"msg":"new job",`, "", 1)
	}
	gone := text("job not found")
	p.play([]step{
		{"GET", "/api/ns/q/peek", "", nil, 404, text("the queue is empty")},
		{"GET", "/api/ns/q/job/nope", "", nil, 404, gone},
		{"DELETE", "/api/ns/q/job/nope", "", nil, 204, ""},
		{"DELETE", "/api/ns/q", "", nil, 204, ""},
		{"PUT", "/api/ns/q?tries=2", "x", []string{"Enable-Job-Version: yes", "Job-Attr-A: 1"}, 201, published},
		{"GET", "/api/ns/q/peek", "", nil, 200, shown(`{"a":"1"}`, "eA==", 2, 86400)},
		{"GET", "/api/ns/q/job/$", "", nil, 200, shown(`{"a":"1"}`, "eA==", 0, 86400)},
		{"GET", "/api/ns/r/job/$", "", nil, 404, gone},
		{"GET", "/api/ns/q/job/$x", "", nil, 404, gone},
		{"DELETE", "/api/ns/r/job/$", "", nil, 204, ""},
		{"GET", "/api/ns/q/size", "", nil, 200, `{"namespace":"ns","queue":"q","size":1}`},
		{"GET", "/api/ns/q", "", nil, 200, jobOf(`{"a":"1"}`, "eA==", "q", 1, 86400)},
		{"GET", "/api/ns/q/job/$", "", nil, 200, shown(`{"a":"1"}`, "eA==", 0, 86400)},
		{"DELETE", "/api/ns/q/job/$", "", nil, 204, ""},
		{"GET", "/api/ns/q/job/$", "", nil, 404, gone},
		{"PUT", "/api/ns/q?delay=5", "x", nil, 201, published},
		{"GET", "/api/ns/q/peek", "", nil, 404, text("the queue is empty")},
		{"GET", "/api/ns/q/job/$", "", nil, 200, shown("null", "eA==", 0, 86400)},
		{"PUT", "/api/ns/q", "y", nil, 201, published},
		{"DELETE", "/api/ns/q", "", nil, 204, ""},
		{"GET", "/api/ns/q/size", "", nil, 200, `{"namespace":"ns","queue":"q","size":0}`},
	})
	if got := len(p.fake.of("q")); got != 1 {
		t.Errorf("after DELETE of the queue %d jobs are left, want the delayed one", got)
	}
}

func TestTTLIsRoundedUp(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	p.play([]step{{"PUT", "/api/ns/q?ttl=3&tries=9", "x", nil, 201, published}})
	for _, c := range []struct{ sleep, ttl int }{{0, 3}, {1, 3}, {999, 2}, {1, 2}, {1998, 1}} {
		p.fake.sleep(msOf(c.sleep))
		p.play([]step{{"GET", "/api/ns/q?ttr=0", "", nil, 200, jobOf("null", "eA==", "q", 8-p.fake.claims, c.ttl)}})
	}
	p.fake.sleep(msOf(1))
	p.play([]step{{"GET", "/api/ns/q?ttr=0", "", nil, 404, noJob}})
}

func TestRepublishPublishesAndThenAcks(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	size := func(n string) step {
		return step{"GET", "/api/ns/q/size", "", nil, 200, `{"namespace":"ns","queue":"q","size":` + n + `}`}
	}
	p.play([]step{
		{"PUT", "/api/ns/q", "x", nil, 201, published},
		{"PUT", "/api/ns/q/job/$?tries=x", "y", nil, 400, text("invalid tries")},
		size("1"),
		{"PUT", "/api/ns/q/job/$", "y", nil, 201, published},
		size("1"),
		{"GET", "/api/ns/q", "", nil, 200, jobOf("null", "eQ==", "q", 0, 86400)},
		{"PUT", "/api/ns/q/job/nope", "z", nil, 201, published},
		{"PUT", "/api/ns/q/job/bulk", "z", nil, 201, published},
		size("2"),
	})
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	head := func(id string, n int) string {
		return fmt.Sprintf(`{"deadletter_head":%q,"deadletter_size":%d,"namespace":"ns","queue":"d"}`, id, n)
	}
	steps := []step{{"GET", "/api/ns/d/deadletter", "", nil, 200, head("", 0)}}
	for _, n := range []string{"", "0", "x", "-1", "1.5", "9223372036854775808"} {
		steps = append(steps,
			step{"PUT", "/api/ns/d/deadletter?ttl=x&limit=" + n, "", nil, 400, text("invalid limit")},
			step{"DELETE", "/api/ns/d/deadletter?limit=" + n, "", nil, 400, text("invalid limit")})
	}
	for _, n := range []string{"", "x", "-1", "4294967296"} {
		steps = append(steps, step{"PUT", "/api/ns/d/deadletter?limit=1&ttl=" + n, "", nil, 400, text("invalid ttl")})
	}
	for range 4 {
		steps = append(steps, step{"PUT", "/api/ns/d", "x", nil, 201, published}, step{"GET", "/api/ns/d?ttr=0", "", nil, 200, jobOf("null", "eA==", "d", 0, 86400)})
	}
	respawned := func(n int) string { return fmt.Sprintf(`{"count":%d,"msg":"respawned"}`, n) }
	p.play(append(steps,
		step{"PUT", "/api/ns/other/deadletter?limit=9223372036854775807&ttl=0", "", nil, 200, respawned(0)},
		step{"DELETE", "/api/ns/other/deadletter?ttl=x", "", nil, 204, ""},
		step{"GET", "/api/ns/d/deadletter", "", nil, 200, head("ID", 4)},
		step{"GET", "/api/ns/d/deadletter/size", "", nil, 200, `{"namespace":"ns","queue":"d","size":4}`},
		step{"PUT", "/api/ns/d/deadletter", "", nil, 200, respawned(1)},
		step{"GET", "/api/ns/d", "", nil, 200, jobOf("null", "eA==", "d", 0, 86400)},
		step{"DELETE", "/api/ns/d/deadletter", "", nil, 204, ""},
		step{"PUT", "/api/ns/d/deadletter?limit=10&ttl=0", "", nil, 200, respawned(2)},
		step{"GET", "/api/ns/d", "", nil, 200, jobOf("null", "eA==", "d", 0, 0)},
		step{"GET", "/api/ns/d/deadletter", "", nil, 200, head("", 0)},
	))
}
