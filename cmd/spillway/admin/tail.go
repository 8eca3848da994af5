package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/spillway-io/spillway/partition"
)

const (
	maxTails      = 4 // of a process
	tailFor       = 10 * time.Minute
	tailEvery     = time.Second
	tailHeartbeat = 5 * time.Second
	// tailWrite is how long a line may take. A client that reads slower is cut off.
	tailWrite = 5 * time.Second
	// A tail of a whole namespace looks at so many partitions that took entries lately,
	// and at as many others in turn.
	tailPartitions = 4
	// maxTailFailures in a row end a tail.
	maxTailFailures = 5
)

// TailLine is one entry of a tail.
type TailLine struct {
	Namespace string `json:"namespace"`
	Partition string `json:"partition"`
	Entry
}

// tailing is one tail.
type tailing struct {
	s         *Server
	r         *request
	unmasked  bool
	partition string // empty: several of the namespace
	lines     int    // a second, at most
	turn      int
	seen      map[string]int64 // Seq of the newest entry shown, by partition
	failures  int

	w   http.ResponseWriter
	ctl *http.ResponseController
}

// tail streams samples of the newest entries. It reads the store, so it sees what any
// process takes in.
func (s *Server) tail(r *request, q *tailQuery) (http.Handler, error) {
	r.namespace()
	return &tailing{s: s, r: r, unmasked: r.flag("unmasked"), lines: q.PerSecond, partition: q.Partition, seen: map[string]int64{}}, r.err
}

type tailQuery struct {
	Partition string `help:"Only this partition."`
	PerSecond int    `default:"10" bounds:"1..50" help:"Lines a second, at most."`
}

// ServeHTTP answers with the lines, unless too many tails run.
func (t *tailing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	select {
	case t.s.tails <- struct{}{}:
		defer func() { <-t.s.tails }()
	default:
		w.Header().Set("Retry-After", "10")
		writeError(w, &rejection{http.StatusTooManyRequests, codeTooManyTails, "4 tails run already: end one"})
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	if r.Method != http.MethodHead {
		t.w = w
		t.ctl = http.NewResponseController(w)
		t.run()
	}
}

func (t *tailing) run() {
	end, every := time.NewTimer(tailFor), time.NewTicker(tailEvery)
	defer end.Stop()
	defer every.Stop()
	written, n, ended := time.Now(), 0, ""
	for {
		if ended == "" {
			n, ended = t.tick()
		}
		switch {
		case ended != "":
			_ = t.write(map[string]string{"ended": ended})
			return
		case n > 0:
			written = time.Now()
		case n < 0: // the client is gone, or too slow
			return
		case time.Since(written) >= tailHeartbeat:
			if t.send(nil) != nil {
				return
			}
			written = time.Now()
		}
		select {
		case <-t.r.Context().Done():
			return
		case <-t.s.running.Done():
			ended = "the process stops"
		case <-end.C:
			ended = "after 10 minutes"
		case <-every.C:
		}
	}
}

// tick writes the new entries of one second; n is negative when the client is gone.
func (t *tailing) tick() (n int, ended string) {
	v := t.s.cfg.Source() // a reload may have taken the token away, or the namespace
	ns := v.Store.Namespace(t.r.PathValue("namespace"))
	masks := v.MaskFields
	needs := Operator
	if t.unmasked {
		masks, needs = nil, Admin
	}
	if who, ok := identify(t.r.Request, v.Tokens); !ok || who.role < needs {
		return 0, "the token may no longer do this"
	} else if ns == nil {
		return 0, "the namespace is gone"
	}
	t.s.observer.watch()
	ctx, cancel := context.WithTimeout(t.r.Context(), readTimeout)
	defer cancel()
	var names []string
	if names = []string{t.partition}; t.partition == "" {
		names = t.s.observer.busy(ns.Name, t.turn)
	}
	t.turn++
	for i, name := range names {
		share := (t.lines - n) / (len(names) - i)
		if share == 0 {
			continue
		}
		found, err := v.Store.Peek(ctx, ns, name, partition.PeekRequest{FromNewest: true, Limit: share})
		if err != nil && !errors.Is(err, partition.ErrNoPartition) {
			if t.failures++; t.failures >= maxTailFailures {
				return 0, "the store does not answer"
			}
			continue
		}
		t.failures = 0
		for _, e := range found.Entries {
			if e.Seq <= t.seen[name] {
				continue
			}
			if t.write(TailLine{ns.Name, name, entryOf(e, masks, time.Now().UnixMilli())}) != nil {
				return -1, ""
			}
			t.seen[name] = e.Seq
			n++
		}
	}
	if len(t.seen) > 1000 { // partitions come and go
		clear(t.seen)
	}
	return n, ""
}

func (t *tailing) write(line any) error {
	text, err := json.Marshal(line)
	return cmp.Or(err, t.send(text))
}

// send sends a line; an empty one is a heartbeat.
func (t *tailing) send(line []byte) error {
	_ = t.ctl.SetWriteDeadline(time.Now().Add(tailWrite))
	if _, err := t.w.Write(append(line, '\n')); err != nil {
		return err
	}
	return t.ctl.Flush()
}

// busy are some partitions of a namespace that took entries lately, and others in turn.
func (o *observer) busy(namespace string, turn int) (names []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	sp := o.spaces[namespace]
	if sp == nil {
		return nil
	}
	for _, r := range sp.best(order{"in", true}, tailPartitions) {
		names = append(names, r.Partition)
	}
	others := sp.best(order{"due", true}, 16*tailPartitions)
	for i := range min(tailPartitions, len(others)) {
		name := others[(turn*tailPartitions+i)%len(others)].Partition
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
