package check

import (
	"strings"
	"testing"
	"time"
)

// goodJobs is a run of one queue: job 1 is acked at once, job 2 is nacked and acked
// at its second attempt, job 3 dies of its only try, job 4 is unknown and was not stored.
func goodJobs() *Jobs {
	sample := func(ms int, published, acked, dead, references, leased int64, head string) JobSample {
		return JobSample{
			At: at(ms), Ledger: map[string]int64{"published": published, "acked": acked, "dead": dead}, Leased: leased,
			Queues: []QueueDepth{{Queue: "mail", Jobs: published - acked, References: references, Dead: dead, Head: head}},
		}
	}
	delivery := func(uid uint64, attempt, tries, ms int) Delivery {
		return Delivery{ID: "id" + string(rune('0'+uid)), Queue: "mail", Attempt: attempt, Tries: tries, Claimed: at(ms), Data: Payload{UID: uid, Partition: "mail", Intact: true}}
	}
	return &Jobs{
		Published: []Published{
			{UID: 1, Queue: "mail", Tries: 3, Start: at(0), End: at(5), Outcome: Acked},
			{UID: 2, Queue: "mail", Tries: 2, Start: at(0), End: at(5), Outcome: Acked},
			{UID: 3, Queue: "mail", Tries: 1, Delay: 100 * time.Millisecond, TTL: time.Second, Start: at(0), End: at(5), Outcome: Acked},
			{UID: 4, Queue: "mail", Tries: 1, Start: at(0), End: at(5), Outcome: Unknown},
		},
		Deliveries: []Delivery{delivery(1, 1, 3, 10), delivery(2, 1, 2, 10), delivery(2, 2, 2, 50), delivery(3, 1, 1, 200)},
		Settled: []Settled{
			{UID: 1, Attempt: 1, Do: "ack", End: at(20), State: "acked"}, {UID: 2, Attempt: 1, Do: "nack", End: at(20), State: "ready"},
			{UID: 2, Attempt: 2, Do: "ack", End: at(60), State: "acked"}, {UID: 3, Attempt: 1, Do: "bury", End: at(210), State: "dead"},
		},
		Polls:   []Poll{{Queues: []string{"mail"}, Start: at(100), End: at(9000)}},
		Samples: []JobSample{sample(8, 3, 0, 0, 3, 0, "1"), sample(30, 3, 1, 0, 1, 1, "2"), sample(8000, 3, 2, 1, 0, 0, "")},
		Dead:    []uint64{3},
	}
}

func TestARunWhoseQueuesKeepEveryPromiseHasNoViolation(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Jobs){
		"as it is": func(*Jobs) {},
		"the unknown one is stored": func(j *Jobs) {
			j.last().Ledger["published"], j.last().Ledger["acked"] = 4, 3
			j.Settled = append(j.Settled, Settled{UID: 4, Do: "ack"})
		},
		"an ack whose answer got lost": func(j *Jobs) { j.Settled[2].State = "" },
		"a requeue, so that the attempt comes again": func(j *Jobs) {
			j.Settled = append(j.Settled, Settled{UID: 1, Do: "requeue", State: "ready"})
			j.Deliveries = append(j.Deliveries, j.Deliveries[0])
		},
		"claimed again before the ack was confirmed": func(j *Jobs) { j.Settled[2].End = at(5000) },
		"ids below those of another shard": func(j *Jobs) {
			j.Published[1].Start, j.Published[1].End = at(6), at(8)
			j.Deliveries[0].ID, j.Deliveries[1].ID, j.Deliveries[2].ID = "01KASGJ0000201ABC", "01KASGJ0000100ABC", "01KASGJ0000100ABC"
		},
		"a delayed job waits while Redis is down": func(j *Jobs) { j.Samples[1].At, j.Samples[1].Overdue = at(3100), time.Minute },
		"a job waits for a short while":           func(j *Jobs) { j.stuck(4000, 5500) },
		"a job waits while Redis is down":         func(j *Jobs) { j.stuck(300, 6500) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := good()
			h.Jobs = goodJobs()
			h.Faults = append(h.Faults, Fault{Kind: "kill", Target: "redis", From: at(290), To: at(3000)})
			change(h.Jobs)
			if got := Run(h); len(got) > 0 {
				t.Error(got)
			}
		})
	}
}

