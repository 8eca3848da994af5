package jobs

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/job"
)

// relieved is a process whose store has a bound that can be filled.
type relieved struct {
	*process
	redis *redistest.Server // nil: it is embedded
}

// one claims the job of a queue, and returns how settle names it.
func (p *relieved) one(queue string) string {
	p.t.Helper()
	r := p.do("POST", "/v1/mail/"+queue+"/claim?ttr=1h", "")
	if len(r.Jobs) != 1 {
		p.t.Fatalf("%s: got %s", queue, r.raw)
	}
	return fmt.Sprintf(`{"id":%q,"attempt":%d`, r.Jobs[0].ID, r.Jobs[0].Attempt)
}

// bounds are all that a namespace and its store can be full of, and how it becomes so.
var bounds = map[string]struct {
	edit func(*job.Policy)
	conf func(*ingest.Config)
	fill func(*relieved)
	give func(*relieved) // what only the operator can give, so that follow-ups are stored
}{
	"max_jobs": {edit: func(p *job.Policy) { p.MaxJobs = 40 }, fill: func(p *relieved) {
		for p.do("POST", "/v1/mail/filler?on_end=told2", "x").status == 200 {
		}
		p.expect(429, "too_many_jobs", "POST", "filler", "x")
	}},
	"max_queues": {edit: func(p *job.Policy) { p.MaxQueues = 30 }, fill: func(p *relieved) {
		for i := 0; p.do("POST", fmt.Sprint("/v1/mail/filler", i), "x").status == 200; i++ {
		}
		p.expect(429, "too_many_queues", "POST", "one_more", "x")
	}},
	"max_keys": {edit: func(p *job.Policy) { p.MaxKeys = 3 }, fill: func(p *relieved) {
		for i := 0; p.do("POST", "/v1/mail/filler?dedup=24h", "x", fmt.Sprint("Idempotency-Key: ", i)).status == 200; i++ {
		}
		p.expect(429, "too_many_keys", "POST", "filler?dedup=24h", "x", "Idempotency-Key: more")
	}},
	"max_schedules": {edit: func(p *job.Policy) { p.MaxSchedules = 5 }, fill: func(p *relieved) {
		for i := 0; p.do("PUT", fmt.Sprint("/v1/mail/filler/schedules/f", i), `{"every":"1h"}`).status == 201; i++ {
		}
		p.expect(429, "too_many_schedules", "PUT", "filler/schedules/more", `{"every":"1h"}`)
	}},
	"memory of Redis": {fill: func(p *relieved) {
		if err := p.redis.Client().ConfigSet(context.Background(), "maxmemory", "1").Err(); err != nil {
			p.t.Fatal(err)
		}
		p.expect(503, "store_full", "POST", "filler", "x")
	}, give: func(p *relieved) { p.redis.Client().ConfigSet(context.Background(), "maxmemory", "0") }},
	"connections": {conf: func(c *ingest.Config) { c.MaxConns = 8 }, fill: func(p *relieved) {
		for range 8 { // 6 may wait
			p.hold("POST /v1/mail/none/claim?wait=60s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")
		}
	}},
}

