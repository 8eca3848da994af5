package space

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	luacontrol "github.com/spillway-io/spillway/lua/control"
	"github.com/spillway-io/spillway/partition/backend"
)

// HistoryKept is how many records a History has, each of a minute.
const HistoryKept = 24 * 60

// historyTTL outlives the hour in which nothing is recorded, because nothing changed.
const historyTTL = 25 * time.Hour

// A History is what a namespace was in each minute of a day. It is in the store: so it is the same for every process, there
// after a restart, and ends a day after the namespace.
type History struct {
	backend     *backend.Backend
	key, ledger string
}

// A Record is the figures of a namespace in the first moments of a minute. A minute without one is as the one before it.
type Record struct {
	Minute  int64 // since 1970, on the store's clock
	Figures []int64
}

// NewHistory makes one under a key. ledger is in the same slot, and says when the namespace is being deleted.
func NewHistory(b *backend.Backend, key, ledger string) *History { return &History{b, key, ledger} }

// Minute is that of the store's clock. known is false until the store has answered once.
func (h *History) Minute() (minute int64, known bool) {
	ms, known := h.backend.Now()
	return ms / time.Minute.Milliseconds(), known
}

// Record adds a record, unless there is one of that minute.
func (h *History) Record(ctx context.Context, r Record) error {
	call := backend.NewCall(luacontrol.Record, nil, []string{h.key, h.ledger}, r.Minute,
		strings.Trim(fmt.Sprint(r.Figures), "[]"), HistoryKept, historyTTL.Milliseconds())
	h.backend.Run(ctx, h.backend.Background, []*backend.Call{call})
	return call.Err
}

// Read returns the records, the oldest first.
func (h *History) Read(ctx context.Context) (all []Record, err error) {
	lines, err := h.backend.Background.LRange(ctx, h.key, 0, -1).Result()
	for _, line := range lines {
		var figures []int64
		for _, text := range strings.Fields(line) {
			n, _ := strconv.ParseInt(text, 10, 64)
			figures = append(figures, n)
		}
		if len(figures) > 0 {
			all = append(all, Record{figures[0], figures[1:]})
		}
	}
	return all, backend.Classify(err)
}
