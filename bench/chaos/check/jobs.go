package check

import (
	"cmp"
	"fmt"
	"time"
)

// Jobs is what is known of the queues of a run.
type Jobs struct {
	Published  []Published
	Deliveries []Delivery
	Settled    []Settled
	Polls      []Poll
	Samples    []JobSample // of one shard each, atomic
	Left       int64       // jobs that are ready, delayed or leased in the end
	Dead       []uint64    // uids of the dead in the end
	Floor      JobsFloor
	Operated   string           // the queue on whose jobs operators act
	Limits     map[string]int64 // most leases of a queue, or of each of its groups
	Paused     []Pause          // queues, from when the pause was confirmed until somebody asks for the end
}

// String is the counts, for people.
func (j *Jobs) String() string {
	outcomes, done := map[Outcome]int{}, map[string]int{}
	for _, p := range j.Published {
		outcomes[p.Outcome]++
	}
	for _, s := range j.Settled {
		done[cmp.Or(s.State, "unknown")]++
	}
	met := map[uint64]bool{}
	for _, d := range j.Deliveries {
		met[d.Data.UID] = true
	}
	return fmt.Sprintf("%d jobs acknowledged, %d unknown, %d rejected; %d deliveries of %d jobs; settled: %v; %d dead, %d left",
		outcomes[Acked], outcomes[Unknown], outcomes[Rejected], len(j.Deliveries), len(met), done, len(j.Dead), j.Left)
}

// Published is a job as its publisher knows it.
type Published struct {
	UID        uint64 // unique in the run
	Queue      string
	Tries      int
	Delay, TTL time.Duration // 0: none
	Start, End time.Time     // of its request, repeats under the same key included
	Outcome    Outcome
	Reason     string // of a rejection
}

// Delivery is a job as a worker got it.
type Delivery struct {
	ID, Queue      string
	Attempt, Tries int
	Asked, Got     time.Time // of its claim
	Claimed        time.Time // on the store's clock; to the ms
	Data           Payload
}

// Settled is what a worker said of a job.
type Settled struct {
	UID     uint64
	Attempt int
	Do      string // ack, nack, bury, touch or requeue
	End     time.Time
	State   string // what the answer says; empty: nobody knows what became of it
}

// Poll is a claim that waited, and had an answer or was given up by its client.
type Poll struct {
	Queues     []string
	Start, End time.Time
}

// JobSample is one shard of the queues at one moment.
type JobSample struct {
	At              time.Time
	Shard           int
	Ledger          map[string]int64
	Delayed, Leased int64
	Overdue         time.Duration // of the first delayed job or lease, by the store's clock
	Queues          []QueueDepth
}

// QueueDepth is a queue of a shard in a JobSample.
type QueueDepth struct {
	Queue      string
	Jobs       int64
	References int64 // of ready jobs, tombstones among them
	Tombstones int64
	Dead       int64
	Head       string // the first reference
	Leases     int64
}

// JobsFloor is what a run must reach not to be void.
type JobsFloor struct {
	Published, Acked, Redelivered, Samples int
}

// jobRun is a run with what several checks of queues look up.
type jobRun struct {
	*run
	*Jobs
	published map[uint64]*Published
	stored    int                    // jobs whose publish was acknowledged
	doubtful  int                    // those of unknown outcome
	ackSent   map[uint64]bool        // a worker sent an ack, whatever came of it
	acked     map[uint64]time.Time   // when the first confirmed ack was known
	met       map[uint64][]*Delivery // by uid
}

// jobs makes the checks of queues: J1 to J8. Of a store that forgets, the law alone.
func (r *run) jobs() {
	if r.Jobs == nil {
		return
	}
	j := &jobRun{
		run: r, Jobs: r.Jobs, published: map[uint64]*Published{}, ackSent: map[uint64]bool{},
		acked: map[uint64]time.Time{}, met: map[uint64][]*Delivery{},
	}
	for i := range j.Published {
		p := &j.Published[i]
		j.published[p.UID] = p
		switch p.Outcome {
		case Acked:
			j.stored++
		case Unknown:
			j.doubtful++
		}
	}
	for i := range j.Settled {
		s := &j.Settled[i]
		if s.Do != "ack" {
			continue
		}
		j.ackSent[s.UID] = true
		if at, known := j.acked[s.UID]; s.State == "acked" && (!known || s.End.Before(at)) {
			j.acked[s.UID] = s.End
		}
	}
	for i := range j.Deliveries {
		d := &j.Deliveries[i]
		j.met[d.Data.UID] = append(j.met[d.Data.UID], d)
	}
	j.law()
	if j.Policy.Forgets {
		return // what became of each job says nothing then
	}
	j.outer()
	j.identity()
	j.afterAck()
	j.deliveries()
	j.missing()
	j.rising()
	j.waiting()
	j.overdue()
	j.limits()
	j.pauses()
	j.void()
}

// law is J1: the ledger of every shard against its keys, at one moment.
func (j *jobRun) law() {
	var ledgers, states, dead, lost tally
	for _, s := range j.Samples {
		l := s.Ledger
		live := l["published"] - l["acked"] - l["expired"] - l["deleted"] - l["lost"]
		var jobs, ready, dying int64
		for _, q := range s.Queues {
			jobs += q.Jobs
			ready += q.References - q.Tombstones
			dying += q.Dead
		}
		if live != jobs {
			ledgers.add("shard %d: the ledger says %d jobs, the queues hold %d", s.Shard, live, jobs)
		}
		if sum := ready + s.Delayed + s.Leased + dying; sum != jobs {
			states.add("shard %d: %d jobs, but ready %d + delayed %d + leased %d + dead %d", s.Shard, jobs, ready, s.Delayed, s.Leased, dying)
		}
		if l["dead"] != dying {
			dead.add("shard %d: the ledger says %d dead, the queues hold %d", s.Shard, l["dead"], dying)
		}
		if l["lost"] != 0 {
			lost.add("shard %d: %d, and nobody deleted keys", s.Shard, l["lost"])
		}
	}
	j.failAll("J1", ledgers, "samples of a shard break published = acked + expired + deleted + lost + jobs")
	j.failAll("J1", states, "samples have jobs in no state, or in two")
	j.failAll("J1", dead, "samples break the count of the dead")
	j.failAll("J1", lost, "samples count lost jobs")
}

// final sums a field of the ledgers over the last sample of each shard.
func (j *jobRun) final(field string) (n int64) {
	last := map[int]*JobSample{}
	for i := range j.Samples {
		s := &j.Samples[i]
		if was := last[s.Shard]; was == nil || was.At.Before(s.At) {
			last[s.Shard] = s
		}
	}
	for _, s := range last {
		n += s.Ledger[field]
	}
	return n
}

// outer is J2: the ledger against what clients were told.
func (j *jobRun) outer() {
	published := j.final("published")
	if published < int64(j.stored) || published > int64(j.stored+j.doubtful) {
		j.fail("J2", "published %d, but %d were acknowledged and %d are unknown", published, j.stored, j.doubtful)
	}
	if acked := j.final("acked"); acked < int64(len(j.acked)) || acked > int64(len(j.ackSent)) {
		j.fail("J2", "acked %d, but %d acks were confirmed and %d jobs had one", acked, len(j.acked), len(j.ackSent))
	}
	withTTL := 0
	for _, p := range j.Published {
		if p.TTL > 0 && p.Outcome != Rejected {
			withTTL++
		}
	}
	if expired := j.final("expired"); expired > int64(withTTL) {
		j.fail("J2", "expired %d, but only %d have a ttl", expired, withTTL)
	}
}
