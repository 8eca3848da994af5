package schedule_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
)

// ownerNames are the owners of a walk.
var ownerNames = []string{"billing", "mailer"}

// knownOwner is what the world knows of an owner.
type knownOwner struct {
	version int64 // the highest that registered
	until   int64 // ms; 0: it ended its registration
}

// owner is one act of a service: a heartbeat, an end, a deploy.
func (w *world) owner() {
	ctx, name := w.t.Context(), ownerNames[w.r.IntN(2)]
	o, known := w.owners[name]
	ttl := []time.Duration{5 * time.Second, time.Minute, time.Hour}[w.r.IntN(3)]
	switch w.r.IntN(8) {
	case 0, 1:
		got, err := w.store.Heartbeat(ctx, w.ns, name, ttl)
		w.note("heartbeat %s %s: %v", name, ttl, err)
		if alive := known && o.until > 0; alive != (err == nil) || !alive && !errors.Is(err, job.ErrNoOwner) {
			w.fatalf("heartbeat of %s, %+v: %v", name, o, err)
		} else if alive {
			w.lives(name, got, ttl)
		}
	case 2:
		err := w.store.Deregister(ctx, w.ns, name)
		w.note("deregister %s: %v", name, err)
		if known != (err == nil) {
			w.fatalf("deregister: %v", err)
		} else if known {
			w.owners[name] = knownOwner{version: o.version}
		}
	case 3:
		if w.r.IntN(3) > 0 {
			return
		}
		deleted, err := schedule.DeleteOwned(ctx, w.store, w.ns, name)
		if err == nil {
			err = w.store.Forget(ctx, w.ns, name)
		}
		w.note("forget %s: %d deleted, %v", name, deleted, err)
		for s, spec := range w.specs {
			if spec.Owner == name {
				w.forget(s)
			}
		}
		if err != nil {
			w.fatalf("forget: %v", err)
		}
		delete(w.owners, name)
	default:
		w.deploy(name, ttl)
	}
}

func (w *world) forget(name string) {
	delete(w.specs, name)
	delete(w.seen, name)
}

// lives notes until when an owner is registered: it never comes nearer.
func (w *world) lives(name string, got job.Owner, ttl time.Duration) {
	o := w.owners[name]
	if until := max(o.until, w.now.UnixMilli()+ttl.Milliseconds()); got.Until.UnixMilli() != until || got.Version < o.version {
		w.fatalf("%s is registered as %+v, want until %d, version %d", name, got, until, o.version)
	}
	w.owners[name] = knownOwner{got.Version, got.Until.UnixMilli()}
}

// deploy registers an owner with some schedules, in a version that may be old.
func (w *world) deploy(name string, ttl time.Duration) {
	o := w.owners[name]
	r := &schedule.Registration{
		Namespace: w.ns,
		Owner:     name,
		Version:   max(0, o.version-1+int64(w.r.IntN(3))),
		TTL:       ttl,
	}
	for i := range w.r.IntN(3) {
		s := schedule.Registered{Queue: queue, Name: fmt.Sprint(name, "-", (i+w.r.IntN(3))%3), Spec: w.spec()}
		if had := w.specs[s.Name]; had != nil && w.r.IntN(2) == 0 {
			again := *had
			s.Spec = &again
		}
		if w.r.IntN(3) == 0 {
			s.Spec, _ = schedule.Parse([]byte(`{"every":"2s","overlap":"buffer"}`))
		}
		if other := w.pick(); other != "" && w.r.IntN(6) == 0 {
			s.Name = other
		}
		if slices.ContainsFunc(r.Schedules, func(had schedule.Registered) bool { return had.Name == s.Name }) {
			continue
		}
		r.Schedules = append(r.Schedules, s)
	}
	before := map[string]schedule.State{}
	for s := range w.specs {
		found, _ := w.store.GetSchedule(w.t.Context(), w.ns, queue, s)
		before[s], _ = schedule.ReadState(found.State)
	}
	put, _ := w.store.Owned(w.t.Context(), w.ns, name)
	err := r.Register(w.t.Context(), &registering{world: w, Stores: w.store, of: r})
	w.note("register %s %d %s with %v: %v", name, r.Version, ttl, r.Schedules, err)
	now := w.owners[name]
	var field *schedule.FieldError
	switch {
	case now.version > r.Version:
		// Where the newer one came in between, it may be that nothing of the older one was left to do.
		if !errors.Is(err, job.ErrOldVersion) && (o.version > r.Version || err != nil && !errors.Is(err, job.ErrOtherOwner) &&
			!errors.Is(err, job.ErrTooManySchedules) && !errors.As(err, &field)) {
			w.fatalf("version %d registered after %d: %v", r.Version, now.version, err)
		}
	case err == nil:
		w.checkDeploy(r, put)
	case errors.Is(err, job.ErrOtherOwner), errors.Is(err, job.ErrTooManySchedules), errors.As(err, &field):
	default:
		w.fatalf("register: %v", err)
	}
	w.reread(before, r)
}

