package schedule_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

// A model is the rules of the scripts written a second time, in Go: one queue of one shard, with the policy of newWorld. What
// a walk does to it takes microseconds, and what it answers a Redis must answer, too.
type model struct {
	us        int64 // its clock
	entries   map[string]entry
	specs     map[string]string
	due       map[string]int64 // when an active schedule deserves a look, ms
	seq       int64            // of the newest job
	published int64
	acked     int64
	expired   int64
	ready     []int64
	jobs      map[int64]modelJob
	leased    map[int64]int64 // deadline, ms
	dead      map[int64]bool
	keys      map[string]triggered // by schedule and key
	owners    map[string]int64     // when their registration ends, ms; 0: they ended it
	versions  map[string]int64     // of owners
	owned     map[string]int64     // "<owner> <name>" → the version that put it
}

type modelJob struct {
	ends                int64 // ms; 0: never
	attributes, payload string
}

// entry is the state of a schedule.
type entry struct {
	rev                                int64
	flag                               byte
	tag                                string
	next, till, waiting                int64
	first, count                       int64
	fired, missed, overlapped, paused  int64
	unregistered, superseded, ok, fail int64
	past, runs                         string
}

func newModel() *model {
	return &model{
		entries: map[string]entry{},
		specs:   map[string]string{},
		due:     map[string]int64{},
		jobs:    map[int64]modelJob{},
		leased:  map[int64]int64{},
		dead:    map[int64]bool{},
		keys:    map[string]triggered{},

		owners: map[string]int64{}, versions: map[string]int64{}, owned: map[string]int64{},
	}
}

func (m *model) now() int64 { return m.us / 1000 }

func (m *model) SetNow(t time.Time) { m.us = t.UnixMicro() }

// Save is a copy, to which Restore goes back.
func (m *model) Save() any {
	c := *m
	c.entries, c.specs, c.due = maps.Clone(m.entries), maps.Clone(m.specs), maps.Clone(m.due)
	c.ready, c.jobs, c.leased = slices.Clone(m.ready), maps.Clone(m.jobs), maps.Clone(m.leased)
	c.dead, c.keys = maps.Clone(m.dead), maps.Clone(m.keys)
	c.owners, c.versions, c.owned = maps.Clone(m.owners), maps.Clone(m.versions), maps.Clone(m.owned)
	return &c
}

func (m *model) Restore(saved any) {
	us := m.us
	*m = *saved.(*model).Save().(*model)
	m.us = us
}

func (e *entry) text() string {
	past := e.past
	if past != "" {
		past += "!"
	}
	return fmt.Sprintf("%d %c %s %d %d %d %d %d %d %d %d %d %d %d %d %d|%s%s", e.rev, e.flag, e.tag, e.next, e.till, e.waiting, e.first,
		e.count, e.fired, e.missed, e.overlapped, e.paused, e.unregistered, e.superseded, e.ok, e.fail, past, e.runs)
}

func (e *entry) add(tick int64, cause byte, first, count int64) {
	runs := append(strings.SplitAfter(e.runs, ";"), fmt.Sprintf("%d,%c%d.%d;", tick, cause, first, count))
	runs = slices.DeleteFunc(runs, func(run string) bool { return run == "" })
	e.runs = strings.Join(runs[max(0, len(runs)-5):], "")
}

func (m *model) text(name string) string {
	if e, found := m.entries[name]; found {
		return e.text()
	}
	return ""
}

// keep writes an entry, and when it deserves a look.
func (m *model) keep(name string, e entry, look int64) {
	m.entries[name] = e
	if e.flag == 'a' {
		m.due[name] = look
	} else {
		delete(m.due, name)
	}
}

func (m *model) live() int64 { return m.published - m.acked - m.expired }

func (m *model) unfinished(e *entry) bool {
	for seq := e.first; seq < e.first+e.count; seq++ {
		if _, found := m.jobs[seq]; found && !m.dead[seq] {
			return true
		}
	}
	return false
}

// publish stores the jobs of a run and returns the first.
func (m *model) publish(run *job.ScheduleRun, ttl time.Duration) (first int64) {
	first = max(m.us, m.seq+1)
	ends := int64(0)
	if ttl > 0 {
		ends = m.now() + ttl.Milliseconds()
	}
	for i, message := range run.Messages {
		m.seq = first + int64(i)
		m.jobs[m.seq] = modelJob{ends, string(message.Attributes), string(message.Payload)}
		m.ready = append(m.ready, m.seq)
		m.published++
	}
	return first
}

func (m *model) Clock(context.Context, *job.Namespace, string) (int64, error) { return m.now(), nil }

