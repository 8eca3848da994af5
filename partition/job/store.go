// Package job is the store of durable jobs: queues that keep each job until it is acked,
// expires by its own TTL, or is deleted. Nothing is evicted.
//
//	store, err := job.Open(job.Config{Prefix: "sw", Namespaces: policies}, backend, metrics, log)
//	lane, mail := store.NewLane(), store.Namespace("mail")
//	p := &job.Publish{Namespace: mail, Queue: "out", Shard: mail.Shards("out")[0], Tries: 3, Messages: messages}
//	c := &job.Claim{Namespace: mail, Queues: []string{"out"}, TTR: time.Minute, Count: 10}
//	store.Run(ctx, lane, &job.Batch{Publishes: []*job.Publish{p}, Claims: []*job.Claim{c}})
//
// A job is ready, prepared, delayed, leased or dead. A claim leases ready jobs, for a time to
// run (TTR). Who holds a job acks it, gives it back for later (nack), gives it up (bury),
// leases it for longer (touch), or gives it back uncounted (requeue). A lease that lapses ends
// as a nack does. After as many claims as its tries allow, a job becomes a dead letter. An
// operator respawns or deletes those.
//
//	publish ─delay▶ delayed ─due▶ ready ─claim▶ leased ─ack▶ gone
//	                   ▲           ▲  ▲            │
//	                   └─ nack ────│──┴─ lapse ────┤
//	                               └─ respawn ─ dead ◀─ tries used up, bury
//
// A prepared job is ready once its publisher commits it; a rollback deletes it.
//
// DESIGN.md says how it works and what it costs.
package job

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/lifecycle"
	"github.com/spillway-io/spillway/partition/space"
)

// Config is the configuration of a Store. Open returns a *backend.FieldError for a value that
// it cannot use.
type Config struct {
	// Prefix begins every key: 1 to 64 letters, digits, '.', '_' or '-'.
	Prefix string
	// Volatile lets jobs live on a Redis without an append-only file, where a crash loses
	// them. Default false: Check rejects such a Redis.
	Volatile bool
	// Namespaces are the policies by the name of their namespace. There may be none.
	Namespaces map[string]Policy
	// Required are the namespaces without which Check fails; what is wrong with any other is a
	// warning, and only that namespace is rejected. Default none: those of a configuration file
	// belong here, and not those that came at run time.
	Required []string
	// TakeRate takes what schedules publish off the rates of the tokens that put them; default nil: there are none.
	TakeRate TakeRate
}

// Reads are limited, so that no number of readers slows down those who work.
const (
	readsAtOnce  = 4
	readsMaxWait = 500 * time.Millisecond
)

// Store runs every operation on jobs, as atomic scripts on one Redis. It holds no state that
// matters, so any number of processes may share one Redis. It is safe for concurrent use.
type Store struct {
	*core
	inspector
	scheduler
	owners
}

// core is what all parts of a Store stand on.
type core struct {
	backend    *backend.Backend
	prefix     string
	required   []string
	takeRate   TakeRate
	space      *space.Space
	metrics    *metrics
	log        *zap.Logger
	wake       any // the command by which scripts wake who waits
	namespaces atomic.Pointer[map[string]*Namespace]
	swapping   sync.Mutex // of namespaces
	alarm      alarm
	due        dueShards // with schedules
	behind     dueShards // whose clock went back
	ends       dueShards // with follow-ups
	traced     dueShards // with events of traces
	reads      backend.ReadLimit
	pace       *backend.Pace
	opened     time.Time
}

// As is a store as one that does what its kind may not have, or ErrOtherKind.
func As[T any](store any) (T, error) {
	able, ok := store.(T)
	if !ok {
		return able, ErrOtherKind
	}
	return able, nil
}

// Reads is what one reads of queues of every kind.
type Reads interface {
	Peek(ctx context.Context, ns *Namespace, queue string) (Job, error)
	Get(ctx context.Context, ns *Namespace, queue string, ref Ref) (Job, State, error)
	Counts(ctx context.Context, ns *Namespace, queue string) (Counts, error)
	Forecast(ctx context.Context, ns *Namespace, queue string, step time.Duration, n int) ([]int64, error)
	Dead(ctx context.Context, ns *Namespace, queue string, offset, limit int) (dead []Job, total int64, err error)
}

