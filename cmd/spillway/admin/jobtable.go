package admin

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

const (
	countedQueues = 1024 // of one table; the first by name
	countPage     = 64   // queues that the store counts at once
	maxTables     = 64   // kept in memory, at most 0.4 MB each
)

// A tableKey says which queues a table has: those of a namespace whose name holds a text.
type tableKey struct{ namespace, search string }

// A queueTable is the queues of a namespace with their counts, as they were read.
type queueTable struct {
	at    time.Time
	took  time.Duration
	total int // queues that match; rows has the first countedQueues of them
	rows  []queueCounts
}

type queueCounts struct {
	name string
	job.Counts
}

// table counts the queues of a namespace. All readers share one table for a second, or for
// longer where it takes long: reading takes at most a twentieth of the time, however many look.
func (b *jobBook) table(ctx context.Context, space jobSpace, search string) (*queueTable, error) {
	key := tableKey{space.ns.Name, search}
	if t := b.kept(key); t != nil {
		return t, nil
	}
	var read *queueTable
	var err error
	if waited := b.counts.Do(ctx, func(context.Context) {
		if read = b.kept(key); read != nil { // another reader was before
			return
		}
		if read, err = countQueues(ctx, space, search); err == nil {
			b.keep(key, read)
		}
	}); waited != nil {
		return nil, waited
	}
	return read, err
}

// kept is a table that is fresh enough; nil: none is.
func (b *jobBook) kept(key tableKey) *queueTable {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.tables[key]; t != nil && time.Since(t.at) < max(time.Second, accountsShare*t.took) {
		return t
	}
	return nil
}

func (b *jobBook) keep(key tableKey, t *queueTable) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.tables) >= maxTables && b.tables[key] == nil {
		oldest := key
		for k, other := range b.tables {
			if oldest == key || other.at.Before(b.tables[oldest].at) {
				oldest = k
			}
		}
		delete(b.tables, oldest)
	}
	b.tables[key] = t
	if f := b.spaces[key.namespace]; f != nil && key.search == "" {
		f.queues, f.oldest, f.oldestAge = t.total, 0, 0
		for _, row := range t.rows {
			if row.OldestReady > 0 && (f.oldest == 0 || row.OldestReady < f.oldest) {
				f.oldest = row.OldestReady
				f.oldestAge = max(0, t.at.UnixMilli()-f.oldest)
			}
		}
	}
}

func countQueues(ctx context.Context, space jobSpace, search string) (*queueTable, error) {
	began := time.Now()
	names, err := space.store.Queues(ctx, space.ns)
	if err != nil {
		return nil, err
	}
	if search != "" {
		names = slices.DeleteFunc(names, func(name string) bool { return !strings.Contains(name, search) })
	}
	t := &queueTable{total: len(names)}
	names = names[:min(len(names), countedQueues)]
	for page := range slices.Chunk(names, countPage) {
		counts, err := space.store.CountAll(ctx, space.ns, page)
		if err != nil {
			return nil, err
		}
		for i, c := range counts {
			t.rows = append(t.rows, queueCounts{strings.Clone(page[i]), c})
		}
	}
	t.at, t.took = time.Now(), time.Since(began)
	return t, nil
}

// queueColumns are what the table can be sorted by; nil is the name.
var queueColumns = map[string]func(q queueCounts) int64{
	"queue":   nil,
	"ready":   func(q queueCounts) int64 { return q.Ready },
	"delayed": func(q queueCounts) int64 { return q.Delayed },
	"leased":  func(q queueCounts) int64 { return q.Leased },
	"dead":    func(q queueCounts) int64 { return q.Dead },
	// The one published first is the oldest; none is the youngest of all.
	"oldest_ready_age": func(q queueCounts) int64 {
		if q.OldestReady == 0 {
			return -1 << 62
		}
		return -q.OldestReady
	},
}

// sorted are the rows in an order, those that are equal by name.
func (t *queueTable) sorted(column string, descending bool) []queueCounts {
	figure := queueColumns[column]
	return slices.SortedFunc(slices.Values(t.rows), func(a, b queueCounts) int {
		by := strings.Compare(a.name, b.name)
		if figure == nil && descending {
			return -by
		}
		if figure == nil {
			return by
		}
		order := cmp.Compare(figure(a), figure(b))
		if descending {
			order = -order
		}
		return cmp.Or(order, by)
	})
}
