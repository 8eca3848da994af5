package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/bench/chaos/check"
	"github.com/spillway-io/spillway/bench/rig"
)

const (
	publishers   = 4
	publishPause = 40 * time.Millisecond
)

// jobClient sends requests about the queues to any of the servers.
type jobClient struct {
	plan    *plan
	targets []string // data ports, "http://host:port"
	roll    *rand.Rand
	client  *http.Client
}

func newJobClient(p *plan, targets []string, stream uint64, timeout time.Duration) *jobClient {
	return &jobClient{
		plan: p, targets: targets, roll: rand.New(rand.NewPCG(p.seed, stream)),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2}, Timeout: timeout},
	}
}

// jobAnswer is what the routes of queues say.
type jobAnswer struct {
	Error, Outcome string
	Jobs           []struct {
		Queue, ID      string
		Attempt, Tries int
		Deadline       int64 `json:"deadline_ms"`
		Data           []byte
	}
	Results []struct{ State string }
}

// errNotSent says that a request certainly did nothing.
var errNotSent = errors.New("not sent")

// do sends a request and reads its answer. Without an error its outcome is known.
func (c *jobClient) do(req *http.Request) (a jobAnswer, err error) {
	resp, err := c.client.Do(req)
	if err != nil {
		var rejected *net.OpError
		if errors.As(err, &rejected) && rejected.Op == "dial" {
			return a, errNotSent
		}
		return a, err
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // read to its end, or broken
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("%s: %w", resp.Status, err)
	}
	switch {
	case a.Outcome == "unknown":
		return a, fmt.Errorf("%s: %s", resp.Status, a.Error)
	case resp.StatusCode != http.StatusOK:
		return a, fmt.Errorf("%w: %s", errNotSent, a.Error)
	}
	return a, nil
}

func (c *jobClient) request(path string, query url.Values, body []byte) *http.Request {
	target := c.targets[c.roll.IntN(len(c.targets))] + "/v1/" + queueNamespace + "/" + path + "?" + query.Encode()
	req, err := http.NewRequest(http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		panic(err) // the path is ours
	}
	req.GetBody = nil // else net/http itself repeats a keyed request, and tells the last error only
	return req
}

// A publisher publishes one request of jobs after the other and keeps what it was
// told of each.
type publisher struct {
	*jobClient
	id      int
	uids    *atomic.Uint64
	history []check.Published
	reasons map[string]int
}

func newPublisher(id int, p *plan, targets []string, uids *atomic.Uint64) *publisher {
	return &publisher{newJobClient(p, targets, 1000+uint64(id), requestTimeout), id, uids, nil, map[string]int{}}
}

// run publishes until ctx ends.
func (p *publisher) run(ctx context.Context) {
	defer p.client.CloseIdleConnections()
	for ctx.Err() == nil {
		p.publish()
		rig.Sleep(ctx, publishPause)
	}
}

// publish sends one to ten jobs of one queue. Some pass an Idempotency-Key and are
// repeated under it while their outcome is open.
func (p *publisher) publish() {
	queue := p.plan.queues[p.roll.IntN(len(p.plan.queues))]
	job := check.Published{Queue: queue, Tries: 1 + p.roll.IntN(4)}
	query := url.Values{"tries": {fmt.Sprint(job.Tries)}, "attribute.tenant": {fmt.Sprint("t", p.roll.IntN(3))}}
	if p.roll.IntN(4) == 0 {
		job.Delay = ms(p.roll, 1, 1500)
		query.Set("delay", job.Delay.String())
	}
	if p.roll.IntN(5) == 0 {
		job.TTL = ms(p.roll, 200, 3000) + job.Delay
		query.Set("ttl", job.TTL.String())
	}
	count, kind := 1, "application/octet-stream"
	if p.roll.IntN(4) == 0 {
		count, kind = 2+p.roll.IntN(9), "application/x-ndjson"
	}
	var all []check.Published
	var body []byte
	for range count {
		job.UID = p.uids.Add(1)
		all = append(all, job)
		body = check.Payload{UID: job.UID, Partition: queue}.Append(body, p.roll.IntN(200))
		if count > 1 {
			body = append(body, '\n')
		}
	}
	key := ""
	switch p.roll.IntN(6) {
	case 0, 1, 2:
		key = fmt.Sprintf("%d-%d-%d", p.plan.seed, p.id, len(p.history))
	case 3:
		if count == 1 {
			query.Set("id", fmt.Sprint("order-", job.UID))
		}
	}
	start, outcome, reason := time.Now(), check.Rejected, ""
	for try := 1; try <= keyedTries; try++ {
		req := p.request(queue, query, body)
		req.Header.Set("Content-Type", kind)
		if key != "" {
			req.Header.Set("Idempotency-Key", key)
		}
		a, err := p.do(req)
		switch {
		case err == nil:
			outcome = check.Acked
		case !errors.Is(err, errNotSent):
			outcome = check.Unknown
		default:
			p.reasons[a.Error] += count
			reason = fmt.Sprint(err, " ", key != "", " try ", try)
		}
		if key == "" || outcome == check.Acked {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	end := time.Now()
	for _, job := range all {
		job.Start, job.End, job.Outcome, job.Reason = start, end, outcome, reason
		p.history = append(p.history, job)
	}
}
