package lmstfy

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest"
)

// What cannot be read as a request of a path is answered in Spillway's form.
func TestHostileRequestsAreAnswered(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	auth := "Host: x\r\nX-Token: " + token + "\r\n"
	put := func(target, headers, body string) string {
		return "PUT " + target + " HTTP/1.1\r\n" + auth + headers + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body
	}
	var attributes strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&attributes, "Job-Attr-%d: x\r\n", i)
	}
	var few strings.Builder
	for i := range 120 {
		fmt.Fprintf(&few, "Job-Attr-%d: x\r\n", i)
	}
	for name, c := range map[string]struct{ request, status, body string }{
		"10,000 attributes":         {put("/api/ns/q", "Enable-Job-Version: yes\r\n"+attributes.String(), "x"), "431", `{"error":"headers_too_large"`},
		"120 attributes":            {put("/api/ns/q", "Enable-Job-Version: yes\r\n"+few.String(), "x"), "400", text("too many attributes, cannot exceed 16")},
		"a long line":               {put("/api/ns/"+strings.Repeat("q", 9000), "", "x"), "431", `{"error":"headers_too_large"`},
		"two lengths":               {put("/api/ns/q", "Transfer-Encoding: chunked\r\n", "x"), "400", `{"error":"bad_request"`},
		"a body in an unknown form": {put("/api/ns/q", "Transfer-Encoding: gzip\r\n", ""), "400", `{"error":"`},
		"HTTP/1.0":                  {strings.Replace(put("/api/ns/q", "", "x"), "1.1", "1.0", 1), "201", `{"job_id":"`},
		"HTTP/3.0":                  {strings.Replace(put("/api/ns/q", "", "x"), "1.1", "3.0", 1), "505", `{"error":"`},
		"the absolute form":         {put("http://any.host/api/ns/q", "", "x"), "201", `{"job_id":"`},
		"the absolute form, 2 MiB":  {put("http://any.host/api/ns/q", "", strings.Repeat("x", 2<<20)), "413", text("body too large")},
		"another scheme":            {put("ftp://any.host/api/ns/q", "", "x"), "400", `{"error":"`},
		"a fragment":                {put("/api/ns/q#x", "", "x"), "400", `{"error":"`},
		"two slashes first":         {put("//api/ns/q", "", "x"), "405", `{"error":"method_not_allowed"`},
		"dots":                      {put("/api/ns/../other/q", "", "x"), "404", notFoundA},
		"a dotted name":             {put("/api/ns/..", "", "x"), "400", badQueue},
		"an escaped slash":          {put("/api/ns%2Fq", "", "x"), "404", notFoundA},
		"bytes in the path":         {put("/api/ns/\xff\xfe", "", "x"), "400", badQueue},
		"bytes in the token":        {"GET /api/ns/q HTTP/1.1\r\nHost: x\r\nX-Token: \xff\xfe\r\n\r\n", "401", text("invalid token")},
		"bytes in a value":          {put("/api/ns/q", "Enable-Job-Version: yes\r\nJob-Attr-A: \xff\xfe\r\n", "x"), "201", `{"job_id":"`},
		"a large token":             {"GET /api/ns/q HTTP/1.1\r\nHost: x\r\nX-Token: " + strings.Repeat("t", 7000) + "\r\n\r\n", "401", text("invalid token")},
		"a made up method":          {"BREW /api/ns/q HTTP/1.1\r\n" + auth + "\r\n", "404", notFoundA},
		"a negative length":         {"PUT /api/ns/q HTTP/1.1\r\n" + auth + "Content-Length: -1\r\n\r\n", "400", `{"error":"`},
		"a length of 2^64":          {"PUT /api/ns/q HTTP/1.1\r\n" + auth + "Content-Length: 18446744073709551616\r\n\r\n", "400", `{"error":"`},
		"a body of 1 GiB":           {"PUT /api/ns/q HTTP/1.1\r\n" + auth + "Content-Length: 1073741824\r\n\r\n", "413", text("body too large")},
		"1 GiB that is expected":    {"PUT /api/ns/q HTTP/1.1\r\n" + auth + "Expect: 100-continue\r\nContent-Length: 1073741824\r\n\r\n", "413", text("body too large")},
		"a body of a GET":           {"GET /api/ns/nojobs HTTP/1.1\r\n" + auth + "Content-Length: 5\r\n\r\nabcde", "404", noJob},
	} {
		status, body := p.raw(c.request)
		if !strings.HasPrefix(status, c.status) || !strings.HasPrefix(body, c.body) {
			t.Errorf("%s: got %s %.200s, want %s %s", name, status, body, c.status, c.body)
		}
		if !json.Valid([]byte(body)) {
			t.Errorf("%s: %.200q is no JSON", name, body)
		}
	}
}

