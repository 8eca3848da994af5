package bench

import (
	"bufio"
	"context"
	"net"
	"strconv"
	"time"

	"github.com/tidwall/gjson"
	"github.com/valyala/fasthttp"
)

const (
	maxAnswerBytes = 1 << 20
	// maxIdle is how long a connection is trusted unused: servers close idle
	// ones, and a request that meets the closing has an unknown outcome.
	maxIdle = 5 * time.Second
)

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// conn is one keep-alive connection. It writes each request exactly once: a
// client library that retries by itself would make the counts worthless.
type conn struct {
	dial    dialer
	addr    string
	timeout time.Duration

	nc   net.Conn // nil while closed
	br   *bufio.Reader
	used time.Time
	resp fasthttp.Response
}

func (c *conn) open(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	nc, err := c.dial(ctx, "tcp", c.addr)
	if err != nil {
		return err
	}
	c.nc, c.br, c.used = nc, bufio.NewReader(nc), time.Now()
	return nil
}

func (c *conn) close() {
	if c.nc != nil {
		_ = c.nc.Close() // nothing is in flight, so nothing depends on how it ends
		c.nc = nil
	}
}

// outcome is where the entries of one request went.
type outcome struct {
	acked   int
	evicted int
	unknown int
	reasons []string // one per rejected entry
}

// exchange sends a request that carries n entries and reads the answer.
func (c *conn) exchange(ctx context.Context, request []byte, n int) outcome {
	if c.nc != nil && time.Since(c.used) > maxIdle {
		c.close()
	}
	if c.nc == nil {
		if err := c.open(ctx); err != nil {
			return allRejected("connect", n)
		}
	}
	c.used = time.Now()
	err := c.nc.SetDeadline(c.used.Add(c.timeout))
	if err == nil {
		_, err = c.nc.Write(request)
	}
	if err == nil {
		err = c.resp.ReadLimitBody(c.br, maxAnswerBytes)
	}
	if err != nil {
		c.close()
		return outcome{unknown: n}
	}
	if c.resp.ConnectionClose() {
		c.close()
	}
	return readAnswer(c.resp.StatusCode(), c.resp.Body(), n)
}

// readAnswer reads an answer as the wire contract defines it. One that contradicts
// itself is counted as bad_answer, never as success.
func readAnswer(status int, body []byte, n int) outcome {
	switch {
	case status == fasthttp.StatusNoContent:
		return outcome{acked: n}
	case status == fasthttp.StatusOK:
		if string(body) == `{"success":true}` { // what Segment's SDKs are told; accounts say whether it is true
			return outcome{acked: n}
		}
		var out outcome
		out.acked = int(gjson.GetBytes(body, "accepted").Int())
		out.evicted = int(gjson.GetBytes(body, "evicted").Int())
		gjson.GetBytes(body, "results").ForEach(func(_, item gjson.Result) bool {
			switch reason := item.Get("reason").String(); {
			case item.Get("result").String() == "warning": // stored all the same
			case reason == "unknown":
				out.unknown++
			default:
				out.reasons = append(out.reasons, reason)
			}
			return true
		})
		if out.acked+out.unknown+len(out.reasons) != n {
			return allRejected("bad_answer", n)
		}
		return out
	case gjson.GetBytes(body, "outcome").String() == "unknown":
		return outcome{unknown: n}
	}
	code := gjson.GetBytes(body, "error").String()
	if code == "" {
		code = "status_" + strconv.Itoa(status)
	}
	return allRejected(code, n)
}

func allRejected(reason string, n int) outcome {
	reasons := make([]string, n)
	for i := range reasons {
		reasons[i] = reason
	}
	return outcome{reasons: reasons}
}
