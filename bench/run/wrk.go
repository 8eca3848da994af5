package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spillway-io/spillway/bench"
)

// wrkThreads is one for each processor of the machine that the goals are for.
const wrkThreads = 2

// wrkScript has every thread go round the partitions, from a place of its own,
// with requests that are built once; at the end it prints its counts as JSON.
const wrkScript = `
local threads = 0
function setup(thread)
  thread:set('number', threads)
  threads = threads + 1
end

local requests, at = {}, 0
function init(args)
  REQUESTS
  at = math.floor(number * #requests / THREADS)
end

function request()
  at = at % #requests + 1
  return requests[at]
end

function done(summary)
  local e = summary.errors
  io.write(string.format('{"requests":%d,"elapsed_us":%d,"failed":%d}\n', summary.requests, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout))
end
`

// wrkResult is what wrk counted. Requests in flight at its end are in none of
// the counts, although the server may have taken them.
type wrkResult struct {
	Requests int64 `json:"requests"` // answered
	Elapsed  int64 `json:"elapsed_us"`
	Failed   int64 `json:"failed"` // no connection, no answer, or not a 2xx or 3xx

	cpu time.Duration
}

func (w wrkResult) rate() float64 { return float64(w.Requests) / float64(w.Elapsed) * 1e6 }

// wrkRequest is a POST, with a key.
type wrkRequest struct{ path, contentType, key, body string }

// wrk loads a data port with requests, one after the other. It takes whole seconds.
func (m *measurement) wrk(ctx context.Context, dir, url string, conns int, requests []wrkRequest) (res wrkResult, err error) {
	script := filepath.Join(dir, "requests.lua")
	var lines strings.Builder
	for i, r := range requests {
		var key string
		if r.key != "" {
			key = ", Authorization = " + luaText("Bearer "+r.key)
		}
		fmt.Fprintf(&lines, "requests[%d] = wrk.format('POST', %s, {['Content-Type'] = %s%s}, %s)\n",
			i+1, luaText(r.path), luaText(r.contentType), key, luaText(r.body))
	}
	text := strings.NewReplacer("REQUESTS", lines.String(), "THREADS", fmt.Sprint(wrkThreads)).Replace(wrkScript)
	if err := os.WriteFile(script, []byte(text), 0o600); err != nil {
		return res, err
	}
	seconds := fmt.Sprintf("%ds", int(math.Ceil(m.segment.Seconds())))
	cmd := exec.CommandContext(ctx, m.wrkPath, "-t", fmt.Sprint(wrkThreads), "-c", fmt.Sprint(conns), "-d", seconds, "-s", script, url)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return res, fmt.Errorf("wrk: %w: %.500s", err, out)
	}
	last := strings.TrimSpace(string(out))
	last = last[strings.LastIndexByte(last, '\n')+1:]
	if err := json.Unmarshal([]byte(last), &res); err != nil || res.Elapsed == 0 {
		return res, fmt.Errorf("wrk: %.500s", out)
	}
	res.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return res, nil
}

// luaText is a literal of Lua, whatever the bytes are.
func luaText(text string) string {
	literal := []byte{'\''}
	for _, c := range []byte(text) {
		if c < ' ' || c > '~' || c == '\'' || c == '\\' {
			literal = fmt.Appendf(literal, `\%03d`, c)
		} else {
			literal = append(literal, c)
		}
	}
	return string(append(literal, '\''))
}

// oneEvents are one-event requests, one a partition.
func (m *measurement) oneEvents() []wrkRequest {
	requests := make([]wrkRequest, m.partitions)
	for i := range requests {
		requests[i] = wrkRequest{fmt.Sprint("/v1/default/bench-", i), "application/json", "", bench.Payload(0, m.payload)}
	}
	return requests
}