func (m *model) GetSchedule(_ context.Context, _ *job.Namespace, queue, name string) (job.Schedule, error) {
	if m.text(name) == "" {
		return job.Schedule{}, job.ErrNoSchedule
	}
	return job.Schedule{Queue: queue, Name: name, Spec: []byte(m.specs[name]), State: m.text(name)}, nil
}

func (m *model) Schedules(ctx context.Context, ns *job.Namespace, queue, _ string,
	_ int) (list []job.Schedule, more bool, err error) {
	for _, name := range slices.Sorted(maps.Keys(m.entries)) {
		found, _ := m.GetSchedule(ctx, ns, queue, name)
		list = append(list, found)
	}
	return list, false, nil
}

func (m *model) PutSchedule(_ context.Context, p *job.PutSchedule) error {
	e, found := m.entries[p.Name]
	registered, is := m.versions[p.Owner]
	switch {
	case m.text(p.Name) != p.Before:
		return job.ErrChanged
	case p.Owner != "" && (!is || registered > p.Version):
		return job.ErrOldVersion
	case found && e.tag == p.Tag:
		if p.Owner != "" {
			m.owned[p.Owner+" "+p.Name] = p.Version
		}
		p.Result, p.Revision = job.Unchanged, e.rev
		return nil
	case !found && len(m.entries) >= mostSchedules:
		return job.ErrTooManySchedules
	case p.First > 0 && p.First <= m.now(), p.Open > 0 && p.Open <= m.now():
		return job.ErrDue
	}
	p.Result = job.Replaced
	if !found {
		p.Result, e.flag = job.Created, 'a'
	}
	if e.flag == 'p' {
		e.paused += int64(p.GivenUp)
	} else {
		e.flag, e.superseded = 'a', e.superseded+int64(p.GivenUp)
	}
	if p.First == 0 {
		e.flag = 'e'
	}
	if e.waiting > 0 {
		e.waiting, e.superseded = 0, e.superseded+1
	}
	e.rev, e.tag, e.next, e.till, e.past = e.rev+1, p.Tag, p.First, 0, p.Past
	p.Revision = e.rev
	m.specs[p.Name] = string(p.Spec)
	if p.Owner != "" {
		m.owned[p.Owner+" "+p.Name] = p.Version
	}
	m.keep(p.Name, e, p.Look)
	return nil
}

func (m *model) PauseSchedule(_ context.Context, _ *job.Namespace, _, name string,
	pause bool) (changed bool, revision int64, err error) {
	e, found := m.entries[name]
	switch {
	case !found:
		return false, 0, job.ErrNoSchedule
	case e.flag == 'e':
		return false, 0, job.ErrEnded
	case pause == (e.flag == 'p'):
		return false, e.rev, nil
	}
	e.rev++
	if pause {
		e.flag = 'p'
		if e.waiting > 0 {
			e.waiting, e.paused = 0, e.paused+1
		}
	} else {
		e.flag, e.till = 'a', m.now()
	}
	m.keep(name, e, m.now())
	return true, e.rev, nil
}

// owner is that of a schedule.
func (m *model) owner(name string) string {
	var s struct{ Owner string }
	_ = json.Unmarshal([]byte(m.specs[name]), &s)
	return s.Owner
}

func (m *model) DeleteSchedule(_ context.Context, _ *job.Namespace, _, name, owner string, below int64) error {
	version, noted := m.owned[owner+" "+name]
	switch {
	case m.text(name) == "":
		return job.ErrNoSchedule
	case m.owner(name) != owner, below >= 0 && (!noted || version >= below):
		return job.ErrOtherOwner
	}
	delete(m.owned, owner+" "+name)
	delete(m.entries, name)
	delete(m.specs, name)
	delete(m.due, name)
	return nil
}

func (m *model) Register(_ context.Context, _ *job.Namespace, owner string, version int64, ttl time.Duration) (job.Owner, error) {
	if version < m.versions[owner] {
		return job.Owner{}, job.ErrOldVersion
	}
	m.versions[owner] = version
	m.owners[owner] = max(m.owners[owner], m.now()+ttl.Milliseconds())
	return job.Owner{Name: owner, Version: version, Until: time.UnixMilli(m.owners[owner])}, nil
}

func (m *model) Heartbeat(_ context.Context, _ *job.Namespace, owner string, ttl time.Duration) (job.Owner, error) {
	if m.owners[owner] == 0 {
		return job.Owner{}, job.ErrNoOwner
	}
	m.owners[owner] = max(m.owners[owner], m.now()+ttl.Milliseconds())
	return job.Owner{Name: owner, Version: m.versions[owner], Until: time.UnixMilli(m.owners[owner])}, nil
}

