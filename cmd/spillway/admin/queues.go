package admin

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
)

// QueueList is a page of the queues of a namespace.
type QueueList struct {
	NowMS   int64      `json:"now_ms"`
	ReadMS  int64      `json:"read_at_ms"`
	Total   int        `json:"total" help:"Queues that match."`
	LeftOut int        `json:"left_out" help:"Of them, beyond the first 1,024 by name."`
	Queues  []QueueRow `json:"queues"`
	Names   []string   `json:"names,omitempty" help:"With names=1, instead of queues: they are not counted."`
	Unread  bool       `json:"unread,omitempty" help:"There are queues whose names were not read: beyond 100,000."`
}

// QueueRow is the jobs of one queue. Where the shards hold too many jobs to tell those that
// are delayed from those that are leased, both are null and pending has their sum.
type QueueRow struct {
	Queue            string `json:"queue"`
	Ready            int64  `json:"ready"`
	Delayed          *int64 `json:"delayed"`
	Leased           *int64 `json:"leased"`
	Pending          int64  `json:"pending" help:"Delayed + leased."`
	Dead             int64  `json:"dead"`
	Reserved         int64  `json:"reserved,omitempty" help:"Of PHP's: held by its own workers."`
	OldestReadyAgeMS *int64 `json:"oldest_ready_age_ms" help:"Since the publish of the first ready job; null: none is ready."`
	Acked            *int64 `json:"acked,omitempty" help:"That it keeps; absent: it keeps none."`
	Paused           *Pause `json:"paused,omitempty" help:"Of one queue alone."`
}

func queueRow(c queueCounts, now int64) QueueRow {
	row := QueueRow{
		Queue:    c.name,
		Ready:    c.Ready,
		Pending:  c.Pending,
		Dead:     c.Dead,
		Reserved: c.Reserved,
		Acked:    c.acked,
	}
	if c.Delayed >= 0 {
		row.Delayed, row.Leased = &c.Delayed, &c.Leased
	}
	if c.OldestReady > 0 {
		row.OldestReadyAgeMS = new(max(0, now-c.OldestReady))
	}
	return row
}

const maxSearch = 255 // bytes

type listQueues struct {
	Search string `help:"Only those whose name has this in it; at most 255 bytes."`
	Sort   string `enum:"queue,ready,delayed,leased,dead,oldest_ready_age" default:"queue" help:"The column of the order."`
	Order  string `enum:",asc,desc" help:"asc or desc; default desc, but asc of queue."`
	Limit  int    `default:"100" bounds:"1..1024" help:"Queues to list."`
	Offset int    `bounds:"0..1024" help:"Queues to pass over."`
	Names  bool   `help:"Names only: they are not counted."`
}

func (s *Server) queueList(r *request, q *listQueues) (answer QueueList, err error) {
	space := r.jobSpace()
	if len(q.Search) > maxSearch {
		r.bad("search: want 255 bytes at most")
	}
	if r.err != nil {
		return answer, r.err
	}
	if q.Names {
		return s.queueNames(r, space, q)
	}
	t, err := s.observer.table(r.ctx, space, q.Search)
	if err != nil {
		return answer, err
	}
	by := order{q.Sort, q.Order == "desc" || q.Order == "" && q.Sort != "queue"}
	rows := slices.SortedFunc(slices.Values(t.rows), inOrder(by, queueColumns[q.Sort], func(c queueCounts) string { return c.name }))
	now := time.Now().UnixMilli()
	answer = QueueList{
		NowMS:   now,
		ReadMS:  t.at.UnixMilli(),
		Total:   t.total,
		LeftOut: t.total - len(rows),
		Unread:  t.unread,
		Queues:  []QueueRow{},
	}
	rows = rows[min(q.Offset, len(rows)):]
	for _, row := range rows[:min(q.Limit, len(rows))] {
		answer.Queues = append(answer.Queues, queueRow(row, now))
	}
	return answer, nil
}

// queueNames is a page of the names that have a text in them, in their order.
func (s *Server) queueNames(r *request, space jobSpace, q *listQueues) (answer QueueList, err error) {
	all, err := s.observer.namesOf(r.ctx, space, time.Now())
	if err != nil {
		return answer, err
	}
	now := time.Now().UnixMilli()
	answer = QueueList{NowMS: now, ReadMS: all.at.UnixMilli(), Queues: []QueueRow{}, Unread: all.unread()}
	for _, name := range all.names {
		if !strings.Contains(name, q.Search) {
			continue
		}
		if answer.Total >= q.Offset && len(answer.Names) < q.Limit {
			answer.Names = append(answer.Names, name)
		}
		answer.Total++
	}
	return answer, nil
}