// reliefs are the verbs that end, delete, tell or drain. Each has what it is about made before the bound is full.
var reliefs = map[string]struct {
	make func(p *relieved, queue string) (method, path, body string)
	want string
	told string // the event of the follow-up that its end sets off; "": none
}{
	"ack": {func(p *relieved, q string) (string, string, string) {
		p.expect(200, "", "POST", q+"?on_end=t."+q, "x")
		return "POST", q + "/settle", p.one(q) + `,"do":"ack","result":{"n":1}}`
	}, `"acked"`, "acked"},
	"nack": {func(p *relieved, q string) (string, string, string) {
		p.expect(200, "", "POST", q, "x")
		return "POST", q + "/settle", p.one(q) + `,"do":"nack","error":"no"}`
	}, `"ready"`, ""},
	"requeue": {func(p *relieved, q string) (string, string, string) {
		p.expect(200, "", "POST", q, "x")
		return "POST", q + "/settle", p.one(q) + `,"do":"requeue"}`
	}, `"ready"`, ""},
	"bury": {func(p *relieved, q string) (string, string, string) {
		p.expect(200, "", "POST", q+"?on_end=t."+q, "x")
		return "POST", q + "/settle", p.one(q) + `,"do":"bury"}`
	}, `"dead"`, "dead"},
	"delete": {func(p *relieved, q string) (string, string, string) {
		return "DELETE", q + "/jobs/" + p.expect(200, "", "POST", q+"?on_end=t."+q, "x").IDs[0], ""
	}, `"deleted"`, "deleted"},
	"delete of a delayed one": {func(p *relieved, q string) (string, string, string) {
		return "DELETE", q + "/jobs/" + p.expect(200, "", "POST", q+"?delay=1h&id=d&on_end=t."+q, "x").IDs[0], ""
	}, `"deleted"`, "deleted"},
	"purge": {func(p *relieved, q string) (string, string, string) {
		p.expect(200, "", "POST", q+"?on_end=t."+q, "x")
		return "DELETE", q + "?state=all", ""
	}, `"deleted":1`, "deleted"},
	"dead letters deleted": {func(p *relieved, q string) (string, string, string) {
		p.expect(200, "", "POST", q, "x")
		p.expect(200, "dead", "POST", q+"/settle", p.one(q)+`,"do":"bury"}`)
		return "POST", q + "/dead?do=delete", ""
	}, `"deleted":1`, ""},
	"promote": {func(p *relieved, q string) (string, string, string) {
		return "POST", q + "/jobs/" + p.expect(200, "", "POST", q+"?delay=1h", "x").IDs[0] + "/promote", ""
	}, "", ""},
	"claim": {func(p *relieved, q string) (string, string, string) {
		p.expect(200, "", "POST", q, "x")
		return "POST", q + "/claim", ""
	}, `"attempt":1`, ""},
	"rollback": {func(p *relieved, q string) (string, string, string) {
		return "POST", q + "/jobs/" + p.expect(200, "", "POST", q+"?prepare=1&on_end=t."+q, "x").IDs[0] + "/rollback", ""
	}, "rolled_back", "deleted"},
	"commit": {func(p *relieved, q string) (string, string, string) {
		return "POST", q + "/jobs/" + p.expect(200, "", "POST", q+"?prepare=1", "x").IDs[0] + "/commit", ""
	}, "committed", ""},
	"a question": {func(p *relieved, q string) (string, string, string) {
		p.expect(200, "", "POST", q+"?prepare=1&check_after=1s&check=t."+q, "x")
		return "GET", q, ""
	}, "", "prepared"},
	"a unique key's end": {func(p *relieved, q string) (string, string, string) {
		p.expect(200, "", "POST", q+"?unique=1h&unique_key=k", "x")
		return "DELETE", q + "/unique?unique_key=k", ""
	}, `"released":true`, ""},
	"a schedule's end": {func(p *relieved, q string) (string, string, string) {
		p.expect(201, "", "PUT", q+"/schedules/s", `{"every":"1h"}`)
		return "DELETE", q + "/schedules/s", ""
	}, "deleted", ""},
	"a schedule's pause": {func(p *relieved, q string) (string, string, string) {
		p.expect(201, "", "PUT", q+"/schedules/s", `{"every":"1h"}`)
		return "POST", q + "/schedules/s/pause", ""
	}, "paused", ""},
	"an owner's end": {func(p *relieved, q string) (string, string, string) {
		p.expect(200, "registered", "PUT", "_owners/"+q+"?version=1", `{"schedules":[{"queue":"`+q+`","name":"s","every":"1h"}]}`)
		return "DELETE", "_owners/" + q + "?schedules=delete", ""
	}, `"deleted":1`, ""},
	"an owner's next version": {func(p *relieved, q string) (string, string, string) {
		p.expect(200, "registered", "PUT", "_owners/"+q+"?version=1", `{"schedules":[{"queue":"`+q+`","name":"s","every":"1h"}]}`)
		return "PUT", "_owners/" + q + "?version=2", `{"schedules":[]}`
	}, `"deleted":1`, ""},
}