// checkDeploy looks at what a registration left: its schedules, and none that an older version put and it does not have.
func (w *world) checkDeploy(r *schedule.Registration, before []job.OwnedSchedule) {
	after, err := w.store.Owned(w.t.Context(), w.ns, r.Owner)
	if err != nil {
		w.fatalf("owned: %v", err)
	}
	for _, s := range r.Schedules {
		if !slices.ContainsFunc(after, func(a job.OwnedSchedule) bool { return a.Name == s.Name && a.Version == r.Version }) {
			w.fatalf("%s has not %s: %+v", r.Owner, s.Name, after)
		}
	}
	for _, b := range before {
		named := slices.ContainsFunc(r.Schedules, func(s schedule.Registered) bool { return s.Name == b.Name })
		_, err := w.store.GetSchedule(w.t.Context(), w.ns, queue, b.Name)
		if stays := named || b.Version >= r.Version; stays != (err == nil) {
			w.fatalf("%s, put by version %d, after version %d, which has it %v: %v", b.Name, b.Version, r.Version, named, err)
		}
	}
}

// reread learns which schedules a registration put and deleted, and a newer one meanwhile.
func (w *world) reread(before map[string]schedule.State, r *schedule.Registration) {
	list, _, err := w.store.Schedules(w.t.Context(), w.ns, queue, "", 100)
	if err != nil {
		w.fatalf("schedules: %v", err)
	}
	is := map[string]bool{}
	for _, s := range list {
		is[s.Name] = true
		old := w.specs[s.Name]
		spec, err := schedule.Parse(s.Spec)
		if err != nil {
			w.fatalf("%s: %v", s.Spec, err)
		}
		if old != nil && string(old.JSON()) == string(s.Spec) {
			continue
		}
		if old != nil && old.Owner != "" && old.Owner != spec.Owner {
			w.fatalf("%s of %s went to %q", s.Name, old.Owner, spec.Owner)
		}
		ticked := slices.ContainsFunc(before[s.Name].Last, func(run schedule.Run) bool { return run.Cause != "triggered" })
		w.forgot[s.Name] = w.forgot[s.Name] || w.most.Sub(w.now) > 24*time.Hour || w.back && !ticked
		w.specs[s.Name], w.expires[s.Name] = spec, w.expires[s.Name] || spec.TTL > 0
		delete(w.seen, s.Name)
	}
	for name, spec := range w.specs {
		taken := slices.ContainsFunc(r.Schedules, func(s schedule.Registered) bool { return s.Name == name })
		if !is[name] && spec.Owner == "" && !taken {
			w.fatalf("%s is gone, and belongs to nobody", name)
		} else if !is[name] {
			w.forget(name)
		}
	}
}

// registering is the store as a registration sees it, in which a newer one takes its turn.
type registering struct {
	*world
	schedule.Stores
	of    *schedule.Registration
	newer bool
}

func (g *registering) Register(ctx context.Context, ns *job.Namespace, owner string, version int64, ttl time.Duration) (job.Owner, error) {
	o, err := g.store.Register(ctx, ns, owner, version, ttl)
	if err == nil {
		g.lives(owner, o, ttl)
	} else if version >= g.owners[owner].version || !errors.Is(err, job.ErrOldVersion) {
		g.fatalf("version %d of %s, %+v: %v", version, owner, g.owners[owner], err)
	}
	return o, err
}

