package job

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// A List asks for a page of the jobs of a queue that are in one state.
type List struct {
	Queue string
	State State  // Ready, Prepared, Delayed, Leased, Dead or Acked
	Limit int    // 1 to MaxListed
	After string // where the page before ended; "": begin
	Data  bool   // with payloads and attributes
}

const (
	// MaxListed bounds List.Limit.
	MaxListed = 1000
	// listedFor is how long a page of ready jobs can be followed by the next, in ms, while workers
	// take jobs.
	listedFor = 10 * 60 * 1000
)

// ErrBadAfter: List.After is of another list, or of a page that is too old.
var ErrBadAfter = errors.New("after is not where a page of this list ended, or too old: begin without it")

// List returns a page of jobs: ready ones as they are claimed, prepared ones the latest first, the others by due time, deadline,
// time of death, or when they are kept no longer; of a queue over several shards one shard behind the other. next is where the page
// ended, "" at the end. A page is bounded work: it may be short, or empty, and have a next one.
// Jobs that move meanwhile may be missing, or come twice. Errors: ErrBadAfter, ErrBadArgument and
// those of the store.
func (s *inspector) List(ctx context.Context, ns *Namespace,
	l List) (list []Job, next string, err error) {
	if !partition.ValidQueue(l.Queue) || l.Limit < 1 || l.Limit > MaxListed {
		return nil, "", ErrBadArgument
	}
	shards := slices.Sorted(slices.Values(ns.Shards(l.Queue)))
	var at cursor
	if l.After != "" {
		if at, err = l.cursor(ns); err != nil {
			return nil, "", err
		}
	}
	for _, number := range shards {
		if number < at.shard {
			continue
		}
		if number > at.shard { // one behind it, or that of the cursor has no jobs any more
			at = cursor{shard: number}
		}
		if len(list) == l.Limit {
			return list, l.text(ns, at), nil
		}
		part, err := s.listShard(ctx, ns, l, l.Limit-len(list), &at)
		if err != nil {
			return nil, "", err
		}
		list = append(list, part...)
		if at.at != "" { // the shard has more
			return list, l.text(ns, at), nil
		}
	}
	return list, "", nil
}

// listShard reads a part of a page from a shard, and moves at behind it.
func (s *inspector) listShard(ctx context.Context, ns *Namespace, l List, limit int,
	at *cursor) ([]Job, error) {
	sh := ns.shardAt(at.shard)
	data := 0
	if l.Data {
		data = 1
	}
	keys := []string{
		sh.lease,
		sh.delay,
		sh.attempts,
		sh.taken,
		sh.ready(l.Queue),
		sh.jobs(l.Queue),
		sh.dead(l.Queue),
		sh.ids(l.Queue),
	}
	state := l.State
	if state == Acked { // they are kept as dead ones are
		keys = append(keys[:5], sh.acked(l.Queue), sh.until(l.Queue), sh.acked(l.Queue))
		state = Dead
	}
	c := backend.NewCall(luajob.List, sh.Breaker, keys,
		l.Queue,
		state.String(),
		limit,
		data,
		listedFor,
		at.at,
		at.last,
	)
	if err := s.read(ctx, c); err != nil {
		return nil, err
	}
	at.at = string(c.Rest.Bulk())
	at.last = string(c.Rest.Bulk())
	if at.at == "-1" {
		return nil, ErrBadAfter
	}
	list := make([]Job, 0, (c.More-2)/8)
	for range (c.More - 2) / 8 {
		seq, _ := number(c.Rest.Bulk())
		j := Job{
			Queue: l.Queue,
			Ref:   Ref{Shard: at.shard, Seq: seq},
			Now:   c.Now,
			At:    c.Rest.Int(),
		}
		reason := c.Rest.Int()
		j.Attempt = int(c.Rest.Int())
		j.Bytes = int(c.Rest.Int())
		said := c.Rest.Bulk()
		progress := c.Rest.Bulk()
		if record := c.Rest.Bulk(); c.Rest.Broken || !parseRecord(record, &j) {
			return nil, c.Misread()
		}
		switch l.State {
		case Acked:
			if j.At <= c.Now {
				continue
			}
			j.acked(said)
		case Dead:
			j.died(reason, said)
		case Leased:
			j.Deferred = reason == 1
			j.Errors = failures(said)
		default:
			j.Errors = failures(said)
		}
		j.Progress = j.progress(progress)
		j.Published = j.Seq / 1000
		list = append(list, j)
	}
	ns.setIDs(list)
	return list, nil
}

