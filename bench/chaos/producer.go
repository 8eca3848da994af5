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
	"sync/atomic"
	"time"

	"github.com/spillway-io/spillway/bench/chaos/check"
	"github.com/spillway-io/spillway/bench/rig"
)

const (
	producers      = 10
	requestTimeout = 5 * time.Second
	keyedTries     = 4    // of a request with an Idempotency-Key, while its outcome is open
	poisonOdds     = 1500 // one entry in so many
	pause          = 15 * time.Millisecond
)

// A producer is one client: it reports one request after the other and keeps
// what it was told of each entry.
type producer struct {
	id      int
	to      string // namespace
	plan    *plan
	targets []string // data ports, "http://host:port"
	roll    *rand.Rand
	client  *http.Client
	uids    *atomic.Uint64
	history []check.Sent
	reasons map[string]int
}

func newProducer(id int, to string, p *plan, targets []string, uids *atomic.Uint64) *producer {
	return &producer{
		id: id, to: to, plan: p, targets: targets, uids: uids, reasons: map[string]int{},
		roll:   rand.New(rand.NewPCG(p.seed, uint64(id))),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2}, Timeout: requestTimeout},
	}
}

// run reports until ctx ends. The last request is waited for.
func (p *producer) run(ctx context.Context) {
	defer p.client.CloseIdleConnections()
	for ctx.Err() == nil {
		p.report()
		rig.Sleep(ctx, pause)
	}
}

// A report is one request's form and entries.
type report struct {
	path, contentType, key string
	target                 string // that had it last
	body                   []byte
	entries                []check.Sent
}

// report sends one request, again under its key if it has one and its outcome
// is open.
func (p *producer) report() {
	r := p.compose()
	start := time.Now()
	outcomes := make([]check.Outcome, len(r.entries))
	doubt := false
	for try := 1; ; try++ {
		p.send(r, outcomes)
		open := outcomes[0] == check.Unknown
		doubt = doubt || open
		if r.key == "" || outcomes[0] >= check.Acked || try == keyedTries {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	end := time.Now()
	for i := range r.entries {
		e := &r.entries[i]
		e.Start, e.End, e.Outcome = start, end, outcomes[i]
		if e.Outcome == check.Rejected && doubt {
			e.Outcome = check.Unknown // of an earlier try
		}
	}
	p.history = append(p.history, r.entries...)
}

// compose rolls a request: one event, lines of one partition, or a mix. Some of
// the first two pass an Idempotency-Key.
func (p *producer) compose() *report {
	r := &report{contentType: "application/json"}
	n, mixed := 1, false
	switch form := p.roll.IntN(10); {
	case form < 5:
	case form < 8:
		n = 2 + p.roll.IntN(30)
		r.contentType = "application/x-ndjson"
	default:
		n, mixed = 2+p.roll.IntN(15), true
		r.contentType = "application/x-ndjson"
	}
	partition := p.partition()
	r.path = "/v1/" + p.to + "/" + partition
	if mixed {
		r.path = "/v1/" + p.to
	} else if p.roll.IntN(5) == 0 {
		r.key = fmt.Sprintf("%d-%d-%d", p.plan.seed, p.id, len(p.history))
	}
	for range n {
		if mixed {
			partition = p.partition()
			r.body = fmt.Appendf(r.body, `{"partition":%q,"data":`, partition)
		}
		uid := p.uids.Add(1)
		r.body = check.Payload{UID: uid, Partition: partition, Poison: p.roll.IntN(poisonOdds) == 0}.Append(r.body, p.roll.IntN(200))
		if mixed {
			r.body = append(r.body, '}')
		}
		if r.contentType == "application/x-ndjson" {
			r.body = append(r.body, '\n')
		}
		r.entries = append(r.entries, check.Sent{UID: uid, Partition: partition})
	}
	return r
}

// partition rolls one; the first are hot.
func (p *producer) partition() string {
	n := len(p.plan.partitions)
	return p.plan.partitions[min(p.roll.IntN(n), p.roll.IntN(n))]
}

// send makes one request and enters what it says of each entry.
func (p *producer) send(r *report, outcomes []check.Outcome) {
	all := func(o check.Outcome, reason string) {
		for i := range outcomes {
			outcomes[i] = o
		}
		if o == check.Rejected {
			p.reasons[reason] += len(outcomes)
		}
	}
	r.target = p.targets[p.roll.IntN(len(p.targets))]
	req, err := http.NewRequest(http.MethodPost, r.target+r.path, bytes.NewReader(r.body))
	if err != nil {
		all(check.Rejected, err.Error())
		return
	}
	req.GetBody = nil // else net/http itself repeats a keyed request, and tells the last error only
	req.Header.Set("Content-Type", r.contentType)
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	resp, err := p.client.Do(req)
	var rejected *net.OpError
	if errors.As(err, &rejected) && rejected.Op == "dial" {
		all(check.Rejected, "connect")
		return
	}
	var text []byte
	if err == nil {
		text, err = io.ReadAll(resp.Body)
		_ = resp.Body.Close() // read to its end, or broken
	}
	var a answer
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	switch {
	case err != nil || a.Outcome == "unknown":
		all(check.Unknown, "")
	case resp.StatusCode != http.StatusOK:
		all(check.Rejected, a.Error)
	default:
		all(check.Acked, "")
		for _, e := range a.Results {
			switch {
			case e.I < 0 || e.I >= len(outcomes) || e.Result == "warning":
			case e.Reason == "unknown":
				outcomes[e.I] = check.Unknown
			default:
				outcomes[e.I] = check.Rejected
				p.reasons[e.Reason]++
			}
		}
	}
}

// answer is what the data port says, in whole or of single entries.
type answer struct {
	Error, Outcome string
	Results        []struct {
		I              int
		Result, Reason string
	}
}
