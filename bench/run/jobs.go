package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/job"
)

// jobGroups are the rows of durable jobs.
var jobGroups = []group{
	{"scripts of jobs", func() []*row {
		return []*row{
			{Key: "jobs", Measure: "Redis CPU µs of publishing a job ÷ producing an entry", Goal: 1.8, AtMost: true,
				Note: "job.Store.Run and partition.Store.Produce, one script call a pipeline, 4,000 calls of each in turn, twice, to 100 queues or " +
					"partitions that have some already; CPU of INFO; no append-only file"},
			{Key: "jobs", Measure: "the same, 128 a call", Goal: 2.5, AtMost: true, Note: "1,000 calls of each in turn, twice"},
		}
	}, jobScripts},
	{"jobs over HTTP", func() []*row {
		return []*row{
			{Key: "jobs", Measure: "jobs/s published, claimed and acked, one a request ÷ raw scripts", Goal: 0.7,
				Note: "native API, 512 connections, 100 queues: all are published, then all claimed, each acked by a request of its own; raw: " +
					"job.Store.Run in one process, 3 workers × 16 publishes, claims or acks a call; both with AOF everysec"},
			{Key: "jobs", Measure: "the same, 128 a request ÷ 128 a publish or claim", Goal: 0.7, Note: "64 connections, NDJSON; raw: 4 publishes or claims a call"},
		}
	}, jobsOverHTTP},
	{"jobs beside lmstfy", func() []*row {
		return []*row{
			{Key: "jobs", Measure: "PUT of one job/s ÷ lmstfy", Goal: 2.5,
				Note: "serve --lmstfy and lmstfy 1.0.16 (-lmstfy; make bench builds it), the same requests by the same loader, AOF everysec; 512 " +
					"connections, 100 queues; lmstfy checks no token (-sv), logs no access; all that was put is then got"},
			{Key: "jobs", Measure: "GET of one", Goal: 2.5},
			{Key: "jobs", Measure: "jobs/s by PUT bulk of 64", Goal: 5, Note: "64 connections"},
			{Key: "jobs", Measure: "jobs/s by GET count=64", Goal: 5},
		}
	}, jobsBesideLmstfy},
	{"bytes of jobs", func() []*row {
		return []*row{
			{Key: "jobs", Measure: "bytes of Redis a ready job", Unit: "B", Goal: 320, AtMost: true,
				Note: "used_memory; 200,000 jobs of 200 bytes in 100 queues"},
			{Key: "jobs", Measure: "bytes of Redis a delayed job", Unit: "B", Goal: 470, AtMost: true},
		}
	}, jobBytes},
	{"idle polls", func() []*row {
		return []*row{
			{Key: "jobs", Measure: "server RSS growth an idle poll, 8,000 polls", Unit: "kB", Goal: 25, AtMost: true,
				Note: "claims with wait=10m, each on a connection and a queue of its own; VmRSS before the connections and once all wait, by 8,000; 1 kB is 1,000 bytes"},
			{Key: "jobs", Measure: "Redis commands/s while they wait, less those without polls", Unit: "/s", Goal: pollCommands, AtMost: true,
				Note: "3 s each, those inside scripts included; ours: with polls, other: without"},
			{Key: "jobs", Measure: "wake-up p99, publish answered to job received", Unit: "ms", Goal: 5, AtMost: true,
				Note: "8,000 polls wait; 200 publishes a second, each to another queue; the poll's connection acks and asks again"},
		}
	}, jobPolls},
	{"a million delayed jobs", func() []*row {
		return []*row{
			{Key: "jobs", Measure: "Redis memory of 10 million delayed jobs, on paper", Unit: "GB", Goal: 4.7, AtMost: true,
				Note: "ten times that of 1,000,000 of 200 bytes in 1,000 queues"},
			{Key: "jobs", Measure: "longest call of promote, when 100,000 of them are due at once", Unit: "ms", Goal: 5, AtMost: true,
				Note: "by Redis's SLOWLOG; a job.Promoter in the command's process"},
		}
	}, delayedJobs},
}

// jobSizes are how much a round of the rows of jobs has of each.
type jobSizes struct {
	calls, bulkCalls int // of one job, and of 128
	stored           int // jobs whose bytes count
	polls            int
	watched          time.Duration // idle polls
	delayed, due     int           // delayed jobs, and those of them that come due at once
}

// tableJobs are the sizes that the measures and notes name; tests have smaller ones.
var tableJobs = jobSizes{calls: 4_000, bulkCalls: 1_000, stored: 200_000, polls: 8_000, watched: 3 * time.Second, delayed: 1_000_000, due: 100_000}

const (
	jobNamespace = "bench"
	jobsFile     = "namespaces: {default: {}, " + jobNamespace + ": {kind: queue}}\n"
	bulk         = 128
)

// jobRig is a setup with queues.
type jobRig struct {
	*setup
	jobs  *job.Store
	ns    *job.Namespace
	close func()
}