// A cursor is where a page of a list begins: a shard, and there what the script says of it.
type cursor struct {
	shard    int
	at, last string
}

// sum tells the cursors of a list from those of others, and from what somebody made up.
func (l *List) sum(ns *Namespace, text string) []byte {
	of := fmt.Appendf(nil, "%s %s %s %s", ns.Name, l.Queue, l.State, text)
	sum := sha256.Sum256(of)
	return sum[:6]
}

func (l *List) text(ns *Namespace, at cursor) string {
	text := fmt.Sprintf("%d %s %s", at.shard, at.at, at.last)
	return base64.RawURLEncoding.EncodeToString(append(l.sum(ns, text), text...))
}

func (l *List) cursor(ns *Namespace) (at cursor, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(l.After)
	if err != nil || len(raw) < 6 {
		return at, ErrBadAfter
	}
	text := string(raw[6:])
	if string(l.sum(ns, text)) != string(raw[:6]) {
		return at, ErrBadAfter
	}
	parts := strings.SplitN(text, " ", 3)
	if len(parts) == 3 {
		at = cursor{at: parts[1], last: parts[2]}
		at.shard, err = strconv.Atoi(parts[0])
	}
	if err != nil || len(parts) != 3 {
		return at, ErrBadAfter
	}
	return at, nil
}

// A Page is a page of a List as both ports show it.
type Page struct {
	Jobs []Listed `json:"jobs"`
	Next string   `json:"next,omitempty"` // absent at the end
}

// Listed is a job of a Page. Times are Unix ms.
type Listed struct {
	ID          string `json:"id"`
	State       string `json:"state"`
	Attempt     *int   `json:"attempt,omitempty"` // absent: unknown, of a dead job
	Tries       int    `json:"tries"`
	Bytes       int    `json:"bytes"` // of the payload
	PublishedMS int64  `json:"published_ms"`
	DueMS       int64  `json:"due_ms,omitempty"`
	DeadlineMS  int64  `json:"deadline_ms,omitempty"`
	DiedMS      int64  `json:"died_ms,omitempty"`
	AckedMS     int64  `json:"acked_ms,omitempty"`
	Deferred    bool   `json:"deferred,omitempty"`
	Reason      string `json:"reason,omitempty"`
	Error       string `json:"error,omitempty"`    // of the last attempt that said why it failed
	Progress    *int   `json:"progress,omitempty"` // percent, that its attempt said last
	Note        string `json:"note,omitempty"`     // and beside it
	Data        []byte `json:"data,omitempty"`     // base64
	// Result is what the ack said.
	Result json.RawMessage `json:"result,omitempty"`
}

// ListedPage makes what both ports show of a page.
func ListedPage(l List, list []Job, next string) Page {
	p := Page{Jobs: make([]Listed, 0, len(list)), Next: next}
	for i := range list {
		j := &list[i]
		shown := Listed{
			ID:          j.ID,
			State:       l.State.String(),
			Attempt:     &j.Attempt,
			Tries:       j.Tries,
			Bytes:       j.Bytes,
			PublishedMS: j.Published,
			Deferred:    j.Deferred,
			Reason:      j.Reason.String(),
			Result:      j.Result,
		}
		if j.Attempt < 0 {
			shown.Attempt = nil
		}
		switch l.State {
		case Delayed, Prepared:
			shown.DueMS = j.At
		case Leased:
			shown.DeadlineMS = j.At
		case Dead:
			shown.DiedMS = j.At
		case Acked:
			shown.AckedMS = j.At
		}
		if len(j.Errors) > 0 {
			shown.Error = j.Errors[0].Error
		}
		if j.Progress != nil {
			shown.Progress, shown.Note = &j.Progress.Percent, j.Progress.Note
		}
		if l.Data {
			shown.Data = j.Payload
		}
		p.Jobs = append(p.Jobs, shown)
	}
	return p
}

// StateOf is the state of that name: ready, delayed, leased, dead, acked or prepared; Gone for others.
func StateOf(name string) State {
	for _, state := range []State{Ready, Delayed, Prepared, Leased, Dead, Acked} {
		if name == state.String() {
			return state
		}
	}
	return Gone
}
