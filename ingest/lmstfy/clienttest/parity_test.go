package clienttest

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
)

// request is one that Spillway and lmstfy answer alike. $ in a path is the id in the last
// answer to a PUT.
type request struct {
	method, path, body string
	header             http.Header
}

var parityMasks = []struct {
	find *regexp.Regexp
	with string
}{
	// lmstfy's ids of jobs with attributes begin with another digit.
	{regexp.MustCompile(`\b[0-9A-Z]{26,27}\b`), "ID"},
	{regexp.MustCompile(`"elapsed_ms":\d+`), `"elapsed_ms":N`},
}

func masked(text string) string {
	for _, m := range parityMasks {
		text = m.find.ReplaceAllString(text, m.with)
	}
	return text
}

var jobID = parityMasks[0].find

// answers plays requests and returns what is compared of each answer.
func (s *server) answers(addr string, requests []request) (answers []string) {
	id := ""
	for _, r := range requests {
		h := r.header.Clone()
		if h == nil {
			h = http.Header{}
		}
		if _, own := h["X-Token"]; !own {
			h.Set("X-Token", s.token)
		}
		status, body, got := s.do(addr, r.method, strings.ReplaceAll(strings.ReplaceAll(r.path, "$", id), "TOKEN", s.token), r.body, h)
		if found := jobID.FindString(body); found != "" && r.method == http.MethodPut {
			id = found
		}
		withID := ""
		if got.Get("X-Request-Id") != "" {
			withID = " with a request id"
		}
		answers = append(answers, fmt.Sprintf("%d %s %s%s", status, got.Get("Content-Type"), strings.ReplaceAll(masked(body), s.token, "TOKEN"), withID))
	}
	return answers
}

func compare(t *testing.T, addr func(*server) string, requests []request) {
	t.Helper()
	of := map[string][]string{}
	for _, start := range []func(testing.TB) *server{startSpillway, startLmstfy} {
		s := start(t)
		of[s.name] = s.answers(addr(s), requests)
	}
	for i, r := range requests {
		if ours, theirs := of["spillway"][i], of["lmstfy"][i]; ours != theirs {
			t.Errorf("%s %.100s with %d bytes and %v: Spillway answers %.300s, lmstfy %.300s", r.method, r.path, len(r.body), r.header, ours, theirs)
		}
	}
}

func withHeader(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}
	return h
}