func (j *Jobs) last() *JobSample { return &j.Samples[len(j.Samples)-1] }

// stuck adds samples in which one job is ready all the time.
func (j *Jobs) stuck(from, to int) {
	for ms := from; ms <= to; ms += 100 {
		s := j.Samples[0]
		s.At, s.Ledger, s.Leased = at(ms), map[string]int64{"published": 3, "acked": 2}, 0
		s.Queues = []QueueDepth{{Queue: "mail", Jobs: 1, References: 1, Head: "7"}}
		j.Samples = append(j.Samples, s)
	}
	j.Samples = append(j.Samples, j.Samples[2])
}

func TestEachBrokenPromiseOfAQueueIsNamed(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		check  string
		change func(*Jobs)
	}{
		"the ledger misses a job":          {"J1", func(j *Jobs) { j.Samples[0].Ledger["published"]-- }},
		"a job is in no state":             {"J1", func(j *Jobs) { j.Samples[1].Leased-- }},
		"a job is in two states":           {"J1", func(j *Jobs) { j.Samples[1].Delayed++ }},
		"a dead one is not counted":        {"J1", func(j *Jobs) { j.last().Ledger["dead"] = 0 }},
		"a job is lost":                    {"J1", func(j *Jobs) { s := j.last(); s.Ledger["lost"], s.Ledger["acked"] = 1, 1 }},
		"an acknowledged job is not there": {"J2", func(j *Jobs) { j.Published = append(j.Published, Published{UID: 9, Outcome: Acked, TTL: 1}) }},
		"more are there than were sent": {"J2", func(j *Jobs) {
			j.Published[3].Outcome = Rejected
			j.Published[2].Outcome = Rejected
			j.Deliveries = j.Deliveries[:3]
		}},
		"an ack is not counted":    {"J2", func(j *Jobs) { j.Settled = append(j.Settled, Settled{UID: 3, Do: "ack", State: "acked", End: at(900)}) }},
		"an ack that nobody sent":  {"J2", func(j *Jobs) { j.Settled = j.Settled[:2]; j.Dead = []uint64{2, 3} }},
		"expired without a ttl":    {"J2", func(j *Jobs) { j.last().Ledger["expired"] = 3 }},
		"bytes change":             {"J3", func(j *Jobs) { j.Deliveries[0].Data.Intact = false }},
		"nobody published it":      {"J3", func(j *Jobs) { j.Deliveries[0].Data.UID = 77 }},
		"its publish was rejected": {"J3", func(j *Jobs) { j.Published[0].Outcome = Rejected }},
		"another queue":            {"J3", func(j *Jobs) { j.Deliveries[0].Queue = "other" }},
		"stored twice":             {"J3", func(j *Jobs) { j.Deliveries[2].ID = "id9" }},
		"after its ack":            {"J4", func(j *Jobs) { j.Settled[0].End = at(7) }},
		"one try too many": {"J5", func(j *Jobs) {
			j.Deliveries = append(j.Deliveries, Delivery{ID: "id3", Queue: "mail", Attempt: 2, Tries: 1, Claimed: at(300), Data: j.Deliveries[3].Data})
		}},
		"an attempt twice":          {"J5", func(j *Jobs) { j.Deliveries[2].Attempt = 1 }},
		"before its delay":          {"J5", func(j *Jobs) { j.Deliveries[3].Claimed = at(90) }},
		"after its ttl":             {"J5", func(j *Jobs) { j.Deliveries[3].Claimed = at(1500) }},
		"gone without a trace":      {"J6", func(j *Jobs) { j.Settled = append(j.Settled[:1], Settled{UID: 3, Do: "ack"}) }},
		"left in the end":           {"J7", func(j *Jobs) { j.Left = 1 }},
		"a poll beside a ready job": {"J7", func(j *Jobs) { j.stuck(4000, 8000) }},
		"an id below those before": {"J3", func(j *Jobs) {
			j.Published[1].Start, j.Published[1].End = at(6), at(8)
			j.Deliveries[0].ID, j.Deliveries[1].ID, j.Deliveries[2].ID = "01KASGJ0000200ABC", "01KASGJ0000100ABC", "01KASGJ0000100ABC"
		}},
		"a delayed job that nobody looks at": {"J7", func(j *Jobs) { j.last().Overdue = 2100 * time.Millisecond }},
		"a lease too many": {"J9", func(j *Jobs) {
			j.Limits, j.last().Queues[0].Leases = map[string]int64{"mail": 1}, 2
		}},
		"a claim of a paused queue": {"J10", func(j *Jobs) {
			j.Paused = []Pause{{Partition: "mail", From: at(100), To: at(9000)}}
			j.Deliveries[0].Asked, j.Deliveries[0].Got = at(101), at(110)
		}},
		"nothing happened": {"J8", func(j *Jobs) { j.Floor.Redelivered = 2 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := good()
			h.Jobs = goodJobs()
			row.change(h.Jobs)
			var all []string
			for _, v := range Run(h) {
				all = append(all, v.String())
			}
			if !strings.Contains(strings.Join(all, "\n"), row.check+": ") {
				t.Errorf("got %q, want a violation of %s", all, row.check)
			}
		})
	}
}

