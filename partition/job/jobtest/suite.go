// Package jobtest is the suite that a store of jobs passes on every kind of Redis.
package jobtest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
)

// most is how long anything a case waits for may take.
const most = 20 * time.Second

// Target is a Redis that the suite runs on.
type Target struct {
	URL      string // as backend.Config takes it
	Replicas int    // that must confirm a publish
}

// Run runs every case, each with a prefix of its own.
func Run(t *testing.T, target Target) {
	t.Helper()
	cases := map[string]func(*bench){
		"a job is published, claimed and acked":             aJobIsPublishedClaimedAndAcked,
		"jobs are in order":                                 jobsAreInOrder,
		"a batch runs all verbs at once":                    aBatchRunsAllVerbsAtOnce,
		"alike requests are shared out":                     alikeRequestsAreSharedOut,
		"many requests take several calls":                  manyRequestsTakeSeveralCalls,
		"a claim prefers the first queue":                   aClaimPrefersTheFirstQueue,
		"a claim is bounded in bytes":                       aClaimIsBoundedInBytes,
		"a delayed job waits":                               aDelayedJobWaits,
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
		"a full namespace refuses what does not fit":        aFullNamespaceRefuses,
		"a further queue is refused":                        aFurtherQueueIsRefused,
		"expired jobs are not handed out":                   expiredJobsAreNotHandedOut,
		"replies live for a while":                          repliesLiveForAWhile,
		"a spread queue is everywhere":                      aSpreadQueueIsEverywhere,
		"reads describe jobs":                               readsDescribeJobs,
		"counts describe a queue":                           countsDescribeAQueue,
		"a forecast counts what comes due":                  aForecastCountsWhatComesDue,
		"a purge deletes jobs":                              aPurgeDeletesJobs,
		"dead letters are listed, respawned, deleted":       deadLettersAreListed,
		"bad requests run nothing":                          badRequestsRunNothing,
		"a policy changes while jobs wait":                  aPolicyChangesWhileJobsWait,
	}
	for name, f := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f(&bench{T: t, target: target})
		})
	}
}

var prefixes atomic.Int64

// bench is one case.
type bench struct {
	*testing.T
	target   Target
	store    *job.Store
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
	back, err := backend.Open(backend.Config{URL: b.target.URL, Replicas: b.target.Replicas}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = back.Close() })
	b.store, err = job.Open(job.Config{
		Prefix: fmt.Sprint("jt", prefixes.Add(1)), Volatile: true, Namespaces: map[string]job.Policy{"mail": p},
	}, back, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		b.Fatal(err)
	}
	b.until("the store can be used", func() bool {
		_, err := b.store.Check(b.Context())
		return err == nil
	})
	b.ns, b.lane = b.store.Namespace("mail"), b.store.NewLane()
}

// promote runs a promoter until the case ends.
func (b *bench) promote() {
	b.Helper()
	b.promoter = job.NewPromoter(b.store)
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