func TestTheDataPortAnswersAsLmstfyDoes(t *testing.T) {
	t.Parallel()
	long, mib := strings.Repeat("n", 256), strings.Repeat("x", 1<<20)
	noToken, other := withHeader("X-Token", ""), withHeader("X-Token", "other")
	attributes := withHeader("Enable-Job-Version", "Yes", "Job-Attr-Colour", "Red", "Job-Attr-"+strings.Repeat("L", 40), strings.Repeat("v", 140), "Job-Attr-B", "<é>")
	var rs []request
	add := func(method, body string, header http.Header, paths ...string) {
		for _, path := range paths {
			rs = append(rs, request{method, path, body, header})
		}
	}
	add("GET", "", nil, "/api/ns/q/nope", "/api/ns/q/job/", "/api/ns/q/job/x/y", "/api/ns/q/deadletter/x", "/api/ns")
	add("POST", "", nil, "/api/ns/q", "/api/ns/q/deadletter")
	add("HEAD", "", nil, "/api/ns/q")
	add("OPTIONS", "", nil, "/api/ns/q")
	add("PATCH", "", nil, "/api/ns/q")
	add("PUT", "x", nil, "/api/"+long+"/q", "/api/ns/"+long, "/api/n.s/q", "/api/ns/q.x", "/api/ns/_q", "/api/_ns/q", "/api/ns/q%20x", "/api/ns/-", "/api/ns/q.x?tries=x")
	add("GET", "", nil, "/api/ns/"+long, "/api/"+long+"/q", "/api/ns/_q", "/api/ns/q.x", "/api/ns/,", "/api/ns/a,", "/api/ns/a,,b", "/api/ns/a%2Cb", "/api/ns/a,b/peek", "/api/ns/"+long+"/size", "/api//q")
	add("DELETE", "", nil, "/api/ns/a,b", "/api/ns/_q", "/api/ns/q/job/zzz", "/api/ns/none", "/api/ns/none/deadletter")
	for _, token := range []string{"", "abc", "nope:abc", "nope:", ":TOKEN", "default:", "a:b:c", "default:a:b"} {
		add("GET", "", withHeader("X-Token", token), "/api/ns/q", "/api/ns/q/size", "/api/ns/q/deadletter", "/api/ns/q/deadletter/size", "/api/other/q")
	}
	add("GET", "", noToken, "/api/ns/q?token=TOKEN", "/api/ns/q?token=default:TOKEN", "/api/ns/q?token=", "/api/ns/q?token=x&token=TOKEN")
	add("GET", "", other, "/api/ns/q?token=TOKEN")
	add("PUT", "token=x", withHeader("X-Token", "", "Content-Type", "application/x-www-form-urlencoded"), "/api/ns/q")
	add("PUT", "x", noToken, "/api/ns/q?tries=x", "/api/ns/q.x?tries=x")
	for _, rest := range []string{"", "/job/none", "/bulk"} {
		for _, q := range []string{"delay=x", "delay=", "delay=-1", "delay=4294967296", "delay=4294967295", "delay=1.5", "delay=0x1", "delay=01", "delay=1_0", "ttl=x", "ttl=", "ttl=0", "ttl=4294967295", "ttl=4294967296", "ttl=5&delay=6", "ttl=5&delay=5", "ttl=0&delay=6", "delay=86401", "tries=0", "tries=65536", "tries=65535", "tries=", "tries=x", "delay=x&ttl=x", "ttl=x&tries=0", "delay=10&ttl=5&tries=x", "delay=1&delay=x", "delay=x&delay=1"} {
			add("PUT", `["x"]`, nil, "/api/ns/params"+rest+"?"+q)
		}
		add("PUT", mib+"yy", nil, "/api/ns/big"+rest+"?tries=x")
	}
	add("PUT", mib, nil, "/api/ns/big")
	add("PUT", mib+"y", nil, "/api/ns/big", "/api/ns/big/job/x")
	for _, body := range []string{"", "[]", "{}", "null", `"x"`, "[1", "[1,]", "[1] x", "[1][2]", " [1, 2.50 ,\"a\\u0041\",{\"b\": 1,\"a\":[ ]},null,true]\n", "[" + strings.Repeat("1,", 63) + "1]", "[" + strings.Repeat("1,", 64) + "1]", "[1,\"" + mib + "\"]", "[\"\xff\"]"} {
		add("PUT", body, nil, "/api/ns/bulk/bulk")
	}
	for range 6 {
		add("GET", "", nil, "/api/ns/bulk")
	}
	add("GET", "", nil, "/api/ns/bulk?count=100", "/api/ns/bulk?count=100")
	for _, q := range []string{"count=0", "count=101", "count=", "count=x", "count=-1", "ttr=", "ttr=x", "ttr=4294967296", "timeout=", "timeout=x", "ttr=x&timeout=x&count=x", "timeout=x&count=0", "count=1", "count=2", "timeout=1&count=3", "ttr=4294967295", "freeze_tries=x"} {
		add("GET", "", nil, "/api/ns/none?"+q, "/api/ns/none,other?"+q)
	}
	add("PUT", "x", attributes, "/api/ns/at?tries=2")
	add("GET", "", nil, "/api/ns/at/peek", "/api/ns/at/job/$", "/api/ns/at", "/api/ns/at")
	add("DELETE", "", nil, "/api/ns/at/job/$", "/api/ns/at/job/$")
	add("GET", "", nil, "/api/ns/at/job/$", "/api/ns/at/peek")
	add("PUT", "[1,2]", attributes, "/api/ns/at/bulk")
	add("GET", "", nil, "/api/ns/at?count=3")
	add("PUT", "x", withHeader("Enable-Job-Version", "true", "Job-Attr-A", "1"), "/api/ns/at")
	add("GET", "", nil, "/api/ns/at")
	many := withHeader("Enable-Job-Version", "yes")
	for i := range 17 {
		many.Set(fmt.Sprintf("Job-Attr-%c", 'a'+i), "x")
	}
	add("PUT", "x", many, "/api/ns/at", "/api/ns/at?tries=x")
	add("PUT", "", nil, "/api/ns/e?ttl=0")
	add("GET", "", nil, "/api/ns/e/job/$", "/api/ns/e/size", "/api/ns/e/peek", "/api/ns/e,at", "/api/ns/e/size", "/api/ns/e/deadletter", "/api/ns/e/deadletter/size")
	for _, q := range []string{"limit=0", "limit=", "limit=x", "limit=-1", "limit=9223372036854775807", "limit=9223372036854775808", "limit=1&ttl=x", "limit=0&ttl=x"} {
		add("PUT", "", nil, "/api/ns/none/deadletter?"+q)
		add("DELETE", "", nil, "/api/ns/none/deadletter?"+q)
	}
	add("PUT", "", nil, "/api/ns/none/deadletter?ttl=", "/api/ns/none/deadletter")
	compare(t, func(s *server) string { return s.data }, rs)
}