// queueNames are the queues of a namespace that had jobs, or kept acked ones, at a time.
type queueNames struct {
	namespace string
	at        time.Time
	took      time.Duration
	names     []string // sorted
	jobs      int      // of them, that had jobs
}

// quickRead is how long a read takes that is done anew for each who asks, so that a queue is there at once.
const quickRead = 10 * time.Millisecond

// serves reports whether what took some time to read, until at, answers who asked since: where it was quick only if it began
// after that, else so long that reading takes at most a twentieth of the time.
func serves(since, at time.Time, took time.Duration) bool {
	if took < quickRead {
		return at.Add(-took).After(since)
	}
	return time.Since(at) < accountsShare*took
}

// namesOf reads the names of a namespace for who asked since: who types a name asks often.
func (o *observer) namesOf(ctx context.Context, space jobSpace, since time.Time) (*queueNames, error) {
	return paced(ctx, o.names, func() (*queueNames, error) { return o.readNames(ctx, space, since) })
}

// readNames reads the names, of which the last one's are kept.
func (o *observer) readNames(ctx context.Context, space jobSpace, since time.Time) (*queueNames, error) {
	if n := o.lastNames.Load(); n != nil && n.namespace == space.ns.Name && serves(since, n.at, n.took) {
		return n, nil
	}
	began := time.Now()
	names, err := space.store.Queues(ctx, space.ns)
	if err != nil {
		return nil, err
	}
	kept, err := space.keeping(ctx)
	if err != nil {
		return nil, err
	}
	jobs := len(names)
	if len(kept) > 0 {
		names = append(names, kept...)
		slices.Sort(names)
		names = slices.Compact(names)
	}
	n := &queueNames{space.ns.Name, time.Now(), time.Since(began), names, jobs}
	o.lastNames.Store(n)
	return n, nil
}

// queueNow counts the jobs of one queue. A queue without jobs has none; it does not exist apart
// from them.
func (s *Server) queueNow(r *request, q *ofQueue) (row QueueRow, err error) {
	space := r.jobSpace()
	if r.err != nil {
		return row, r.err
	}
	if row, err = s.countedQueue(r, space, q.Queue); err == nil {
		row.Paused, err = s.observer.pauseOf(r.ctx, space, q.Queue)
	}
	return row, err
}

// countedQueue is the row of a queue as it is now.
func (s *Server) countedQueue(r *request, space jobSpace, queue string) (QueueRow, error) {
	rows, err := paced(r.ctx, s.observer.single, func() ([]queueCounts, error) { return space.countQueues(r.ctx, queue) })
	if err != nil {
		return QueueRow{}, err
	}
	return queueRow(rows[0], time.Now().UnixMilli()), nil
}

// None reports whether a queue has no jobs, not even acked ones, so that its name may be a wrong one.
func (q *QueueRow) None() bool {
	return q.Ready+q.Pending+q.Dead+q.Reserved == 0 && (q.Acked == nil || *q.Acked == 0)
}

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
	jobs  int // queues of the namespace that had jobs
	rows  []queueCounts

	unread bool // there are queues whose names were not read
}

// table counts the queues of a namespace. Readers share one table while it serves them.
func (o *observer) table(ctx context.Context, space jobSpace,
	search string) (*queueTable, error) {
	key, since := tableKey{space.ns.Name, search}, time.Now()
	if t := o.kept(key, since); t != nil {
		return t, nil
	}
	return paced(ctx, o.counts, func() (*queueTable, error) {
		if t := o.kept(key, since); t != nil { // another reader was before
			return t, nil
		}
		names, err := o.readNames(ctx, space, since)
		if err != nil {
			return nil, err
		}
		t, err := names.count(ctx, space, search)
		if err == nil {
			o.keep(key, t)
		}
		return t, err
	})
}

// kept is a table that answers who asked since; nil: none does.
func (o *observer) kept(key tableKey, since time.Time) *queueTable {
	o.mu.Lock()
	defer o.mu.Unlock()
	if t := o.tables[key]; t != nil && serves(since, t.at, t.took) {
		return t
	}
	return nil
}

