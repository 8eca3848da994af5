package job_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/job/jobtest"
)

func TestStoreEmbedded(t *testing.T) {
	t.Parallel()
	runSuite(t, target{URL: "embedded:"})
}

func TestStoreOnOneRedis(t *testing.T) {
	t.Parallel()
	runSuite(t, target{URL: "redis://" + redistest.Shared(t)})
}

// jobtest.Store stands for a store in other packages' tests, so it passes what it has.
func TestTheStoreOfJobtest(t *testing.T) {
	t.Parallel()
	runSuite(t, target{inMemory: true}, "a claim is bounded in bytes", "a delayed job is rescheduled",
		"a caller's id is stored once", "a publish with a key is stored once", "a further queue is rejected", "replies live for a while",
		"a forecast counts what comes due", "an end has a follow-up", "a prepared job waits for its publisher", "a silent publisher is asked", "bad requests run nothing",
		"a policy changes while jobs wait", "a trace tells what happened to a job", "the oldest traces make room",
		"a paused queue gives no job", "leases are limited", "jobs are listed in pages", "a job says how far it got", "acked jobs are kept",
		"a publish is unique for a while")
}

func TestStoreOnSentinel(t *testing.T) {
	t.Parallel()
	runSuite(t, target{URL: redistest.StartSentinel(t).URL(), Replicas: 1, Part: true}, "a silent publisher is asked")
}

func TestStoreOnCluster(t *testing.T) {
	t.Parallel()
	runSuite(t, target{URL: redistest.StartCluster(t).URL()}, "a silent publisher is asked")
}

// most is how long anything a case waits for may take.
const most = 20 * time.Second

var prefixes atomic.Int64

// A target is a Redis for the suite, which a store of jobs passes on every kind of it.
type target struct {
	URL      string // as backend.Config takes it
	Replicas int    // that must confirm a publish
	inMemory bool   // it is a jobtest.Store
	Part     bool   // only the way to the server is another: -short tries a quarter of the cases
}

// store is what cases ask of a job.Store.
type store interface {
	job.Reads
	job.Edits
	job.Ends
	job.Lists
	job.Traces
	Namespace(name string) *job.Namespace
	NewLane() *job.Lane
	Run(ctx context.Context, l *job.Lane, b *job.Batch)
	ActOnDead(ctx context.Context, a *job.DeadAct) (done int, err error)
	Purge(ctx context.Context, ns *job.Namespace, queue string, all bool) (deleted int64, err error)
	Now() (int64, bool)
	Queues(ctx context.Context, ns *job.Namespace) ([]string, error)
	Ledger(ctx context.Context, ns *job.Namespace) (job.Ledger, error)
	Audit(ctx context.Context, ns *job.Namespace) (int64, error)
}

// inMemory has nil for what jobtest does not have.
type inMemory struct {
	*jobtest.Store
	missing
}

type missing struct{ store }

