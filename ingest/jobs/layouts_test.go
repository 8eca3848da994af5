package jobs

import (
	"context"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// reshard gives the namespace mail other shards.
func (p *process) reshard(shards int) {
	p.t.Helper()
	if _, err := p.store.Reshard(p.t.Context(), p.store.Namespace("mail"), partition.ReshardRequest{Shards: shards}); err != nil {
		p.t.Fatal(err)
	}
}

// What is about a job, and what is about a queue, finds jobs of an older layout and of the newest: in the
// process that changed the shards, and in one that has not heard of it.
func TestEveryRequestFindsTheJobsOfEachLayout(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"the process that changed the shards", "one that has not heard of it"} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			redis, policy := redistest.Start(t), job.DefaultPolicy()
			policy.Shards = 1
			first := startProcess(t, redis.URL(), policy, nil)
			p := first
			if who != "the process that changed the shards" {
				p = startProcess(t, redis.URL(), policy, nil)
			}
			m := job.NewMover(p.store)
			if err := m.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = m.Stop(context.Background()) })
			one := func(r *reply) string { t.Helper(); return r.IDs[0] }
			named := one(first.expect(200, `"accepted":1`, "POST", "q?id=one", "named"))
			keyed := one(first.expect(200, `"accepted":1`, "POST", "q", "keyed", "Idempotency-Key: k"))
			late := one(first.expect(200, `"accepted":1`, "POST", "late?delay=24h", "late"))
			told := one(first.expect(200, `"accepted":1`, "POST", "told?on_end=done", "told"))
			kept := one(first.expect(200, `"accepted":1`, "POST", "once?prepare=1&check=checks", "kept"))
			dropped := one(first.expect(200, `"accepted":1`, "POST", "once?prepare=1&check=checks", "dropped"))
			buried := one(first.expect(200, `"accepted":1`, "POST", "d", "buried"))
			held := one(first.expect(200, `"accepted":1`, "POST", "held", "held"))
			for queue, settle := range map[string]string{"d": `{"id":"` + buried + `","attempt":1,"do":"bury"}`, "held": ""} {
				first.expect(200, `"attempt":1`, "POST", queue+"/claim?ttr=1h", "")
				if settle != "" {
					first.expect(200, `"state":"dead"`, "POST", queue+"/settle", settle)
				}
			}
			first.reshard(3)

			if again := p.expect(200, `"exists":true`, "POST", "q?id=one", "again"); one(again) != named {
				t.Errorf("got %s, want %s", again.raw, named)
			}
			if again := p.expect(200, `"repeated":true`, "POST", "q", "keyed", "Idempotency-Key: k"); one(again) != keyed {
				t.Errorf("got %s, want %s", again.raw, keyed)
			}
			newer := one(first.expect(200, `"accepted":1`, "POST", "q", "newer"))
			p.expect(200, `"state":"ready"`, "GET", "q/jobs/"+newer, "")
			p.expect(200, `"state":"ready"`, "GET", "q/jobs/"+named, "")
			p.expect(200, `"ready":3`, "GET", "q", "")
			p.expect(200, named, "GET", "q/peek", "")
			first.expect(200, `"accepted":1`, "POST", "late?delay=24h", "newer")
			p.expect(200, `"due":[0,2]`, "GET", "late/forecast?step=20h&steps=2", "")
			p.expect(200, `"due_ms":`, "PATCH", "late/jobs/"+late, `{"delay_ms":3600000}`, "Content-Type: application/json")
			p.expect(200, `"due":[1,1]`, "GET", "late/forecast?step=20h&steps=2", "")
			p.expect(200, `"state":"leased"`, "POST", "held/settle", `{"id":"`+held+`","attempt":1,"do":"touch","ms":60000}`)
			p.expect(200, `"state":"ready"`, "POST", "held/settle", `{"id":"`+held+`","attempt":1,"do":"nack"}`)
			p.expect(200, "committed", "POST", "once/jobs/"+kept+"/commit", "")
			p.expect(200, "rolled_back", "POST", "once/jobs/"+dropped+"/rollback", "")
			p.expect(409, "already_decided", "POST", "once/jobs/"+kept+"/rollback", "")
			p.expect(200, buried, "GET", "d/dead", "")
			p.expect(200, `"respawned":1`, "POST", "d/dead?do=respawn", "")
			if r := p.expect(200, buried, "POST", "d/claim?wait=20s", ""); len(r.Jobs) != 1 || r.Jobs[0].Attempt != 4 {
				t.Errorf("got %s", r.raw)
			}
			p.expect(200, "told", "POST", "told/claim", "")
			p.expect(200, `"state":"acked"`, "POST", "told/settle", `{"id":"`+told+`","attempt":1,"do":"ack"}`)
			p.expect(200, `"attempt":1`, "POST", "done/claim?wait=20s", "")
			p.expect(200, "", "DELETE", "late/jobs/"+late, "")
			p.expect(404, "no_such_job", "GET", "late/jobs/"+late, "")
			p.expect(200, `"deleted":3`, "DELETE", "q?state=ready", "")
			p.expect(200, `"ready":0`, "GET", "q", "")
			if l, err := p.store.Ledger(t.Context(), p.store.Namespace("mail")); err != nil || l.Published != 12 || l.Acked != 2 || l.Deleted != 5 {
				t.Errorf("%+v, %v", l, err)
			}
		})
	}
}

// A poll that waits hears of the jobs of each layout, also of one that was made while it waits.
func TestAPollThatWaitsHearsOfJobsOfEachLayout(t *testing.T) {
	t.Parallel()
	redis, policy := redistest.Start(t), job.DefaultPolicy()
	policy.Shards = 2
	a, b := startProcess(t, redis.URL(), policy, nil), startProcess(t, redis.URL(), policy, nil)
	e := job.NewExpirer(a.store) // reads the record once a second
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Stop(context.Background()) })
	const wait = 40 * time.Second
	poll := func(act func()) {
		t.Helper()
		answer := make(chan *reply, 1)
		go func() { answer <- a.do("POST", "/v1/mail/q/claim?wait="+wait.String(), "") }()
		eventually(t, "the poll waits", func() bool { return a.waiting() == 1 })
		began := time.Now()
		act()
		if r := <-answer; len(r.Jobs) != 1 || time.Since(began) > wait/2 {
			t.Errorf("after %v: got %s", time.Since(began), r.raw)
		}
	}
	older := b.do("POST", "/v1/mail/q?delay=1h", "older").IDs[0]
	poll(func() {
		b.reshard(3)
		eventually(t, "its process knows", func() bool { return a.store.Namespace("mail").NewestShards() == 3 })
		b.do("POST", "/v1/mail/q", "newer")
	})
	poll(func() {
		b.expect(200, `"due_ms":`, "PATCH", "q/jobs/"+older, `{"delay_ms":10}`, "Content-Type: application/json")
	})
	poll(func() { b.do("POST", "/v1/mail/q", "newer") })
}