// Edits changes jobs that wait. *Store has this and the interfaces below.
type Edits interface {
	Reschedule(ctx context.Context, r *Reschedule) error
	ReleaseUnique(ctx context.Context, p *Publish) (released bool, err error)
	Decide(ctx context.Context, d *Decision) error
}

// Ends is what one asks of how jobs end.
type Ends interface {
	Await(ctx context.Context, ns *Namespace, queue string, ref Ref) (Job, State, error)
	OnEnds(ctx context.Context, ns *Namespace, jobs []Job) error
}

// Traces is what happened to jobs.
type Traces interface {
	Trace(ctx context.Context, ns *Namespace, queue string, ref Ref) ([]TraceEvent, error)
	Note(ns *Namespace, queue string, ref Ref, e TraceEvent)
}

// Lists lists the jobs of a queue in one state, and the queues that keep acked ones.
type Lists interface {
	List(ctx context.Context, ns *Namespace, l List) (list []Job, next string, err error)
	Kept(ctx context.Context, ns *Namespace, queues []string) (jobs []*int64, err error)
	KeptQueues(ctx context.Context, ns *Namespace) ([]string, error)
}

// Pauses stops the claims of queues.
type Pauses interface {
	Pause(ctx context.Context, ns *Namespace, queue string, p partition.Pause) error
	Resume(ctx context.Context, ns *Namespace, queue string) (was bool, err error)
	Pauses(ctx context.Context, ns *Namespace) ([]PausedQueue, error)
}

// ScheduleOperations is what one asks of the schedules of a store.
type ScheduleOperations interface {
	Clock(ctx context.Context, ns *Namespace, queue string) (ms int64, err error)
	GetSchedule(ctx context.Context, ns *Namespace, queue, name string) (Schedule, error)
	Schedules(ctx context.Context, ns *Namespace, queue, after string, limit int) (list []Schedule,
		more bool, err error)
	PutSchedule(ctx context.Context, p *PutSchedule) error
	PauseSchedule(ctx context.Context, ns *Namespace, queue, name string,
		pause bool) (changed bool, revision int64, err error)
	DeleteSchedule(ctx context.Context, ns *Namespace, queue, name, owner string, below int64) error
	Fire(ctx context.Context, ns *Namespace, shard int, made int64, firings []*Firing) (at int64, err error)
	Trigger(ctx context.Context, t *Trigger) error
}

// OwnerOperations is what one asks of the owners of schedules.
type OwnerOperations interface {
	Register(ctx context.Context, ns *Namespace, owner string, version int64, ttl time.Duration) (Owner, error)
	Heartbeat(ctx context.Context, ns *Namespace, owner string, ttl time.Duration) (Owner, error)
	Deregister(ctx context.Context, ns *Namespace, owner string) error
	Forget(ctx context.Context, ns *Namespace, owner string) error
	Owners(ctx context.Context, ns *Namespace) ([]Owner, error)
	CountOwned(ctx context.Context, ns *Namespace, list []Owner) error
	Owned(ctx context.Context, ns *Namespace, owner string) ([]OwnedSchedule, error)
}

// OwnerReads is what a list of owners asks of a store.
type OwnerReads interface {
	Now() (ms int64, ok bool)
	Owners(ctx context.Context, ns *Namespace) ([]Owner, error)
	CountOwned(ctx context.Context, ns *Namespace, list []Owner) error
}

// ScheduleForecasts is what a forecast of ticks asks of a store.
type ScheduleForecasts interface {
	ScanSchedules(ctx context.Context, ns *Namespace, queue string, most int,
		visit func([]Schedule) bool) (all bool, err error)
	NextTicks(ctx context.Context, ns *Namespace, queue string, step time.Duration, n int) ([]int64, error)
}