// What ends, deletes, tells or drains passes every bound, else the bound would stand for good.
func TestWhatRelievesPassesEveryBound(t *testing.T) {
	t.Parallel()
	for name, b := range bounds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := job.DefaultPolicy()
			if policy.Shards = 1; b.edit != nil {
				b.edit(&policy)
			}
			p, url := &relieved{}, "embedded:"
			if b.give != nil {
				p.redis = redistest.Start(t)
				url = p.redis.URL()
			}
			p.process = startProcess(t, url, policy, b.conf)
			m := job.NewMover(p.store)
			if err := m.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = m.Stop(context.Background()) })
			type verb struct{ what, queue, method, path, body string }
			var verbs []verb
			for what, r := range reliefs {
				v := verb{what: what, queue: fmt.Sprint("q", len(verbs))}
				v.method, v.path, v.body = r.make(p, v.queue)
				verbs = append(verbs, v)
			}
			b.fill(p)
			for _, v := range verbs {
				if r := p.do(v.method, "/v1/mail/"+v.path, v.body); r.status != 200 || !strings.Contains(r.raw, reliefs[v.what].want) {
					t.Errorf("%s: got %d %s", v.what, r.status, r.raw)
				}
			}
			if b.give != nil {
				b.give(p)
			}
			for _, v := range verbs {
				if event := reliefs[v.what].told; event == "" {
					continue
				} else {
					redistest.Until(t, 20*time.Second, v.what+" is told: "+event, func() bool {
						return strings.Contains(p.do("POST", "/v1/mail/t."+v.queue+"/claim", "").data(), `"event":"`+event+`"`)
					})
				}
			}
		})
	}
}

// A registration that renames schedules of a full namespace deletes the old ones before it puts the new.
func TestARegistrationMakesRoomForItself(t *testing.T) {
	t.Parallel()
	p := startFiring(t, "embedded:", func(policy *job.Policy) { policy.MaxSchedules = 2 })
	const list = `{"schedules":[{"queue":"q","name":"%[1]sa","every":"1h"},{"queue":"q","name":"%[1]sb","every":"1h"}]}`
	p.expect(200, `"created":2`, "PUT", "_owners/o?version=1", fmt.Sprintf(list, "old"))
	p.expect(200, `"created":2,"deleted":2`, "PUT", "_owners/o?version=2", fmt.Sprintf(list, "new"))
	p.expect(429, "too_many_schedules", "PUT", "_owners/other?version=1", fmt.Sprintf(list, "more"))
}

// Jobs with on_end leave a follow-up each, and those fill the namespace anew: it is emptied nevertheless.
func TestAFullNamespaceOfJobsWithFollowUpsCanBeEmptied(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"purge", "ack"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			const most = 8
			policy := job.DefaultPolicy()
			policy.Shards, policy.MaxJobs = 1, most
			p := &relieved{process: startProcess(t, "embedded:", policy, nil)}
			m := job.NewMover(p.store)
			if err := m.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = m.Stop(context.Background()) })
			for range most {
				p.expect(200, "", "POST", "q?on_end=told", "x")
			}
			if how == "purge" {
				p.expect(200, fmt.Sprintf(`"deleted":%d`, most), "DELETE", "q?state=all", "")
			} else {
				for range most {
					p.expect(200, "acked", "POST", "q/settle", p.one("q")+`,"do":"ack"}`)
				}
			}
			redistest.Until(t, 20*time.Second, "the follow-ups are there", func() bool {
				return strings.Contains(p.do("GET", "/v1/mail/told", "").raw, fmt.Sprintf(`"ready":%d`, most))
			})
			p.expect(429, "too_many_jobs", "POST", "q", "x")
			p.expect(200, "", "DELETE", "told?state=all", "")
			p.expect(200, "", "POST", "q", "x")
		})
	}
}
