package partition

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/partition/backend"
)

// Bounds of pauses. They live in the ledgers, which an Overview reads whole.
const (
	// MaxPauses is how many partitions of a namespace may be paused, each by itself.
	MaxPauses = 1000
	// maxPauseBy and maxPauseReason are in bytes.
	maxPauseBy, maxPauseReason = 128, 512
)

// ErrTooManyPauses: MaxPauses partitions of the namespace are paused. Pausing the
// whole namespace is always possible.
var ErrTooManyPauses = fmt.Errorf("%d partitions are paused, which is the most: resume some, or pause the whole namespace", MaxPauses)

// Pause says that delivery is stopped, and since when, by whom and why. Ingest,
// eviction and expiry go on. It lives in the store: every process obeys it from its
// next claim on, and it ends only by Resume.
type Pause struct {
	Since  time.Time // whole ms; the zero time lets Store.Pause take the store's clock
	By     string    // up to 128 bytes
	Reason string    // up to 512 bytes
}

// PausedPart is a pause and what it stops.
type PausedPart struct {
	Partition string // "" = the whole namespace
	Pause
}

// pauseAll stands for the whole namespace in the fields of a ledger. No partition has
// that name.
const (
	pauseAll   = "*"
	pauseField = "pause:"
)

// pausedText is what the store keeps beside the time.
type pausedText struct {
	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Pause stops the delivery of a partition, or of the whole namespace where partition is
// "". What is leased now is still delivered. A partition need not have entries. A second
// Pause replaces By and Reason, and keeps Since; so one with an unknown outcome can be
// repeated. A namespace with several shards may be paused in part after an error.
// Errors: *FieldError, ErrTooManyPauses and those of the store.
func (verbs) Pause(ctx context.Context, ns *Namespace, partition string, p Pause) error {
	s := ns.store
	if partition != "" && !ValidPartition(partition) {
		return errPartitionName(partition)
	}
	text, err := p.Text()
	if err != nil {
		return err
	}
	if err := s.mayRun(ctx); err != nil {
		return err
	}
	since := int64(0)
	if !p.Since.IsZero() {
		since = max(0, p.Since.UnixMilli())
	}
	room := s.pausesLeft(ctx, ns, partition)
	codes, err := s.changePauses(ctx, ns, partition, func(sh *shard, name string) *backend.Call {
		return backend.NewCall(lua.Pause, sh.Breaker, []string{sh.Ledger}, name, since, text, room)
	})
	if err == nil && slices.Contains(codes, 0) {
		return ErrTooManyPauses
	}
	return err
}

// Text is what the store keeps of a pause beside its time. Errors: *FieldError.
func (p Pause) Text() ([]byte, error) {
	switch {
	case len(p.By) > maxPauseBy:
		return nil, Wrong("by", fmt.Sprintf("a name of %d bytes", len(p.By)), fmt.Sprintf("%d bytes at most", maxPauseBy))
	case len(p.Reason) > maxPauseReason:
		return nil, Wrong("reason", fmt.Sprintf("a text of %d bytes", len(p.Reason)), fmt.Sprintf("%d bytes at most", maxPauseReason))
	}
	return json.Marshal(pausedText{p.By, p.Reason})
}

// Resume ends a pause: of a partition, or of the whole namespace where partition is "".
// A partition that is paused by itself stays paused when its namespace is resumed. was
// is false where nothing was paused; after an error it says nothing. A Resume with an
// unknown outcome can be repeated. Errors: *FieldError and those of the store.
func (verbs) Resume(ctx context.Context, ns *Namespace, partition string) (was bool, err error) {
	s := ns.store
	if partition != "" && !ValidPartition(partition) {
		return false, errPartitionName(partition)
	}
	if err := s.mayRun(ctx); err != nil {
		return false, err
	}
	codes, err := s.changePauses(ctx, ns, partition, func(sh *shard, name string) *backend.Call {
		keys := []string{sh.ready, sh.Ledger}
		if name != pauseAll {
			keys = append(keys, sh.meta(name))
		}
		return backend.NewCall(lua.Resume, sh.Breaker, keys, name)
	})
	for _, sh := range ns.pausedIn(partition) {
		sh.alarm.ring(1) // something is due now
	}
	return slices.Contains(codes, 1), err
}

func errPartitionName(name string) error {
	return Wrong("partition", strconv.Quote(name), "the name of a partition")
}

// pausedIn are the shards that keep a pause: that of the partition, or all where it is empty.
func (n *Namespace) pausedIn(partition string) []*shard {
	if partition == "" {
		return n.shards()
	}
	return []*shard{n.shardOf(partition)}
}

// changePauses changes a pause in each shard that keeps it, and returns the codes and the first error.
func (s *Store) changePauses(ctx context.Context, ns *Namespace, partition string,
	call func(sh *shard, name string) *backend.Call) (codes []int64, err error) {
	var calls []*backend.Call
	for _, sh := range ns.pausedIn(partition) {
		calls = append(calls, call(sh, cmp.Or(partition, pauseAll)))
	}
	s.backend.Run(ctx, s.backend.Background, calls)
	for _, c := range calls {
		code := c.Rest.Int()
		switch {
		case c.Err != nil:
			err = cmp.Or(err, c.Err)
		case c.Rest.Broken:
			err = cmp.Or(err, c.Misread())
		default:
			codes = append(codes, code)
		}
	}
	return codes, err
}

// pausesLeft is how many partitions may be paused in the shard of a partition: what the
// other shards leave of MaxPauses. Those that do not answer leave all of it: they must
// not keep an operator from pausing what can be reached. Two calls at once may together
// exceed the bound by one.
func (s *Store) pausesLeft(ctx context.Context, ns *Namespace, partition string) int {
	left := MaxPauses
	shards := ns.home.Shards()
	if partition == "" || len(shards) == 1 {
		return left
	}
	pipe := s.backend.Background.Pipeline()
	var counts []*redis.SliceCmd
	for _, sh := range shards {
		if sh != ns.home.Of(partition) && !sh.Breaker.Suspect() {
			counts = append(counts, pipe.HMGet(ctx, sh.Ledger,
				"paused", pauseField+pauseAll))
		}
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, c := range counts {
		if v := c.Val(); len(v) == 2 {
			count, _ := v[0].(string)
			left -= int(pausedPartitions(count, v[1] != nil))
		}
	}
	return max(0, left)
}

// pausedPartitions is how many partitions are paused where a ledger counts so many
// pauses.
func pausedPartitions(count string, all bool) int64 {
	n, _ := strconv.ParseInt(count, 10, 64) // absent: 0
	if all {
		n--
	}
	return max(0, n)
}

// Pauses lists what is paused of a namespace: the whole namespace first, then
// partitions by name. Errors: ErrTooManyReads and those of the store.
func (verbs) Pauses(ctx context.Context, ns *Namespace) (list []PausedPart, err error) {
	s := ns.store
	if err := s.space.Resolve(ctx, ns.home); err != nil {
		return nil, err
	}
	pipe := s.backend.Background.Pipeline()
	var ledgers []*redis.MapStringStringCmd
	for _, sh := range ns.shards() {
		ledgers = append(ledgers, pipe.HGetAll(ctx, sh.Ledger))
	}
	err = s.ledgerReads.Do(ctx, func() error {
		_, err := pipe.Exec(ctx)
		return backend.Classify(err)
	})
	if err != nil {
		return nil, err
	}
	var all *Pause
	for _, ledger := range ledgers {
		all = earlier(all, pauseOf(ledger.Val()))
		for field, text := range ledger.Val() {
			name, ok := strings.CutPrefix(field, pauseField)
			if ok && name != pauseAll {
				list = append(list, PausedPart{name, ParsePause(text)})
			}
		}
	}
	slices.SortFunc(list, func(a, b PausedPart) int { return strings.Compare(a.Partition, b.Partition) })
	if all != nil {
		list = slices.Insert(list, 0, PausedPart{"", *all})
	}
	return list, nil
}

// pauseOf is the pause of the whole namespace in a ledger, nil where there is none.
func pauseOf(ledger map[string]string) *Pause {
	text, ok := ledger[pauseField+pauseAll]
	if !ok {
		return nil
	}
	p := ParsePause(text)
	return &p
}

// earlier is the one of two pauses that began first; nil is none.
func earlier(a, b *Pause) *Pause {
	if a == nil || b != nil && b.Since.Before(a.Since) {
		return b
	}
	return a
}

// ParsePause reads a pause. What something other than Spillway wrote pauses all the
// same, with nothing known about it.
func ParsePause(stored string) Pause {
	since, text, _ := strings.Cut(stored, " ")
	ms, err := strconv.ParseInt(since, 10, 64)
	var t pausedText
	if err = errors.Join(err, json.Unmarshal([]byte(text), &t)); err != nil {
		return Pause{}
	}
	return Pause{time.UnixMilli(ms), t.By, t.Reason}
}