func (m *model) Deregister(_ context.Context, _ *job.Namespace, owner string) error {
	if _, found := m.owners[owner]; !found {
		return job.ErrNoOwner
	}
	m.owners[owner] = 0
	return nil
}

func (m *model) Forget(_ context.Context, _ *job.Namespace, owner string) error {
	delete(m.owners, owner)
	delete(m.versions, owner)
	maps.DeleteFunc(m.owned, func(key string, _ int64) bool { return strings.HasPrefix(key, owner+" ") })
	return nil
}

func (m *model) CountOwned(_ context.Context, _ *job.Namespace, list []job.Owner) error {
	for i := range list {
		for key := range m.owned {
			if strings.HasPrefix(key, list[i].Name+" ") {
				list[i].Schedules++
			}
		}
	}
	return nil
}

func (m *model) Owners(context.Context, *job.Namespace) (list []job.Owner, err error) {
	for _, name := range slices.Sorted(maps.Keys(m.owners)) {
		o := job.Owner{Name: name, Version: m.versions[name]}
		if m.owners[name] > 0 {
			o.Until = time.UnixMilli(m.owners[name])
		}
		list = append(list, o)
	}
	return list, nil
}

func (m *model) Owned(_ context.Context, _ *job.Namespace, owner string) (list []job.OwnedSchedule, err error) {
	for _, key := range slices.Sorted(maps.Keys(m.owned)) {
		if of, name, _ := strings.Cut(key, " "); of == owner {
			list = append(list, job.OwnedSchedule{Queue: queue, Name: name, Version: m.owned[key]})
		}
	}
	return list, nil
}

func (m *model) DueSchedules(_ context.Context, _ *job.Namespace, _, skip,
	limit int) (now int64, list []job.DueSchedule, err error) {
	for name, at := range m.due {
		if at <= m.now()+1000 {
			list = append(list, job.DueSchedule{Queue: queue, Name: name, At: at, State: m.text(name)})
		}
	}
	slices.SortFunc(list, func(a, b job.DueSchedule) int {
		if a.At != b.At {
			return int(a.At - b.At)
		}
		return strings.Compare(a.Name, b.Name)
	})
	list = list[min(skip, len(list)):]
	return m.now(), list[:min(limit, len(list))], nil
}

func (m *model) Fire(_ context.Context, _ *job.Namespace, _ int, made int64, firings []*job.Firing) (int64, error) {
	before := maps.Clone(m.entries) // each schedule moves on once a call
	for _, f := range firings {
		f.Status, f.Fired, f.First = job.Stale, 0, 0
		e, found := before[f.Name]
		switch {
		case !found || e.text() != f.State || e.flag != 'a':
		case m.now() < made || m.now() > made+5000:
			f.Status = job.Untimely
		default:
			m.move(&e, f, made)
			delete(before, f.Name)
		}
	}
	return m.now(), nil
}

// move is what becomes of one schedule.
func (m *model) move(e *entry, f *job.Firing, made int64) {
	f.Status = job.Fired
	e.missed, e.paused, e.past = e.missed+int64(f.Missed), e.paused+int64(f.Paused), f.Past
	next, look, left := f.Next, f.Look, f.Left
	if until, found := m.owners[f.Owner]; f.Owner != "" && left != 0 && (!found || until < m.now()) {
		f.Status = job.Unregistered
		e.unregistered += int64(len(f.List))
		if len(f.List) > 0 && f.List[0].Cause == 'w' {
			e.waiting = 0
		}
		f = &job.Firing{Name: f.Name, Status: f.Status}
	}
	busy := f.Overlap != "allow" && m.unfinished(e)
	for i := range f.List {
		run := &f.List[i]
		waited := run.Cause == 'w'
		switch {
		case left != 0 && !busy && m.live()+int64(len(run.Messages)) > mostJobs:
			f.Status, look = job.NoRoom, m.now()+1000
			if !waited {
				next = run.Tick
			} else if i+1 < len(f.List) {
				next = f.List[i+1].Tick
			}
		case left == 0 || waited && busy: // it stays as it is
			continue
		case busy && f.Overlap == "buffer" && e.waiting == 0:
			e.waiting = run.Tick
			continue
		case busy:
			e.overlapped++
			continue
		}
		if f.Status == job.NoRoom {
			break
		}
		if waited {
			e.waiting = 0
		}
		f.First = m.publish(run, 0)
		if f.TTL > 0 {
			for seq := f.First; seq <= m.seq; seq++ {
				j := m.jobs[seq]
				j.ends = made + f.TTL.Milliseconds()
				m.jobs[seq] = j
			}
		}
		e.first, e.count, e.fired = f.First, int64(len(run.Messages)), e.fired+1
		e.add(run.Tick, run.Cause, e.first, e.count)
		f.Fired, left, busy = f.Fired+1, left-1, f.Overlap != "allow"
	}
	e.next = next
	if next > made {
		e.till = 0
	}
	if left == 0 {
		if e.waiting > 0 {
			e.superseded++
		}
		e.next, e.waiting = 0, 0
	}
	if e.waiting > 0 {
		look = m.now() + 1000
	} else if e.next == 0 {
		e.flag = 'e'
	}
	m.keep(f.Name, *e, look)
}

