package main

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// hazard is the receiver that a webhook should not have to meet: what it
// answers is chosen by the path. Beside it is a listener that nobody may reach.
type hazard struct {
	addr      string
	redis     string // for sinks that are aimed at it
	forbidden string
	trespass  atomic.Int64 // connections to the forbidden one
	sawUser   atomic.Bool  // the configured password arrived where it should

	listeners []net.Listener
}

func newHazard() (*hazard, error) {
	h := &hazard{}
	for i, accepted := range []func(net.Conn){h.answer, func(c net.Conn) { h.trespass.Add(1); _ = c.Close() }} {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			h.close()
			return nil, err
		}
		*[]*string{&h.addr, &h.forbidden}[i] = ln.Addr().String()
		h.listeners = append(h.listeners, ln)
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return // closed
				}
				go accepted(c)
			}
		}()
	}
	return h, nil
}

func (h *hazard) close() {
	for _, ln := range h.listeners {
		_ = ln.Close()
	}
}

// answer reads one request and answers it as its path says, then hangs up.
func (h *hazard) answer(c net.Conn) {
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	req, err := http.ReadRequest(bufio.NewReader(c))
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, req.Body)
	if _, password, _ := req.BasicAuth(); password == userCanary {
		h.sawUser.Store(true)
	}
	path, _, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/answer/"), "/")
	text, known := answers[path]
	if !known {
		return
	}
	text, endless := strings.CutSuffix(strings.ReplaceAll(text, "FORBIDDEN", h.forbidden), "…")
	for err == nil {
		if _, err = io.WriteString(c, text); !endless {
			return
		}
		if text = "x"; path == "endless" {
			text = x(64 << 10)
			continue
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// answers by path; one that ends in … goes on for ever, a byte now and then.
var answers = map[string]string{
	"200":       "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
	"422":       "HTTP/1.1 422 \x1b[31m" + pathCanary + "\r\nContent-Length: 39\r\n\r\n\x1b]0;owned\a\r\n\r\nFAKE LOG LINE level=error",
	"evil":      "HTTP/1.1 200 OK\r\nX-Evil: \x1b[2J" + pathCanary + "\r\nContent-Length: 0\r\n\r\n",
	"301":       "HTTP/1.1 301 Moved\r\nLocation: http://FORBIDDEN/\r\nContent-Length: 0\r\n\r\n",
	"302":       "HTTP/1.1 302 Found\r\nLocation: http://FORBIDDEN/latest/meta-data\r\nContent-Length: 0\r\n\r\n",
	"303":       "HTTP/1.1 303 See Other\r\nLocation: //FORBIDDEN/\r\nContent-Length: 0\r\n\r\n",
	"307":       "HTTP/1.1 307 Temporary\r\nLocation: http://FORBIDDEN/\r\nContent-Length: 0\r\n\r\n",
	"308":       "HTTP/1.1 308 Permanent\r\nLocation: gopher://FORBIDDEN/_FLUSHALL\r\nContent-Length: 0\r\n\r\n",
	"refresh":   "HTTP/1.1 200 OK\r\nRefresh: 0; url=http://FORBIDDEN/\r\nLink: <http://FORBIDDEN/>; rel=preload\r\nContent-Length: 0\r\n\r\n",
	"101":       "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n…",
	"401":       "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"http://FORBIDDEN/\"\r\nContent-Length: 0\r\n\r\n",
	"endless":   "HTTP/1.1 200 OK\r\n\r\n…",
	"bomb":      "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 20\r\n\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xffxxxxxxxxxx",
	"results":   "HTTP/1.1 200 OK\r\nContent-Length: 72\r\n\r\n{\"results\":[{\"i\":99999999,\"result\":\"retry\"},{\"i\":-1,\"result\":\"drop\"},7]}",
	"chatty":    "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"message\":\"" + strings.Repeat("m", 100_000) + "\",\"results\":[{\"i\":0,\"result\":\"drop\"}]}",
	"dropped":   "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"results\":[{\"i\":0,\"result\":\"drop\",\"reason\":\"\\u001b[31m\\nlevel=error\"}]}",
	"500":       "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n",
	"throttled": "HTTP/1.1 503 Busy\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n",
	"headers":   "HTTP/1.1 200 OK\r\nX-A: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
	"lines":     "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 100_000) + "\r\n",
	"interim":   strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 1000),
	"slowhead":  "HTTP/1.1 200 OK\r\nX-A: …",
	"slowbody":  "HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n…",
	"short":     "HTTP/1.1 200 OK\r\nContent-Length: 60\r\n\r\nshort",
	"banner":    "SSH-2.0-OpenSSH_9.2\r\n",
	"hangup":    "",
	"chunks":    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
}