// Open makes a Store on a Backend, which the caller closes after it. It does not connect.
func Open(cfg Config, b *backend.Backend, reg prometheus.Registerer,
	log *zap.Logger) (*Store, error) {
	if !partition.ValidNamespace(cfg.Prefix) {
		return nil, backend.Wrong("prefix", cfg.Prefix, "1 to 64 letters, digits, '.', '_' or '-'")
	}
	c := &core{
		backend:  b,
		prefix:   cfg.Prefix,
		required: cfg.Required,
		takeRate: cfg.TakeRate,
		log:      log,
		wake:     "publish",
		pace:     backend.NewPace(),
		opened:   time.Now(),
	}
	s := &Store{c, inspector{c}, scheduler{c}, owners{scheduler{c}}}
	for _, wake := range []*lifecycle.Signal{
		&s.alarm.wake,
		&s.due.wake,
		&s.ends.wake,
		&s.traced.wake,
	} {
		*wake = lifecycle.NewSignal()
	}
	if b.Cluster() {
		s.wake = "spublish"
	}
	s.metrics = newMetrics(reg)
	reg.MustRegister(scheduleMetrics(s))
	s.space = space.New(space.Config{
		Kind:       s.kind(),
		Prefix:     cfg.Prefix,
		Durable:    !cfg.Volatile,
		RolledBack: s.metrics.rolledBack,
		Log:        log,
	}, b)
	s.namespaces.Store(&map[string]*Namespace{})
	if err := s.swap(cfg.Namespaces); err != nil {
		return nil, err
	}
	s.reads = backend.NewReadLimit(readsAtOnce, readsMaxWait, s.metrics.rejected)
	return s, nil
}

// Namespace returns the namespace of that name, nil when there is none.
func (s *core) Namespace(name string) *Namespace { return (*s.namespaces.Load())[name] }

// Namespaces returns all namespaces in the order of their names.
func (s *core) Namespaces() []*Namespace {
	all := *s.namespaces.Load()
	list := make([]*Namespace, 0, len(all))
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	return list
}

// SetNamespaces replaces all namespaces. What runs under the policies before goes on. Jobs
// of a namespace that is not among them stay in the store. Its errors are *backend.FieldError,
// and then nothing changes; or the reason why a new namespace did not pass its Check: it is
// checked again by the promoter.
func (s *Store) SetNamespaces(ctx context.Context, policies map[string]Policy) error {
	if err := s.swap(policies); err != nil {
		return err
	}
	var errs []error
	for _, ns := range s.Namespaces() {
		if known, _ := s.space.Known(ns.Home); !known {
			errs = append(errs, s.backend.Explain(ctx, s.space.CheckOne(ctx, ns.Home)))
		}
	}
	return errors.Join(errs...)
}

func (s *Store) swap(policies map[string]Policy) error {
	s.swapping.Lock()
	defer s.swapping.Unlock()
	before := *s.namespaces.Load()
	all := make(map[string]*Namespace, len(policies))
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		if was := before[name]; was != nil && reflect.DeepEqual(was.Policy, policies[name]) {
			all[name] = was // claims that wait ask again under a new one
			continue
		}
		ns, err := newNamespace(s.prefix, name, policies[name], before[name])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if before[name] == nil || before[name].Home != ns.Home { // else others read it already
			ns.Required = slices.Contains(s.required, name)
			s.space.Adopt(ns.Home)
		}
		all[name] = ns
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	s.namespaces.Store(&all)
	for name := range before {
		if all[name] == nil {
			s.metrics.stranded.DeleteLabelValues(name)
		}
	}
	for name := range all {
		s.metrics.stranded.WithLabelValues(name)
	}
	s.alarm.ring()
	return nil
}

// Now is the store's clock in Unix ms. ok is false until the store has answered once.
func (s *core) Now() (ms int64, ok bool) { return s.backend.Now() }

// ZoneOf is the zone of a shard: see Namespace.ZoneOf.
func (s *core) ZoneOf(ns *Namespace, shard int) int { return ns.ZoneOf(shard) }