// runSuite runs every case but those that are left out, each with a prefix of its own. What takes the promoter's second twice
// is asked of one server alone.
func runSuite(t *testing.T, on target, leftOut ...string) {
	t.Helper()
	cases := map[string]func(*bench){
		"a job is published, claimed and acked":             aJobIsPublishedClaimedAndAcked,
		"a job says why its attempts failed":                aJobSaysWhyItsAttemptsFailed,
		"a job says how far it got":                         aJobSaysHowFarItGot,
		"a paused queue gives no job":                       aPausedQueueGivesNoJob,
		"jobs are listed in pages":                          jobsAreListedInPages,
		"leases are limited":                                leasesAreLimited,
		"jobs are in order":                                 jobsAreInOrder,
		"a batch runs all verbs at once":                    aBatchRunsAllVerbsAtOnce,
		"alike requests are shared out":                     alikeRequestsAreSharedOut,
		"many requests take several calls":                  manyRequestsTakeSeveralCalls,
		"a claim prefers the first queue":                   aClaimPrefersTheFirstQueue,
		"a claim is bounded in bytes":                       aClaimIsBoundedInBytes,
		"a delayed job waits":                               aDelayedJobWaits,
		"a delayed job is rescheduled":                      aDelayedJobIsRescheduled,
		"a lease lapses and the job comes again":            aLeaseLapses,
		"the last try ends as a dead letter":                theLastTryEndsAsADeadLetter,
		"dead letters are dropped where the policy says so": deadLettersAreDropped,
		"settles need the attempt":                          settlesNeedTheAttempt,
		"a requeued job is at the head, uncounted":          aRequeuedJobIsAtTheHead,
		"a repeated requeue takes the job from nobody":      aRepeatedRequeueTakesNothing,
		"a touched lease is longer":                         aTouchedLeaseIsLonger,
		"a job without a claim is deleted":                  aJobWithoutAClaimIsDeleted,
		"a caller's id is stored once":                      aCallersIDIsStoredOnce,
		"a publish with a key is stored once":               aPublishWithAKeyIsStoredOnce,
		"a full namespace rejects what does not fit":        aFullNamespaceRejects,
		"a further queue is rejected":                       aFurtherQueueIsRejected,
		"expired jobs are not handed out":                   expiredJobsAreNotHandedOut,
		"replies live for a while":                          repliesLiveForAWhile,
		"a spread queue is everywhere":                      aSpreadQueueIsEverywhere,
		"reads describe jobs":                               readsDescribeJobs,
		"counts describe a queue":                           countsDescribeAQueue,
		"a forecast counts what comes due":                  aForecastCountsWhatComesDue,
		"a purge deletes jobs":                              aPurgeDeletesJobs,
		"dead letters are listed, respawned, deleted":       deadLettersAreListed,
		"dead letters are chosen":                           deadLettersAreChosen,
		"an end has a follow-up":                            anEndHasAFollowUp,
		"a prepared job waits for its publisher":            aPreparedJobWaitsForItsPublisher,
		"a silent publisher is asked":                       aSilentPublisherIsAsked,
		"a deferred job is leased":                          aDeferredJobIsLeased,
		"a trace tells what happened to a job":              aTraceTellsWhatHappenedToAJob,
		"the oldest traces make room":                       theOldestTracesMakeRoom,
		"bad requests run nothing":                          badRequestsRunNothing,
		"acked jobs are kept":                               ackedJobsAreKept,
		"a publish is unique for a while":                   aPublishIsUniqueForAWhile,
		"a policy changes while jobs wait":                  aPolicyChangesWhileJobsWait,
	}
	for _, name := range leftOut {
		if cases[name] == nil {
			t.Errorf("there is no case %q", name)
		}
		delete(cases, name)
	}
	for i, name := range slices.Sorted(maps.Keys(cases)) {
		if on.Part && testing.Short() && i%4 > 0 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cases[name](&bench{T: t, target: on})
		})
	}
}

// bench is one case.
type bench struct {
	*testing.T
	target   target
	store    store
	real     *job.Store // what cases ask that jobtest has not; nil in memory
	ns       *job.Namespace
	lane     *job.Lane
	promoter *job.Promoter
}

// open makes the store of the case. edit changes the policy.
func (b *bench) open(edit func(*job.Policy)) {
	b.Helper()
	p := job.DefaultPolicy()
	if edit != nil {
		edit(&p)
	}
	if b.target.inMemory {
		b.store = inMemory{Store: jobtest.New(b, map[string]job.Policy{"mail": p})}
		b.ns, b.lane = b.store.Namespace("mail"), b.store.NewLane()
		return
	}
	back := backendtest.Open(b, backend.Config{URL: b.target.URL, Replicas: b.target.Replicas})
	var err error
	b.real, err = job.Open(job.Config{
		Prefix: fmt.Sprint("jt", prefixes.Add(1)), Volatile: true, Namespaces: map[string]job.Policy{"mail": p},
	}, back, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	b.until("the store can be used", func() bool {
		_, err := b.real.Check(b.Context())
		return err == nil
	})
	b.store = b.real
	b.ns, b.lane = b.store.Namespace("mail"), b.store.NewLane()
}

// promote runs a promoter until the case ends.
func (b *bench) promote() {
	b.Helper()
	if b.target.inMemory {
		return // time alone promotes
	}
	b.promoter = job.NewPromoter(b.real)
	if err := b.promoter.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = b.promoter.Stop(context.Background()) })
}

// until waits for a condition.
func (b *bench) until(what string, ok func() bool) {
	b.Helper()
	redistest.Until(b, most, what, ok)
}

func (b *bench) run(batch job.Batch) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), most)
	defer cancel()
	b.store.Run(ctx, b.lane, &batch)
}