// confirmed measures row a: with wrk, or with our own loader where there is none.
func confirmed(ctx context.Context, m *measurement) error {
	path, err := exec.LookPath(m.wrkPath)
	if err == nil {
		m.wrkPath = path
		return m.byWrk(ctx)
	}
	m.rows[0].Note += "; wrk was not found (Debian's package of that name): by our own loader"
	ours, other, c, err := m.confirmedByLoader(ctx)
	if err != nil {
		return err
	}
	m.rows[0].add(ours, other, &c)
	m.rows[1].add(c.Redis, 0, nil)
	return nil
}

func (m *measurement) byWrk(ctx context.Context) error {
	other, err := m.noop(ctx, oneEventLoad(m), func(dir, url string) (float64, error) {
		res, err := m.wrk(ctx, dir, url, manyConns, m.oneEvents())
		if err == nil && res.Failed > 0 {
			err = fmt.Errorf("no-op: %d requests failed", res.Failed)
		}
		return res.rate(), err
	})
	if err != nil {
		return err
	}
	ours, c, err := m.storedByWrk(ctx)
	if err != nil {
		return err
	}
	m.rows[0].add(ours, other, &c)
	m.rows[1].add(c.Redis, 0, nil)
	return nil
}

// storedByWrk is the rate of one-event requests, all of which must be stored.
func (m *measurement) storedByWrk(ctx context.Context) (ours float64, c costs, err error) {
	l := oneEventLoad(m)
	r, err := m.fresh(ctx, "--role=all", "--sink=null:", roomyFlag)
	if err != nil {
		return 0, c, err
	}
	defer r.close()
	l.URL, l.Namespace, l.Timeout, l.PayloadBytes, l.Duration = r.data, "default", requestTimeout, m.payload, warmUp
	warm, err := bench.Run(ctx, l)
	if err != nil {
		return 0, c, err
	}
	if _, err := r.drained(ctx); err != nil {
		return 0, c, err
	}
	before, err := r.usage(ctx)
	if err != nil {
		return 0, c, err
	}
	res, err := m.wrk(ctx, r.dir, r.data, manyConns, m.oneEvents())
	if err != nil {
		return 0, c, err
	}
	if _, err := r.drained(ctx); err != nil {
		return 0, c, err
	}
	now, err := r.usage(ctx)
	if err != nil {
		return 0, c, err
	}
	a, err := bench.ReadAccount(ctx, r.admin, "default", true)
	if err != nil {
		return 0, c, err
	}
	accepted := a.Ledger.Accepted - warm.Acked
	c = now.since(before, accepted)
	c.Loader = float64(res.cpu.Microseconds()) / float64(max(accepted, 1))
	c.Residual = *a.Residual
	// What was in flight when wrk hung up may have been stored, or not.
	if warm.Errors() > 0 || res.Failed > 0 || c.Residual != 0 || a.Ledger.Delivered != a.Ledger.Accepted ||
		accepted < res.Requests || accepted > res.Requests+manyConns {
		m.fault("wrk: %d requests answered, %d failed; residual %d; warm-up %d; ledger %+v", res.Requests, res.Failed, c.Residual, warm.Acked, a.Ledger)
	}
	return res.rate(), c, nil
}

// confirmedByLoader is the same by the loader of the other rows.
func (m *measurement) confirmedByLoader(ctx context.Context) (ours, other float64, c costs, err error) {
	l := oneEventLoad(m)
	other, err = m.noop(ctx, l, func(_, url string) (float64, error) {
		l := l
		l.URL, l.Namespace, l.Timeout, l.PayloadBytes = url, "default", requestTimeout, m.payload
		res, err := bench.Run(ctx, l)
		if err == nil && res.Errors() > 0 {
			err = fmt.Errorf("no-op: %d requests failed", res.Errors())
		}
		return res.Rate(), err
	})
	if err != nil {
		return 0, 0, c, err
	}
	seg, err := m.segmentOf(ctx, l, true, "--role=all", "--sink=null:", roomyFlag)
	return seg.load.Rate(), other, seg.costs, err
}

func oneEventLoad(m *measurement) bench.Load {
	return bench.Load{Duration: m.segment, Partitions: m.partitions, Entries: 1, Connections: manyConns}
}
