package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// maxJobsAnswer is more than any answer that the rows ask for, in bytes.
const maxJobsAnswer = 1 << 20

// jobConn is a kept-alive connection to a server of jobs, with one request in flight. It
// sends each once.
type jobConn struct {
	nc            net.Conn
	in            *bufio.Reader
	request, body []byte
	resp          fasthttp.Response
}

func dialJobs(ctx context.Context, url string, buffer int) (*jobConn, error) {
	nc, err := (&net.Dialer{Timeout: requestTimeout}).DialContext(ctx, "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		return nil, err
	}
	return &jobConn{nc: nc, in: bufio.NewReaderSize(nc, buffer)}, nil
}

// send sends a request with c.body and reads its answer, which is valid until the next one.
func (c *jobConn) send(method, target, contentType string, timeout time.Duration) (status int, answer []byte, err error) {
	r := append(c.request[:0], method...)
	r = append(append(append(r, ' '), target...), " HTTP/1.1\r\nHost: 127.0.0.1\r\n"...)
	if len(c.body) > 0 {
		r = append(append(append(r, "Content-Type: "...), contentType...), "\r\n"...)
	}
	if method != "GET" {
		r = append(strconv.AppendInt(append(r, "Content-Length: "...), int64(len(c.body)), 10), "\r\n"...)
	}
	c.request = append(append(r, "\r\n"...), c.body...)
	if err = c.nc.SetDeadline(time.Now().Add(timeout)); err == nil {
		_, err = c.nc.Write(c.request)
	}
	if err == nil {
		err = c.resp.ReadLimitBody(c.in, maxJobsAnswer)
	}
	if err != nil {
		return 0, nil, fmt.Errorf("%s %s: %w", method, target, err)
	}
	return c.resp.StatusCode(), c.resp.Body(), nil
}

// must is send where any other status than want is an error.
func (c *jobConn) must(want int, method, target, contentType string) ([]byte, error) {
	status, answer, err := c.send(method, target, contentType, requestTimeout)
	if err == nil && status != want {
		err = fmt.Errorf("%s %s: status %d: %.200s", method, target, status, answer)
	}
	return answer, err
}

// jobTurn is requests of one kind, each sent when the last one of its connection was
// answered, which is a closed loop.
type jobTurn struct {
	url         string
	connections int
	// ask sends request i. It returns how many jobs the answer confirms.
	ask func(c *jobConn, i int64) (jobs int, err error)
	// duration ends the turn; 0 leaves that to jobs.
	duration time.Duration
	jobs     int64
}

// run returns how many jobs there were, in which time. A request that fails is an error.
func (t jobTurn) run(ctx context.Context) (jobs int64, elapsed time.Duration, err error) {
	conns := make([]*jobConn, t.connections)
	for i := range conns {
		if conns[i], err = dialJobs(ctx, t.url, 4096); err != nil {
			return 0, 0, err
		}
		defer func() { _ = conns[i].nc.Close() }() // nothing is in flight
	}
	var next, done atomic.Int64
	var workers sync.WaitGroup
	errs := make([]error, len(conns))
	start := time.Now()
	longest := t.duration
	if longest == 0 {
		longest = 2 * drainTimeout
	}
	for i, c := range conns {
		workers.Go(func() {
			for ctx.Err() == nil && time.Since(start) < longest && (t.jobs == 0 || done.Load() < t.jobs) {
				n, err := t.ask(c, next.Add(1)-1)
				if errs[i] = err; err != nil {
					return
				}
				done.Add(int64(n))
			}
		})
	}
	workers.Wait()
	elapsed, jobs = time.Since(start), done.Load()
	err = errors.Join(append(errs, ctx.Err())...)
	if err == nil && t.jobs > 0 && jobs != t.jobs {
		err = fmt.Errorf("%d of %d jobs in %v", jobs, t.jobs, elapsed)
	}
	return jobs, elapsed, err
}

// idsIn are the values that follow a key in an answer. Payloads are base64 there, so the key
// is in no other place.
func idsIn(answer []byte, key string) (ids [][]byte) {
	for {
		_, rest, found := bytes.Cut(answer, []byte(key))
		if !found {
			return ids
		}
		end := bytes.IndexByte(rest, '"')
		if end < 0 {
			return ids
		}
		ids, answer = append(ids, rest[:end]), rest[end:]
	}
}