// goodSchedules is a schedule of every second, made at 500 ms. Its ticks at 1 s, 2 s and 4 s fired, that at 3 s was
// missed; it was triggered once, and a job of it was delivered twice.
func goodSchedules() *Schedules {
	job := func(id, cause string, tick, got int) ScheduledJob {
		return ScheduledJob{Schedule: "mail/daily", ID: id, Cause: cause, Tick: at(tick), Got: at(got)}
	}
	return &Schedules{
		Put: []PutSchedule{{Name: "mail/daily", Every: time.Second, First: at(1000)}},
		Jobs: []ScheduledJob{job("1", "due", 1000, 1010), job("2", "caught_up", 2000, 2900), job("2", "caught_up", 2000, 3900),
			job("3", "triggered", 3000, 3050), job("4", "waited", 4000, 4400)},
		Active: map[string]ScheduleAccount{"mail/daily": {Next: at(5000), Total: 4, Fired: 3, Missed: 1}},
		Paused: map[string]ScheduleAccount{"mail/daily": {Total: 4, Fired: 3, Missed: 1}},
		Fired:  3,
	}
}

func TestEachBrokenPromiseOfAScheduleIsNamed(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		check  string // "": none is broken
		change func(*Schedules)
	}{
		"nothing":            {"", func(*Schedules) {}},
		"a tick fires twice": {"S1", func(s *Schedules) { s.Jobs[2].ID = "9" }},
		"a job is missing":   {"S2", func(s *Schedules) { s.Jobs = s.Jobs[1:] }},
		"a job too many":     {"S2", func(s *Schedules) { s.Jobs[3].Cause = "due" }},
		"jobs are left":      {"S2", func(s *Schedules) { s.Left = 1 }},
		"before its tick":    {"S3", func(s *Schedules) { s.Jobs[0].Got = at(990) }},
		"a tick is forgotten": {"S4", func(s *Schedules) {
			s.Active["mail/daily"] = ScheduleAccount{Next: at(6000), Total: 4, Fired: 3, Missed: 1}
		}},
		"a tick too many": {"S4", func(s *Schedules) {
			s.Active["mail/daily"] = ScheduleAccount{Next: at(4000), Total: 4, Fired: 3, Missed: 1}
		}},
		"of an edited one nobody knows": {"", func(s *Schedules) {
			s.Put[0].Edited, s.Active["mail/daily"] = true, ScheduleAccount{Next: at(6000), Total: 4, Fired: 3, Missed: 1}
		}},
		"a tick without a fate": {"S4", func(s *Schedules) { s.Paused["mail/daily"] = ScheduleAccount{Total: 5, Fired: 3, Missed: 1} }},
		"nothing fired":         {"S5", func(s *Schedules) { s.Fired = 4 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := good()
			h.Schedules = goodSchedules()
			row.change(h.Schedules)
			var all []string
			for _, v := range Run(h) {
				all = append(all, v.String())
			}
			if got := strings.Join(all, "\n"); row.check == "" && got != "" || !strings.Contains(got, row.check) {
				t.Errorf("got %q, want a violation of %q", got, row.check)
			}
		})
	}
}
