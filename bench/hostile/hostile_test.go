package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/proc"
)

func TestEveryInputIsAnsweredAsDocumented(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the corpus takes minutes")
	}
	bin, err := proc.Build(t.TempDir(), "./cmd/spillway")
	if err != nil {
		t.Fatal(err)
	}
	var out, progress bytes.Buffer
	if code := command(t.Context(), []string{"-bin", bin}, &out, &progress); code != 0 {
		t.Errorf("exit code %d\n%s%s", code, &out, &progress)
	}
}

func TestREADMESaysHowManyRowsEachCategoryHas(t *testing.T) {
	t.Parallel()
	var want strings.Builder
	want.WriteString("| category | rows | what it tries |\n|---|---|---|\n")
	total := 0
	for _, c := range corpus() {
		fmt.Fprintf(&want, "| %s | %d | %s |\n", c.name, c.count, c.about)
		total += c.count
	}
	fmt.Fprintf(&want, "| all | %d | |\n", total)
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	table := regexp.MustCompile(`(?m)^\| category(.*\n\|)*.*\n`)
	if *update {
		text = table.ReplaceAllLiteral(text, []byte(want.String()))
		if err := os.WriteFile("README.md", text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := table.FindString(string(text)); got != want.String() {
		t.Errorf("README.md has this table:\n%s\nwant\n%s", got, &want)
	}
}

func TestRowsHaveDifferentNamesAndInputs(t *testing.T) {
	t.Parallel()
	names, inputs := map[string]bool{}, map[string]string{}
	once := func(category, name, input string) {
		if name = category + ": " + name; names[name] {
			t.Errorf("%s is there twice", name)
		}
		names[name] = true
		if other, twice := inputs[input]; twice {
			t.Errorf("%s sends what %s sends", name, other)
		}
		inputs[input] = name
	}
	for _, c := range corpus() {
		for _, r := range c.rows {
			once(c.name, r.name, r.send)
		}
		for _, p := range c.plays {
			once(c.name, p.name, "situation "+p.name)
		}
	}
	for _, r := range admins {
		once("admin", r.name, "admin "+r.send)
	}
	for _, r := range guardedAdmins {
		once("admin token", r.name, "guarded admin "+r.send)
	}
	for _, r := range slow {
		once("slow", r.name, fmt.Sprint("slow ", r.pieces))
	}
	for _, u := range invalidURLs {
		once("sink urls", u.name, u.url)
	}
	for _, u := range invalidSettings {
		once("settings", u.name, "settings "+u.flags)
	}
	for _, u := range targets {
		once("sink answers", u.name, u.url)
	}
}

// The runner must notice every difference from what a row expects.
func TestTheRunnerNoticesEveryDifference(t *testing.T) {
	t.Parallel()
	const empty = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	alive := "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 15\r\n\r\n{\"status\":\"ok\"}"
	last := "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 23\r\n\r\n{\"error\":\"bad_request\"}"
	for name, c := range map[string]struct {
		script peer
		want   string
	}{
		"as wanted, kept":      {peer{answers: []string{empty, alive}}, "200, kept"},
		"as wanted, closed":    {peer{answers: []string{last}, close: true}, "400 bad_request, closed"},
		"another status":       {peer{answers: []string{last}, close: true}, "400 bad_request, closed"},
		"one answer more":      {peer{answers: []string{empty + empty, alive}}, "200, kept, one more answer than wanted, or the wrong one: 200"},
		"no answer":            {peer{close: true}, "none, closed"},
		"no HTTP":              {peer{answers: []string{"nonsense\r\n\r\n"}, close: true}, `, closed, no answer: malformed HTTP response "nonsense"`},
		"a reset":              {peer{answers: []string{last}, close: true, reset: true}, "400 bad_request, closed, reset"},
		"the server is named":  {peer{answers: []string{strings.Replace(empty, "\r\n", "\r\nServer: x\r\n", 1), alive}}, "200 Server=x, kept"},
		"JSON that is none":    {peer{answers: []string{strings.Replace(last, `"error"`, `"error_`, 1)}, close: true}, `400 malformed body "{\"error_:\"bad_request\"}", closed`},
		"a wait of no seconds": {peer{answers: []string{strings.Replace(empty, "\r\n", "\r\nRetry-After: 0\r\n", 1), alive}}, `200 bad Retry-After "0", kept`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := exchange(c.script.listen(t), stall("GET / HTTP/1.1\r\n\r\n"), []string{"200"})
			if got := s.String(); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

// peer is a server that answers each request with the next of its texts.
type peer struct {
	answers []string
	close   bool // after the last one
	reset   bool // by an RST
}

func (p peer) listen(t *testing.T) (addr string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = ln.Close(); <-done })
	go func() {
		defer close(done)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		_ = c.SetDeadline(time.Now().Add(10 * time.Second))
		in := bufio.NewReader(c)
		for _, text := range p.answers {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			if _, err := io.WriteString(c, text); err != nil {
				return
			}
		}
		if len(p.answers) == 0 {
			_, _ = http.ReadRequest(in) // a close with something unread would be a reset
		}
		switch {
		case p.reset:
			_ = c.(*net.TCPConn).SetLinger(0)
		case !p.close:
			_, _ = in.ReadByte() // until the other side leaves
		}
	}()
	return ln.Addr().String()
}