// message is a publish of payloads with the usual settings.
func (b *bench) message(queue string, payloads ...string) *job.Publish {
	p := &job.Publish{Namespace: b.ns, Queue: queue, Shard: b.ns.Shards(queue)[0], Tries: 3, TTL: time.Hour}
	for _, text := range payloads {
		p.Messages = append(p.Messages, job.Message{Payload: []byte(text)})
	}
	return p
}

// publish stores payloads and returns their ids.
func (b *bench) publish(queue string, payloads ...string) []string {
	b.Helper()
	return b.store1(b.message(queue, payloads...))
}

// store1 runs a publish that succeeds.
func (b *bench) store1(p *job.Publish) (ids []string) {
	b.Helper()
	b.run(job.Batch{Publishes: []*job.Publish{p}})
	b.is("publish", p.Err, nil)
	for i := range p.Count {
		ids = append(ids, b.ns.ID(p.Shard, p.Queue, p.First+int64(i), p.CallerID))
	}
	return ids
}

func (b *bench) claim(count int, queues ...string) []job.Job {
	b.Helper()
	return b.claimFor(time.Minute, count, queues...)
}

func (b *bench) claimFor(ttr time.Duration, count int, queues ...string) []job.Job {
	b.Helper()
	c := &job.Claim{Namespace: b.ns, Shard: b.ns.Shards(queues[0])[0], Queues: queues, TTR: ttr, Count: count}
	b.run(job.Batch{Claims: []*job.Claim{c}})
	b.is("claim", c.Err, nil)
	return c.Jobs
}

// claimSome claims until there are jobs.
func (b *bench) claimSome(count int, queues ...string) (jobs []job.Job) {
	b.Helper()
	b.until("there are jobs to claim", func() bool {
		jobs = b.claim(count, queues...)
		return len(jobs) > 0
	})
	return jobs
}

func (b *bench) ack(j job.Job) *job.Ack {
	b.Helper()
	a := &job.Ack{Namespace: b.ns, Queue: j.Queue, Ref: j.Ref}
	b.run(job.Batch{Acks: []*job.Ack{a}})
	b.is("ack", a.Err, nil)
	return a
}

func (b *bench) settle(j job.Job, verb job.Verb, after time.Duration) job.State {
	b.Helper()
	t := &job.Settle{Namespace: b.ns, Queue: j.Queue, Ref: j.Ref, Attempt: j.Attempt, Verb: verb, After: after}
	b.run(job.Batch{Settles: []*job.Settle{t}})
	b.is("settle", t.Err, nil)
	return t.State
}

func payloads(jobs []job.Job) (list []string) {
	for _, j := range jobs {
		list = append(list, string(j.Payload))
	}
	return list
}

// ledger checks the account, and that it adds up with what is stored.
func (b *bench) ledger(want job.Ledger) {
	b.Helper()
	got, err := b.store.Ledger(b.Context(), b.ns)
	b.is("ledger", err, nil)
	b.same("ledger", fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want))
	residual, err := b.store.Audit(b.Context(), b.ns)
	b.is("audit", err, nil)
	b.same("audit", residual, int64(0))
}