// openJobs reads and writes as a server with a namespace of queues would.
func openJobs(ctx context.Context, url string, durable bool, rules ...job.Rule) (store *job.Store, closed func(), err error) {
	b, err := backend.Open(backend.Config{URL: url}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		return nil, nil, err
	}
	closed = func() { _ = b.Close() } // what it did was answered
	policy := job.DefaultPolicy()
	policy.Rules = rules
	store, err = job.Open(job.Config{Prefix: "sw", Volatile: !durable, Namespaces: map[string]job.Policy{jobNamespace: policy}},
		b, prometheus.NewRegistry(), zap.NewNop())
	if err == nil {
		_, err = store.Check(ctx)
	}
	if err != nil {
		closed()
		return nil, nil, err
	}
	return store, closed, nil
}

// jobRig is a new Redis, and a store of jobs on it in this process.
func (m *measurement) jobRig(ctx context.Context, durable bool) (*jobRig, error) {
	r, err := newSetup(ctx, m.settings, durable)
	if err != nil {
		return nil, err
	}
	store, closed, err := openJobs(ctx, r.redisURL, durable)
	if err != nil {
		r.close()
		return nil, err
	}
	j := &jobRig{setup: r, jobs: store, ns: store.Namespace(jobNamespace), close: func() { closed(); r.close() }}
	if err := r.neverRewrite(ctx); err != nil {
		j.close()
		return nil, err
	}
	return j, nil
}

// neverRewrite lets the append-only file grow: else the side that writes more in a segment
// would meet a rewrite there, and the other not.
func (r *setup) neverRewrite(ctx context.Context) error {
	return r.client.ConfigSet(ctx, "auto-aof-rewrite-percentage", "0").Err()
}

// servedJobs is a new Redis that keeps jobs, and a new server on it.
func (m *measurement) servedJobs(ctx context.Context, flags ...string) (*jobRig, error) {
	return m.servedQueues(ctx, jobsFile, flags...)
}

// servedQueues is servedJobs with namespaces of another file.
func (m *measurement) servedQueues(ctx context.Context, text string, flags ...string) (*jobRig, error) {
	r, err := m.jobRig(ctx, true)
	if err != nil {
		return nil, err
	}
	err = os.WriteFile(r.queuesFile(), []byte(text), 0o600)
	if err == nil {
		err = r.serve(ctx, append([]string{"--config=" + r.queuesFile(), "--role=ingest"}, flags...)...)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func (r *jobRig) queuesFile() string { return filepath.Join(r.dir, "queues.yaml") }

// law holds the account, and a count of what is stored, against what happened to the jobs.
func (m *measurement) law(ctx context.Context, r *jobRig, want job.Ledger) (residual int64, err error) {
	l, err := r.jobs.Ledger(ctx, r.ns)
	if err != nil {
		return 0, err
	}
	residual, err = r.jobs.Audit(ctx, r.ns)
	sum := l.Acked + l.Expired + l.Deleted + l.Lost + l.Dead + l.Ready + l.Delayed + l.Leased
	if err == nil && (residual != 0 || l != want || l.Published != sum) {
		m.fault("residual %d; the law wants %+v; ledger %+v, whose parts sum to %d", residual, want, l, sum)
	}
	return residual, err
}

// What the law wants of n jobs: nobody has claimed them, they are leased, they are done.
func ready(n int64) job.Ledger  { return job.Ledger{Published: n, Ready: n} }
func leased(n int64) job.Ledger { return job.Ledger{Published: n, Leased: n} }
func acked(n int64) job.Ledger  { return job.Ledger{Published: n, Acked: n} }

// queueNames are the queues of a row.
func (m *measurement) queueNames() []string { return benchNames(m.partitions) }

// messages are n jobs of size bytes.
func messages(n, size int) []job.Message {
	all := make([]job.Message, n)
	padding := bench.Padding(size)
	for i := range all {
		all[i].Payload = bench.AppendPayload(nil, int64(i), padding)
	}
	return all
}

// promoter makes what is due ready, as each process does.
func (r *jobRig) promoter() *job.Promoter { return job.NewPromoter(r.jobs) }

// awaitReady waits until so many jobs are ready.
func (r *jobRig) awaitReady(ctx context.Context, n int64, every time.Duration) (err error) {
	wait, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	var l job.Ledger
	for l.Ready < n && err == nil && wait.Err() == nil {
		rig.Sleep(wait, every)
		l, err = r.jobs.Ledger(ctx, r.ns)
	}
	if err == nil && l.Ready < n {
		err = fmt.Errorf("%d of %d due jobs are ready after %v", l.Ready, n, drainTimeout)
	}
	return err
}

// publishJobs runs publishes as one call.
func publishJobs(ctx context.Context, s *job.Store, l *job.Lane, all ...*job.Publish) error {
	s.Run(ctx, l, &job.Batch{Publishes: all})
	var errs []error
	for _, p := range all {
		errs = append(errs, p.Err)
	}
	return errors.Join(errs...)
}