func TestARequestBehindAPollIsAnsweredAfterIt(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	conn, err := net.Dial("tcp", p.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	poll := "GET /api/ns/q?timeout=599 HTTP/1.1\r\nHost: x\r\nX-Token: " + token + "\r\n\r\n"
	size := "GET /api/ns/q/size HTTP/1.1\r\nHost: x\r\n\r\n"
	if _, err := io.WriteString(conn, poll+size); err != nil {
		t.Fatal(err)
	}
	<-p.fake.waiting
	p.play([]step{{"PUT", "/api/ns/q", "x", nil, 201, published}})
	r := bufio.NewReader(conn)
	for _, want := range []string{jobOf("null", "eA==", "q", 0, 86400), `{"namespace":"ns","queue":"q","size":0}`} {
		resp, err := http.ReadResponse(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if masked(string(body)) != want {
			t.Errorf("got %s, want %s", body, want)
		}
	}
}

func TestAClientThatWentAwaySwallowsNoJob(t *testing.T) {
	t.Parallel()
	p, _ := listenPools(t)
	for _, halfOnly := range []bool{false, true} {
		for range 8 {
			conn, err := net.Dial("tcp", p.addr)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(conn, "GET /api/ns/gone?timeout=30 HTTP/1.1\r\nHost: x\r\nX-Token: "+token+"\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			if halfOnly {
				_ = conn.(*net.TCPConn).CloseWrite()
				defer conn.Close()
				continue
			}
			_ = conn.Close()
		}
		for range 4 {
			p.play([]step{
				{"PUT", "/api/ns/gone", "x", nil, 201, published},
				{"GET", "/api/ns/gone?timeout=20", "", nil, 200, jobOf("null", "eA==", "gone", 0, 86400)},
			})
		}
	}
}

func TestABodyThatStopsShortIsNoJob(t *testing.T) {
	t.Parallel()
	p := listen(t, func(_ *Config, in *ingest.Config) { in.ReadTimeout = time.Second })
	// fasthttp reads the first 8 KiB, the handler the rest.
	for n, want := range map[int]string{100: "408", 100_000: "400"} {
		request := fmt.Sprintf("PUT /api/ns/q HTTP/1.1\r\nHost: x\r\nX-Token: %s\r\nContent-Length: %d\r\n\r\n%s", token, n, strings.Repeat("x", n/2))
		if status, body := p.raw(request); !strings.HasPrefix(status, want) || !strings.HasPrefix(body, `{"error":"`) {
			t.Errorf("half of %d bytes: got %s %s", n, status, body)
		}
	}
	if got := len(p.fake.of("q")); got != 0 {
		t.Errorf("%d jobs were stored", got)
	}
}

// FuzzRequest sends any path, query, token and body: each answer is JSON, has a request id
// unless it was no request of a path, and no request panics.
func FuzzRequest(f *testing.F) {
	for _, s := range [][4]string{
		{"PUT", "/api/ns/q?delay=1&ttl=2&tries=3", token, "x"}, {"PUT", "/api/ns/q/bulk", token, "[1,2]"}, {"GET", "/api/ns/a,b?count=2&ttr=1", "default:" + token, ""},
		{"DELETE", "/api/ns/q/job/01M81GK9ES9Y8647GNE0CVMRGF", token, ""}, {"PUT", "/api/ns/q/deadletter?limit=5&ttl=0", token, ""}, {"GET", "/api/%zz/q", ":", ""},
	} {
		f.Add(s[0], s[1], s[2], s[3])
	}
	p := listen(f, nil)
	f.Fuzz(func(t *testing.T, method, target, sent, body string) {
		if strings.Contains(target, "timeout") { // it may be one of many seconds
			return
		}
		conn, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
		clean := strings.NewReplacer("\r", "", "\n", "", " ", "", "\x00", "")
		_, _ = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Token: %s\r\nContent-Length: %d\r\n\r\n%s",
			clean.Replace(method), "/api/"+strings.TrimPrefix(clean.Replace(target), "/api/"), clean.Replace(sent), len(body), body)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return // what is no HTTP is answered by the server, or the connection ends
		}
		text, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		inServersForm := strings.Contains(string(text), `"message":`)
		if resp.StatusCode >= 500 && resp.StatusCode != 505 || len(text) > 0 && !json.Valid(text) || resp.Header.Get(headerRequestID) == "" && !inServersForm {
			t.Errorf("%q %q: got %d %q", method, target, resp.StatusCode, text)
		}
	})
}

func TestAPageReachesNoQueueThatNeedsNoToken(t *testing.T) {
	t.Parallel()
	p := listen(t, nil)
	for _, path := range []string{"PUT /api/open/q", "GET /api/open/q", "DELETE /api/open/q", "PUT /api/open/q/deadletter", "GET /api/open/q/size"} {
		method, path, _ := strings.Cut(path, " ")
		if r := p.do(method, path, "", "X-Token: none", "Origin: https://evil.example", "Sec-Fetch-Site: cross-site"); r.status != 403 || !strings.Contains(r.raw, "cors_origins") {
			t.Errorf("%s %s: got %d %s", method, path, r.status, r.raw)
		}
		status, body := p.raw(method + " " + path + " HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 0\r\n\r\n")
		if !strings.HasPrefix(status, "403") {
			t.Errorf("%s %s under another name: got %s %s", method, path, status, body)
		}
	}
	if r := p.do("GET", "/api/ns/q", "", "Origin: https://evil.example", "Sec-Fetch-Site: cross-site"); r.status == 403 {
		t.Errorf("with a token: got %d %s", r.status, r.raw)
	}
	if r := p.do("GET", "/api/ns/q/size", "", "X-Token: none", "Sec-Fetch-Site: cross-site"); r.status != 200 {
		t.Errorf("a size of a namespace with tokens: got %d %s", r.status, r.raw)
	}
}