// Zones is the number of zones: see Namespace.ZoneOf. It is 1 but on a Redis Cluster.
func (s *core) Zones() int { return s.space.Zones() }

// Embedded reports whether the store lives in this process and dies with it.
func (s *core) Embedded() bool { return s.backend.Embedded() }

// probeQueue is a name that no caller can use.
const probeQueue = "!permission-probe"

// storedFormat is that of what queues store. A change that programs of before cannot read raises it.
const storedFormat = 1

// kind is what a Space has to know of queues. What wakes need beside the probe shows when they subscribe.
func (s *core) kind() *space.Kind {
	return &space.Kind{
		Name:     "queue",
		Format:   storedFormat,
		Named:    true,
		Total:    "published",
		Unit:     "jobs",
		Scripts:  luajob.All(),
		Embedded: []string{"jobs live in this process and end with it: the embedded store is for trying things out"},
		Probe:    luajob.PermissionProbe,
		ProbeOf: func(at *space.Shard) (keys []string, args []any) {
			k := newShardKeys(at)
			keys = []string{k.ready(probeQueue), k.jobs(probeQueue), k.dead(probeQueue),
				k.Prefix + "dd:" + probeQueue + ":0"}
			return keys, []any{k.channel + probeQueue, s.wake}
		},
	}
}

// Check asks whether queues can be used now: see space.Check. What is wrong with a namespace that
// is not Config.Required is a warning. Until a Check passed, publishes and claims are rejected.
func (s *Store) Check(ctx context.Context) (warnings []string, err error) {
	return s.space.Check(ctx, s.homes())
}

// Inspect is a Check that records nothing: see space.Inspect.
func (s *Store) Inspect(ctx context.Context) (warnings []string, err error) {
	return s.space.Inspect(ctx, s.homes())
}

func (s *core) homes() []*space.Home {
	var all []*space.Home
	for _, ns := range s.Namespaces() {
		all = append(all, ns.Home)
	}
	return all
}

// The errors of jobs. Every other error is in one of the classes of partition: ErrUnavailable,
// ErrUnknown, ErrBroken.
var (
	// ErrNoJob: there is no such job, or the queue has none.
	ErrNoJob = errors.New("no such job")
	// ErrNoQueue: the namespace is PHP's, and does not serve this queue.
	ErrNoQueue = errors.New("the namespace serves no such queue")
	// ErrForeignType: another program keeps a value of another type under a key of the queue.
	ErrForeignType = errors.New("a key of the queue holds a value of another type")
	// ErrOtherKind: only namespaces of kind queue have it.
	ErrOtherKind = errors.New("queues of PHP's do not have it")
	// ErrNotDelayed: the job is in another state, or was claimed before. Nothing was changed.
	ErrNotDelayed = errors.New("the job is not delayed, or was claimed before")
	// ErrExpiresBefore: the ttl of the job ends before the time at which it would be ready.
	// Nothing was changed.
	ErrExpiresBefore = errors.New("the job expires before that time")
	// ErrNoRepeat: a publish without messages found nothing under its keys and id.
	ErrNoRepeat = errors.New("nothing was published under the keys")
	// ErrTooManyJobs: more jobs than Policy.MaxJobs. Nothing was stored.
	ErrTooManyJobs = errors.New("too many jobs")
	// ErrTooManyQueues: a further queue beyond Policy.MaxQueues. Nothing was stored.
	ErrTooManyQueues = errors.New("too many queues")
	// ErrTooManyKeys: a further idempotency key beyond Policy.MaxKeys. Nothing was stored.
	ErrTooManyKeys = partition.ErrTooManyKeys
	// ErrClosed is ErrUnavailable: the namespace is being deleted, and takes no job.
	ErrClosed = backend.Wrap(backend.ErrUnavailable, errors.New("the namespace is being deleted"))
	// ErrBadArgument: a request outside its bounds, which is a bug of the caller. Nothing ran.
	ErrBadArgument = errors.New("bad argument")
)

// isAnswer reports whether Redis itself answered with the error: the script did not hand out
// anything.
func isAnswer(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer)
}