func (g *registering) PutSchedule(ctx context.Context, p *job.PutSchedule) error {
	if g.newer || g.r.IntN(6) > 0 {
		return g.store.PutSchedule(ctx, p)
	}
	version := g.deployNewer(ctx, g.of.Schedules[:1])
	err := g.store.PutSchedule(ctx, p)
	if !errors.Is(err, job.ErrOldVersion) && !errors.Is(err, job.ErrChanged) {
		g.fatalf("%s of version %d was put after version %d: %v", p.Name, p.Version, version, err)
	}
	return err
}

func (g *registering) DeleteSchedule(ctx context.Context, ns *job.Namespace, queue, name, owner string, below int64) error {
	if g.newer || g.r.IntN(2) > 0 {
		return g.store.DeleteSchedule(ctx, ns, queue, name, owner, below)
	}
	spec := *g.specs[name]
	version := g.deployNewer(ctx, []schedule.Registered{{Queue: queue, Name: name, Spec: &spec}})
	had, _ := g.store.Owned(ctx, ns, owner)
	err := g.store.DeleteSchedule(ctx, ns, queue, name, owner, below)
	if put := slices.Contains(had, job.OwnedSchedule{Queue: queue, Name: name, Version: version}); put && !errors.Is(err, job.ErrOtherOwner) {
		g.fatalf("version %d deleted %s, which version %d put: %v", below, name, version, err)
	}
	return err
}

// deployNewer lets a newer version register meanwhile, and returns it.
func (g *registering) deployNewer(ctx context.Context, list []schedule.Registered) int64 {
	g.newer = true
	r := &schedule.Registration{
		Namespace: g.ns,
		Owner:     g.of.Owner,
		Version:   g.of.Version + 1,
		TTL:       g.of.TTL,
		Schedules: list,
	}
	put, _ := g.store.Owned(ctx, g.ns, r.Owner)
	err := r.Register(ctx, g)
	g.note("meanwhile %d registered: %v", r.Version, err)
	if err == nil {
		g.checkDeploy(r, put)
	}
	return r.Version
}

// adopting is the store as a delete sees it, in which an owner takes the schedule.
type adopting struct {
	*world
	schedule.Stores
	done bool
}

func (a *adopting) DeleteSchedule(ctx context.Context, ns *job.Namespace, queue, name, owner string, below int64) error {
	if spec := *a.specs[name]; !a.done && spec.Owner == "" && a.r.IntN(2) == 0 {
		a.done = true
		r := &schedule.Registration{
			Namespace: ns,
			Owner:     ownerNames[0],
			Version:   max(1, a.owners[ownerNames[0]].version),
			TTL:       time.Minute,
			Schedules: []schedule.Registered{{Queue: queue, Name: name, Spec: &spec}},
		}
		before := map[string]schedule.State{}
		err := r.Register(ctx, &registering{world: a.world, Stores: a.store, of: r, newer: true})
		a.note("meanwhile %s takes %s: %v", r.Owner, name, err)
		a.reread(before, r)
		if a.specs[name] == nil {
			a.fatalf("%s is gone", name)
		}
	}
	return a.store.DeleteSchedule(ctx, ns, queue, name, owner, below)
}

func (a *adopting) GetSchedule(ctx context.Context, ns *job.Namespace, queue, name string) (job.Schedule, error) {
	return a.store.GetSchedule(ctx, ns, queue, name)
}

func (g *registering) Fire(ctx context.Context, ns *job.Namespace, shard int, made int64,
	firings []*job.Firing) (int64, error) {
	at, err := g.store.Fire(ctx, ns, shard, made, firings)
	for _, f := range firings {
		g.noteFired(f)
		g.early[f.Name] = true
	}
	return at, err
}

func (g *registering) Clock(context.Context, *job.Namespace, string) (int64, error) {
	return g.now.UnixMilli(), nil
}
func (g *registering) GetSchedule(ctx context.Context, ns *job.Namespace, queue, name string) (job.Schedule, error) {
	return g.store.GetSchedule(ctx, ns, queue, name)
}