func TestTheAdminPortAnswersAsLmstfyDoes(t *testing.T) {
	t.Parallel()
	const chosen = "/token/b/chosen-by-the-user-20/limit"
	form := withHeader("Content-Type", "application/x-www-form-urlencoded")
	compare(t, func(s *server) string { return s.admin }, []request{
		{"GET", "/pools", "", nil},
		{"GET", "/token/ns", "", nil},
		{"GET", "/token/ns?pool=nope", "", nil},
		{"GET", "/token/none", "", nil},
		{"POST", "/token/b", "", nil},
		{"POST", "/token/b?description=", "", nil},
		{"POST", "/token/b?token=short&pool=zz", "", nil},
		{"POST", "/token/b?description=x&token=short", "", nil},
		{"POST", "/token/n.s?description=x&token=short", "", nil},
		{"POST", "/token/n.s?description=x&pool=zz", "", nil},
		{"POST", "/token/n%20s?description=x", "", nil},
		{"POST", "/token/" + strings.Repeat("n", 256) + "?description=x", "", nil},
		{"POST", "/token/b?description=x&pool=zz", "", nil},
		{"POST", "/token/b?description=x&token=chosen-by-the-user-20", "", nil},
		{"POST", "/token/b?description=x&token=chosen-by-the-user-20", "", nil},
		{"POST", "/token/b", "description=a+form&token=another-one-of-the-user", form},
		{"POST", "/token/c?description=random", "", nil},
		{"GET", "/token/b", "", nil},
		{"GET", chosen, "", nil},
		{"GET", "/limits", "", nil},
		{"POST", chosen, `{"read":1,"write":0,"interval":0}`, nil},
		{"POST", chosen, `{"read":2,"interval":3,"zz":1}`, nil},
		{"POST", chosen, `{"read":2,"interval":3}`, nil},
		{"GET", chosen, "", nil},
		{"PUT", chosen, `{"read":5,"write":6,"interval":7}`, nil},
		{"GET", "/limits", "", nil},
		{"DELETE", chosen, "", nil},
		{"DELETE", chosen, "", nil},
		{"GET", chosen, "", nil},
		{"DELETE", "/token/b/chosen-by-the-user-20", "", nil},
		{"DELETE", "/token/b/chosen-by-the-user-20", "", nil},
		{"DELETE", "/token/b/default:another-one-of-the-user", "", nil},
		{"GET", "/token/b", "", nil},
		{"GET", "/accesslog", "", nil},
		{"POST", "/accesslog?status=enable", "", nil},
		{"GET", "/accesslog?status=disable", "", nil},
		{"POST", "/accesslog?status=x", "", nil},
		{"POST", "/accesslog?status=disable", "", nil},
	})
}