func (o *observer) keep(key tableKey, t *queueTable) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.tables) >= maxTables && o.tables[key] == nil {
		clear(o.tables) // they are only a second old, or twenty times what it takes to count again
	}
	o.tables[key] = t
	if f := o.spaces[key.namespace]; f != nil && key.search == "" {
		if queue := t.dying(f.counted); queue != "" {
			f.dying, f.dyingAt = queue, t.at
		}
		f.counted = t
	}
}

// oldest is when the first ready job of all was published, Unix ms; 0: none is ready, or nothing is known.
func (t *queueTable) oldest() (at int64) {
	if t == nil {
		return 0
	}
	for _, row := range t.rows {
		if row.OldestReady > 0 && (at == 0 || row.OldestReady < at) {
			at = row.OldestReady
		}
	}
	return at
}

// oldestAge is as it was when the queues were counted.
func (t *queueTable) oldestAge() time.Duration {
	oldest := t.oldest()
	if oldest == 0 {
		return 0
	}
	return max(0, t.at.Sub(time.UnixMilli(oldest)))
}

// readAges counts the queues of every namespace, one after the other.
func (o *observer) readAges(ctx context.Context) time.Duration {
	began := time.Now()
	for _, space := range o.source().jobSpaces() {
		bounded, cancel := context.WithTimeout(ctx, readTimeout)
		_, paused := o.queuePauses(bounded, space)
		_, err := o.table(bounded, space, "")
		err = cmp.Or(paused, err)
		cancel()
		if err != nil {
			o.log.Debug("queues not counted", zap.String("namespace", space.ns.Name), zap.Error(err))
		}
	}
	return time.Since(began)
}

// waiting is how many jobs of some queues may still be sent, and the queue that has most of them; nil
// where not all queues were counted. A job whose last Write failed is delayed.
func (t *queueTable) waiting(of func(queue string) bool) (all *int64, queue string) {
	if t == nil || len(t.rows) < t.total {
		return nil, ""
	}
	sum, most := int64(0), int64(0)
	for _, row := range t.rows {
		if n := row.Ready + row.Pending; n > 0 && of(row.name) {
			sum += n
			if n > most {
				most, queue = n, row.name
			}
		}
	}
	return &sum, queue
}

// dying is the queue whose dead letters rose most since another count; "": none did.
func (t *queueTable) dying(since *queueTable) (queue string) {
	if since == nil {
		return ""
	}
	before, most := map[string]int64{}, int64(0)
	for _, row := range since.rows {
		before[row.name] = row.Dead
	}
	for _, row := range t.rows {
		if rise := row.Dead - before[row.name]; rise > most {
			most, queue = rise, row.name
		}
	}
	return queue
}

func (q *queueCounts) jobs() int64 { return q.Ready + q.Pending + q.Dead }

// largest is the queue with most jobs; nil: none has any, or they are not counted.
func (t *queueTable) largest() (l *LargestQueue) {
	if t == nil {
		return nil
	}
	for _, row := range t.rows {
		if n := row.jobs(); n > 0 && (l == nil || n > l.Jobs) {
			l = &LargestQueue{row.name, n}
		}
	}
	return l
}

// count counts the first of the queues whose names hold a text.
func (n *queueNames) count(ctx context.Context, space jobSpace, search string) (*queueTable, error) {
	began := time.Now()
	var names []string
	for _, name := range n.names {
		if strings.Contains(name, search) {
			names = append(names, name)
		}
	}
	t := &queueTable{total: len(names), jobs: n.jobs, unread: n.unread()}
	names = names[:min(len(names), countedQueues)]
	for page := range slices.Chunk(names, countPage) {
		rows, err := space.countQueues(ctx, page...)
		if err != nil {
			return nil, err
		}
		t.rows = append(t.rows, rows...)
	}
	t.at, t.took = time.Now(), time.Since(began)
	return t, nil
}

// queueColumns are what the table can be sorted by beside the name.
var queueColumns = map[string]func(q queueCounts) float64{
	"ready":   func(q queueCounts) float64 { return float64(q.Ready) },
	"delayed": func(q queueCounts) float64 { return float64(q.Delayed) },
	"leased":  func(q queueCounts) float64 { return float64(q.Leased) },
	"dead":    func(q queueCounts) float64 { return float64(q.Dead) },
	// The one published first is the oldest; none is the youngest of all.
	"oldest_ready_age": func(q queueCounts) float64 {
		if q.OldestReady == 0 {
			return math.Inf(-1)
		}
		return -float64(q.OldestReady)
	},
}