func (b *bench) is(what string, got, want error) {
	b.Helper()
	if !errors.Is(got, want) {
		b.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func (b *bench) same(what string, got, want any) {
	b.Helper()
	if !reflect.DeepEqual(got, want) {
		b.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func readsDescribeJobs(b *bench) {
	b.open(nil)
	_, err := b.store.Peek(b.Context(), b.ns, "q")
	b.is("peek of nothing", err, job.ErrNoJob)
	ids := b.publish("q", "x", "y")
	j, err := b.store.Peek(b.Context(), b.ns, "q")
	b.same("peek", []any{string(j.Payload), j.ID, j.Attempt, err}, []any{"x", ids[0], 0, nil})
	get := func(id string) (job.Job, job.State, error) {
		ref, _ := b.ns.ParseID("q", id)
		return b.store.Get(b.Context(), b.ns, "q", ref)
	}
	j, state, err := get(ids[1])
	b.same("ready", []any{string(j.Payload), j.ID, state, err}, []any{"y", ids[1], job.Ready, nil})
	held := b.claim(1, "q")[0]
	j, state, err = get(ids[0])
	b.same("leased", []any{j.Attempt, state, err, j.At > j.Now}, []any{1, job.Leased, nil, true})
	b.settle(held, job.Nack, time.Hour)
	j, state, err = get(ids[0])
	b.same("delayed", []any{j.Attempt, state, err, j.At > j.Now}, []any{1, job.Delayed, nil, true})
	b.settle(b.claim(1, "q")[0], job.Bury, 0)
	j, state, err = get(ids[1])
	b.same("dead", []any{state, err, j.At > 0 && j.At <= j.Now}, []any{job.Dead, nil, true})
	ref, _ := b.ns.ParseID("q", ids[1])
	a := b.ack(job.Job{Queue: "q", Ref: ref})
	b.same("an acked dead letter", []bool{a.Acked, a.Deleted}, []bool{true, false})
	b.ledger(job.Ledger{Published: 2, Acked: 1, Delayed: 1, Died: 1})
	_, _, err = get(ids[1])
	b.is("gone", err, job.ErrNoJob)
}

func countsDescribeAQueue(b *bench) {
	b.open(nil)
	first := b.publish("q", "1", "2", "3", "4")
	b.publish("other", "1")
	late := b.message("q", "late")
	late.Delay = time.Hour
	b.store1(late)
	jobs := b.claim(2, "q")
	b.settle(jobs[0], job.Bury, 0)
	c, err := b.store.Counts(b.Context(), b.ns, "q")
	b.is("counts", err, nil)
	if ref, _ := b.ns.ParseID("q", first[2]); c.OldestReady != ref.Seq/1000 {
		b.Errorf("the oldest is of %d, want %d", c.OldestReady, ref.Seq/1000)
	}
	c.OldestReady = 0
	b.same("counts", c, job.Counts{Ready: 2, Delayed: 1, Leased: 1, Dead: 1, Pending: 2})
	c, err = b.store.Counts(b.Context(), b.ns, "nobody")
	b.same("of nothing", []any{c, err}, []any{job.Counts{}, nil})
	queues, err := b.store.Queues(b.Context(), b.ns)
	b.same("queues", []any{queues, err}, []any{[]string{"other", "q"}, nil})
}

func aForecastCountsWhatComesDue(b *bench) {
	b.open(nil)
	for i, delay := range []time.Duration{30 * time.Second, 90 * time.Second, 100 * time.Second, 10 * time.Minute} {
		p := b.message([]string{"q", "other"}[i%2], "x")
		p.Delay = delay
		b.store1(p)
	}
	prepared := b.message("q", "x")
	prepared.Prepare = &job.Prepare{After: time.Minute}
	b.store1(prepared)
	all, err := b.store.Forecast(b.Context(), b.ns, "", time.Minute, 3)
	b.same("all", []any{all, err}, []any{[]int64{1, 2, 0}, nil})
	one, err := b.store.Forecast(b.Context(), b.ns, "q", time.Minute, 3)
	b.same("one queue", []any{one, err}, []any{[]int64{1, 1, 0}, nil})
	_, err = b.store.Forecast(b.Context(), b.ns, "q", 0, 3)
	b.is("no step", err, job.ErrBadArgument)
}

func aPurgeDeletesJobs(b *bench) {
	b.open(nil)
	var texts []string
	for i := range 700 {
		texts = append(texts, fmt.Sprint(i))
	}
	b.publish("q", texts...)
	b.settle(b.claim(1, "q")[0], job.Bury, 0)
	b.claim(1, "q")
	late := b.message("q", "late")
	late.Delay = time.Hour
	b.store1(late)
	n, err := b.store.Purge(b.Context(), b.ns, "q", false)
	b.same("ready", []any{n, err}, []any{int64(698), nil})
	b.ledger(job.Ledger{Published: 701, Deleted: 698, Dead: 1, Died: 1, Delayed: 1, Leased: 1})
	n, err = b.store.Purge(b.Context(), b.ns, "q", true)
	b.same("all", []any{n, err}, []any{int64(3), nil})
	b.ledger(job.Ledger{Published: 701, Deleted: 701, Died: 1})
}

func deadLettersAreListed(b *bench) {
	b.open(func(p *job.Policy) { p.Shards, p.Spread = 3, map[string]int{"q": 2} })
	want := []string{}
	for _, shard := range b.ns.Shards("q") {
		p := b.message("q", "a", "b", "c")
		p.Shard = shard
		b.store1(p)
		c := &job.Claim{Namespace: b.ns, Shard: shard, Queues: []string{"q"}, TTR: time.Minute, Count: 3}
		b.run(job.Batch{Claims: []*job.Claim{c}})
		for _, j := range c.Jobs {
			b.settle(j, job.Bury, 0)
			want = append(want, j.ID)
		}
	}
	var got []string
	for len(got) < 6 {
		list, total, err := b.store.Dead(b.Context(), b.ns, "q", len(got), 4)
		b.same("page", []any{total, err, len(list) > 0}, []any{int64(6), nil, true})
		for _, j := range list {
			got = append(got, j.ID)
		}
		if len(list) == 0 {
			break
		}
	}
	b.same("letters", got, want)
	n, err := b.store.ActOnDead(b.Context(), &job.DeadAct{Namespace: b.ns, Queue: "q", Verb: job.RespawnDead, Limit: 2, TTL: time.Hour})
	b.same("respawned", []any{n, err}, []any{2, nil})
	n, err = b.store.ActOnDead(b.Context(), &job.DeadAct{Namespace: b.ns, Queue: "q", Verb: job.DeleteDead, Limit: 100})
	b.same("deleted", []any{n, err}, []any{4, nil})
	b.ledger(job.Ledger{Published: 6, Deleted: 4, Ready: 2, Died: 6, Respawned: 2})
	j := b.claim(1, "q")[0]
	b.same("one try more", []any{j.Tries, j.Attempt, b.settle(j, job.Nack, 0)}, []any{4, 4, job.Dead})
}

func deadLettersAreChosen(b *bench) {
	b.open(func(p *job.Policy) { p.Shards, p.Spread = 3, map[string]int{"q": 2} })
	var refs []job.Ref
	for _, shard := range b.ns.Shards("q") {
		p := b.message("q", "a", "b", "c", "d")
		p.Shard, p.Tries = shard, 1
		b.store1(p)
		c := &job.Claim{Namespace: b.ns, Shard: shard, Queues: []string{"q"}, TTR: time.Minute, Count: 4}
		b.run(job.Batch{Claims: []*job.Claim{c}})
		for i, j := range c.Jobs {
			x := &job.Settle{Namespace: b.ns, Queue: "q", Ref: j.Ref, Attempt: 1, Verb: job.Nack, Error: []string{"read timeout", "refused"}[i%2]}
			if i == 3 {
				x.Verb = job.Bury
			}
			b.run(job.Batch{Settles: []*job.Settle{x}})
			refs = append(refs, j.Ref)
		}
	}
	act := func(what string, a job.DeadAct, want int) {
		a.Namespace, a.Queue = b.ns, "q"
		n, err := b.store.ActOnDead(b.Context(), &a)
		b.same(what, []any{n, err}, []any{want, nil})
	}
	act("count", job.DeadAct{Verb: job.CountDead, Limit: 100}, 8)
	act("count some", job.DeadAct{Verb: job.CountDead, Limit: 3}, 3)
	act("count a reason", job.DeadAct{Verb: job.CountDead, Limit: 100, Reason: job.Buried}, 2)
	act("count an error", job.DeadAct{Verb: job.CountDead, Limit: 100, Error: "timeout"}, 4)
	act("count none", job.DeadAct{Verb: job.CountDead, Limit: 100, Age: time.Hour}, 0)
	act("respawn an error", job.DeadAct{Verb: job.RespawnDead, Limit: 3, Error: "refused", Reason: job.Nacked}, 2)
	act("delete the buried", job.DeadAct{Verb: job.DeleteDead, Limit: 100, Reason: job.Buried}, 2)
	named := job.DeadAct{Namespace: b.ns, Queue: "q", Verb: job.DeleteDead, Named: []job.Ref{refs[0], refs[4], refs[1], refs[0],
		{Shard: refs[4].Shard, Seq: refs[4].Seq, CallerID: "other"}, {Seq: 7}}}
	n, err := b.store.ActOnDead(b.Context(), &named)
	b.same("delete some", []any{n, err, named.Did}, []any{2, nil, []bool{true, true, false, false, false, false}})
	b.ledger(job.Ledger{Published: 8, Deleted: 4, Ready: 2, Dead: 2, Died: 8, Respawned: 2})
}

// Every goroutine of a Store ends with Close, except the client's own probe of a
// server that is down, which ends within a second.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}
