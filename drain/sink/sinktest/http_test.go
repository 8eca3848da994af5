package sinktest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// poster is a sink with an HTTP target that keeps the promises; each row below breaks one.
type poster struct {
	*http.Transport
	target, host string
	send         func(ctx context.Context, p *poster, r *http.Request) (sink.Answer, error)
	judge        func(p *poster, a sink.Answer) error
}

func (p *poster) Open(context.Context) error  { return nil }
func (p *poster) Close(context.Context) error { p.CloseIdleConnections(); return nil }
func (p *poster) Caps() sink.Caps             { return sink.Caps{} }

func (p *poster) Write(ctx context.Context, batches []*sink.Batch) error {
	body := strings.NewReader(string(batches[0].Entries[0].Payload))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.target, body)
	if err != nil {
		return err
	}
	a, err := p.send(ctx, p, r)
	if err != nil {
		return err
	}
	return p.judge(p, a)
}

func send(_ context.Context, p *poster, r *http.Request) (sink.Answer, error) {
	return sink.Send(p.Transport, r, "post to", p.host, 1000)
}

func judge(p *poster, a sink.Answer) error {
	if a.Status/100 == 2 {
		return nil
	}
	return fmt.Errorf("post to %s: answered %d", p.host, a.Status)
}

// follows is a sink that uses a client of net/http, which follows redirects.
func follows(_ context.Context, p *poster, r *http.Request) (sink.Answer, error) {
	resp, err := (&http.Client{Transport: p.Transport}).Do(r)
	if err != nil {
		return sink.Answer{}, errors.New("post failed")
	}
	return sink.Answer{Status: resp.StatusCode}, resp.Body.Close()
}

// promising describes a poster that break may change.
func promising(breakIt func(p *poster, u *url.URL)) HTTP {
	return HTTP{
		New: func(u *url.URL) (sink.Sink, error) {
			p := &poster{Transport: sink.NewTransport(), host: u.Host, send: send, judge: judge}
			err := sink.CheckHost(u, "http://host")
			if breakIt != nil {
				breakIt(p, u)
			}
			u.User = nil
			switch p.target {
			case "":
				p.target = u.String()
			case "x":
				err = nil
			}
			return p, err
		},
		URL: "http://u:s3cret@HOST/in", TLS: "https://u:s3cret@HOST/in",
		Wrong:     map[string]string{"http://u:s3cret@h:0/": "port is not 1 to 65535"},
		Transport: func(s sink.Sink) *http.Transport { return s.(*poster).Transport },
		Accept:    func(http.ResponseWriter, *http.Request) {},
		Outcome: func(status int) string {
			if status/100 == 2 {
				return "accepted"
			}
			return "retry"
		},
		Fault: "retry", Cut: "retry", Endless: "accepted", Reads: 900,
	}
}

func TestAnHTTPSinkThatKeepsThePromisesPasses(t *testing.T) {
	t.Parallel()
	RunHTTP(t, promising(nil))
}

func TestEveryHTTPCheckFindsWhatItLooksFor(t *testing.T) {
	t.Parallel()
	broken := map[string]map[string]func(p *poster, u *url.URL){
		"rejects URLs that cannot work, without their secrets": {
			"takes all": func(p *poster, _ *url.URL) { p.target = "x" },
		},
		"rejects a name that resolves to a link-local address": {
			"another dialer": func(p *poster, _ *url.URL) {
				dial := p.DialContext
				p.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
					if !strings.HasPrefix(addr, "127.0.0.1:") {
						return nil, errors.New("no route") // where another dialer would connect
					}
					return dial(ctx, network, addr)
				}
			},
		},
		"gives every status its outcome": {
			"throttles 503": func(p *poster, _ *url.URL) {
				p.judge = func(p *poster, a sink.Answer) error {
					if a.Status == 503 {
						return sink.Throttle(judge(p, a), time.Second)
					}
					return judge(p, a)
				}
			},
			"hides the status": func(p *poster, _ *url.URL) {
				p.judge = func(p *poster, a sink.Answer) error {
					if judge(p, a) != nil {
						return errors.New("failed")
					}
					return nil
				}
			},
			"shows the password": func(p *poster, u *url.URL) {
				raw := u.String()
				p.judge = func(p *poster, a sink.Answer) error {
					if err := judge(p, a); err != nil {
						return fmt.Errorf("%s: %w", raw, err)
					}
					return nil
				}
			},
		},
		"reads no endless answer to its end": {
			"reads all": func(p *poster, _ *url.URL) {
				p.send = func(_ context.Context, p *poster, r *http.Request) (sink.Answer, error) {
					return sink.Send(p.Transport, r, "post to", p.host, 1<<40)
				}
			},
		},
		"waits for nothing on a connection that switched protocols": {
			"reads the connection": func(p *poster, _ *url.URL) {
				p.send = func(ctx context.Context, p *poster, r *http.Request) (sink.Answer, error) {
					resp, err := sink.RoundTrip(p.Transport, r)
					if err != nil {
						return sink.Answer{}, sink.FaultError(ctx, "post to", p.host, err)
					}
					defer func() { _ = resp.Body.Close() }()
					body, err := io.ReadAll(resp.Body)
					return sink.Answer{Status: resp.StatusCode, Body: body}, err
				}
			},
		},
		"takes a broken answer for a fault, and quotes none of it": {
			"quotes": func(p *poster, _ *url.URL) {
				p.send = func(_ context.Context, p *poster, r *http.Request) (sink.Answer, error) {
					resp, err := sink.RoundTrip(p.Transport, r)
					if err != nil {
						return sink.Answer{}, err
					}
					return sink.Answer{Status: resp.StatusCode}, resp.Body.Close()
				}
			},
		},
		"ends a slow answer at the deadline": {
			"has a limit of its own": func(p *poster, _ *url.URL) {
				p.ResponseHeaderTimeout = time.Millisecond
			},
		},
		"asks once a Write, and follows no redirect": {
			"follows": func(p *poster, _ *url.URL) { p.send = follows },
			"lets the transport repeat": func(p *poster, _ *url.URL) {
				p.send = func(ctx context.Context, p *poster, r *http.Request) (sink.Answer, error) {
					r.Header.Set("Idempotency-Key", "x")
					return send(ctx, p, r)
				}
			},
		},
		"uses its connection again after every answer": {
			"closes it": func(p *poster, _ *url.URL) { p.DisableKeepAlives = true },
		},
		"says when nothing was sent": {
			"loses the mark": func(p *poster, _ *url.URL) {
				p.send = func(ctx context.Context, p *poster, r *http.Request) (sink.Answer, error) {
					a, err := send(ctx, p, r)
					if err != nil {
						err = errors.New(err.Error())
					}
					return a, err
				}
			},
		},
		"trusts signed certificates only": {
			"speaks no TLS": func(p *poster, u *url.URL) { p.target = "http://" + u.Host },
		},
	}
	for _, c := range httpChecks {
		if len(broken[c.name]) == 0 {
			t.Errorf("no broken sink for the check %q", c.name)
		}
		for how, breakIt := range broken[c.name] {
			t.Run(c.name+"/"+how, func(t *testing.T) {
				t.Parallel()
				for range 20 { // a machine that stands still may hide a mistake
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					err := c.on(ctx, promising(breakIt))
					cancel()
					if err != nil {
						return
					}
				}
				t.Error("the check passes")
			})
		}
	}
}