func (m *model) Trigger(_ context.Context, t *job.Trigger) error {
	e, found := m.entries[t.Name]
	unfinished := m.unfinished(&e)
	before, again := m.keys[t.Name+" "+t.Key]
	switch {
	case again:
		t.First, t.Count, t.Repeated = before.first, before.count, true
		return nil
	case !found || len(t.List) == 0:
		return job.ErrNoSchedule
	}
	count := len(t.List) * len(t.List[0].Messages)
	switch {
	case unfinished && t.Finished:
		return job.ErrUnfinished
	case m.live()+int64(count) > mostJobs:
		return job.ErrTooManyJobs
	}
	t.Count = count
	for i := range t.List {
		run := &t.List[i]
		first := m.publish(run, t.TTL)
		if i == 0 {
			t.First = first
		}
		e.add(run.Tick, run.Cause, first, int64(len(run.Messages)))
	}
	if !unfinished {
		e.first, e.count = t.First, int64(t.Count)
	}
	m.entries[t.Name] = e
	if t.Key != "" {
		m.keys[t.Name+" "+t.Key] = triggered{first: t.First, count: t.Count}
	}
	return nil
}

// Run claims, acks and buries.
func (m *model) Run(_ context.Context, _ *job.Lane, b *job.Batch) {
	for _, a := range b.Acks {
		delete(m.jobs, a.Ref.Seq)
		delete(m.leased, a.Ref.Seq)
		m.acked++
	}
	for _, s := range b.Settles {
		delete(m.leased, s.Ref.Seq)
		m.dead[s.Ref.Seq] = true
	}
	for _, c := range b.Claims {
		for len(c.Jobs) < c.Count && len(m.ready) > 0 {
			seq := m.ready[0]
			m.ready = m.ready[1:]
			j := m.jobs[seq]
			if j.ends > 0 && j.ends <= m.now() {
				delete(m.jobs, seq)
				m.expired++
				continue
			}
			m.leased[seq] = m.now() + c.TTR.Milliseconds()
			c.Jobs = append(c.Jobs, job.Job{
				Queue:      queue,
				Ref:        job.Ref{Seq: seq},
				Attempt:    1,
				Attributes: []byte(j.attributes),
				Payload:    []byte(j.payload),
			})
		}
	}
}

func (m *model) Ledger(context.Context, *job.Namespace) (job.Ledger, error) {
	return job.Ledger{
		Published: m.published,
		Acked:     m.acked,
		Expired:   m.expired,
		Dead:      int64(len(m.dead)),
		Ready:     int64(len(m.ready)),
		Leased:    int64(len(m.leased)),
	}, nil
}

func (m *model) Audit(context.Context, *job.Namespace) (int64, error) {
	return m.live() - int64(len(m.ready)+len(m.leased)+len(m.dead)), nil
}

// Picture is what the keys of a Redis say that is equal, a line for each fact.
func (m *model) Picture() (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	for name, e := range m.entries {
		add("state %s %s", name, e.text())
	}
	for name, spec := range m.specs {
		add("spec %s %s", name, spec)
	}
	for name, at := range m.due {
		add("due %s %d", name, at)
	}
	for seq := range m.jobs {
		add("job %d", seq)
	}
	for seq, deadline := range m.leased {
		add("lease %d %d", seq, deadline)
	}
	for seq := range m.dead {
		add("dead %d", seq)
	}
	for name, until := range m.owners {
		add("owner %s %d", name, until)
	}
	for name, version := range m.versions {
		add("owned %s version %d", name, version)
	}
	for key, version := range m.owned {
		add("owned %s %d", key, version)
	}
	add("ready %v", m.ready)
	add("ledger %d %d %d %d %d", m.seq, m.published, m.acked, m.expired, len(m.dead))
	if len(m.jobs) > 0 {
		add("queue")
	}
	slices.Sort(lines)
	return lines
}
