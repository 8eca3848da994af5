package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/job"
)

// counted are the causes in their order, with their counts.
func (d DeadCauses) counted() (text string) {
	for _, c := range d.Causes {
		text += fmt.Sprintf("%d %s; ", c.Count, c.Cause)
	}
	return fmt.Sprint(text, d.Looked, " ", d.Complete)
}

func TestDeadJobsAreCountedAndRespawnedByCause(t *testing.T) {
	t.Parallel()
	q := newQueuedAt(t, redistest.Start(t).URL(), job.DefaultPolicy())
	var errors []string
	for i := range 250 { // three pages
		q.publish("out", 0, fmt.Sprintf(`{"n":%d,"token":"canary-%d"}`, i, i))
		said := fmt.Sprintf("order %d not found, of canary-%d", i, i)
		switch {
		case i%5 == 1:
			said = fmt.Sprintf("dial tcp 10.0.0.%d:25: timeout after %dms", i, i)
		case i%50 == 2:
			said = ""
		}
		errors = append(errors, said)
	}
	q.buryFor("out", errors...)
	var got DeadCauses
	q.ask("GET", "/queues/out/dead?by=cause", "", &got)
	const missing, timeout = `order # not found, of ***`, "dial tcp #:#: timeout after #"
	if want := "195 " + missing + "; 50 " + timeout + "; 5 buried; 250 true"; got.counted() != want {
		t.Fatalf("got %s, want %s", got.counted(), want)
	}
	last := got.Causes[0]
	if last.Example != "order 249 not found, of ***" || last.ID == "" || last.FirstMS == 0 || last.LastMS < last.FirstMS || time.Since(time.UnixMilli(last.LastMS)) > time.Hour {
		t.Errorf("got %+v", last)
	}

	body := func(cause, more string) string { return fmt.Sprintf(`{"cause":%q,%s}`, cause, more) }
	for _, act := range []struct{ route, body, want string }{
		{"respawn", body(missing, `"dry_run":true`), `{"dry_run":true,"jobs":195,"complete":true}`},
		{"respawn", body(missing, `"dry_run":true,"limit":7`), `{"dry_run":true,"jobs":7,"complete":true}`},
		{"respawn", body(last.Example, `"dry_run":true`), `{"dry_run":true,"jobs":195,"complete":true}`}, // what was said stands for its cause
		{"respawn", body("nothing", `"dry_run":true`), `{"dry_run":true,"jobs":0,"complete":true}`},
		{"respawn", body(missing, `"confirm":120`), `{"dry_run":false,"jobs":120,"complete":true}`},
		{"delete", body(timeout, `"confirm":50`), `{"dry_run":false,"jobs":50,"complete":true}`},
		{"delete", body("buried", `"confirm":9`), `{"dry_run":false,"jobs":5,"complete":true}`},
	} {
		w := send(q.Server, "POST", "/api/v1/namespaces/mail/queues/out/dead/"+act.route, "operator", act.body)
		if strings.TrimSpace(w.Body.String()) != act.want {
			t.Errorf("%s %s: got %d %s, want %s", act.route, act.body, w.Code, w.Body, act.want)
		}
	}
	if q.ask("GET", "/queues/out/dead?by=cause", "", &got); got.counted() != "75 "+missing+"; 75 true" {
		t.Errorf("then: %s", got.counted())
	}
	ledger, err := q.store.Ledger(t.Context(), q.ns)
	if err != nil || ledger.Ready != 120 || ledger.Respawned != 120 || ledger.Deleted != 55 || ledger.Dead != 75 {
		t.Errorf("got %+v, %v", ledger, err)
	}
	if w := send(q.Server, "GET", "/api/v1/audit", "viewer", ""); strings.Count(w.Body.String(), `"action":"respawn_jobs"`) != 1 || !strings.Contains(w.Body.String(), `cause \"order # not found, of ***\", confirmed 120`) {
		t.Errorf("the trail: %s", w.Body)
	}

	q.rejected("GET", "/queues/out/dead?by=cause", "viewer", "", http.StatusForbidden, "operator")
	q.rejected("POST", "/queues/out/dead/respawn", "operator", body("x", `"reason":"buried","dry_run":true`), http.StatusBadRequest, "cause selects")
	q.rejected("POST", "/queues/out/dead/respawn", "operator", body("x", `"ids":["x"],"dry_run":true`), http.StatusBadRequest, "cause selects")
	q.rejected("POST", "/queues/out/dead/respawn", "operator", body(strings.Repeat("x", job.MaxError+1), `"dry_run":true`), http.StatusBadRequest, "cause is")
	q.rejected("POST", "/queues/out/dead/respawn", "operator", body("x", `"limit":1`), http.StatusBadRequest, "dry_run")
	q.rejected("POST", "/queues/out/dead/respawn", "operator", body("", `"dry_run":true`), http.StatusBadRequest, "bad_parameter")
}

// A job that dies again while dead letters are respawned is left, and those on each shard are found.
func TestDeadJobsOfSeveralShardsAreOfOneCause(t *testing.T) {
	t.Parallel()
	policy := job.DefaultPolicy()
	policy.Shards, policy.Spread = 3, map[string]int{"out": 3}
	q := newQueuedAt(t, redistest.Start(t).URL(), policy)
	for _, shard := range q.ns.Shards("out") {
		p := &job.Publish{Namespace: q.ns, Queue: "out", Shard: shard, Tries: 1}
		for range 150 {
			p.Messages = append(p.Messages, job.Message{Payload: []byte("1")})
		}
		q.store.Run(t.Context(), q.lane, &job.Batch{Publishes: []*job.Publish{p}})
		c := &job.Claim{Namespace: q.ns, Shard: shard, Queues: []string{"out"}, TTR: time.Minute, Count: 150}
		q.store.Run(t.Context(), q.lane, &job.Batch{Claims: []*job.Claim{c}})
		var b job.Batch
		for i, j := range c.Jobs {
			b.Settles = append(b.Settles, &job.Settle{Namespace: q.ns, Queue: "out", Ref: j.Ref, Attempt: j.Attempt, Verb: job.Nack, Error: fmt.Sprintf("%s %d", []string{"a", "b"}[i%2], i)})
		}
		if q.store.Run(t.Context(), q.lane, &b); len(c.Jobs) != 150 {
			t.Fatalf("claimed %d, %v", len(c.Jobs), c.Err)
		}
	}
	var got DeadCauses
	if q.ask("GET", "/queues/out/dead?by=cause", "", &got); got.counted() != "225 a #; 225 b #; 450 true" {
		t.Fatal(got.counted())
	}
	var done actedJobs
	if q.ask("POST", "/queues/out/dead/respawn", `{"cause":"b #","confirm":225}`, &done); done.Jobs != 225 || !done.Complete {
		t.Errorf("got %+v", done)
	}
	if q.ask("GET", "/queues/out/dead?by=cause", "", &got); got.counted() != "225 a #; 225 true" {
		t.Error(got.counted())
	}
}

func TestDeadLettersAreCountedReplayedAndDeletedByCause(t *testing.T) {
	t.Parallel()
	a := newActed(t)
	a.produce(t, 0, 3, func(int) (int, time.Duration) { return 20, time.Minute })
	for i, said := range []func(int64) (string, string){
		func(seq int64) (string, string) { return "422", fmt.Sprintf("no lap %d, of canary", seq) },
		func(seq int64) (string, string) { return fmt.Sprintf("no lap %d, token=x%d", seq, seq), "" },
		func(int64) (string, string) { return "", "" },
	} {
		a.buryFor(t, fmt.Sprintf("p%06d", i), "rejected", said)
	}
	var got DeadCauses
	a.get(t, "/dead?by=cause", &got)
	if want := "20 #: no lap #, of ***; 20 no lap #, token: ***; 20 rejected; 60 true"; got.counted() != want || got.Causes[0].Example == "" || !letterID.MatchString(got.Causes[0].ID) || got.Causes[0].LastMS == 0 {
		t.Fatalf("got %s %+v, want %s", got.counted(), got.Causes[0], want)
	}
	var replayed Replayed
	var deleted Deleted
	selected, _ := json.Marshal(got.Causes[0].Cause)
	if a.post(t, "/dead/replay", fmt.Sprintf(`{"cause":%s,"dry_run":true}`, selected), &replayed); replayed.Replayed != 20 {
		t.Errorf("the dry run: %+v", replayed)
	}
	if a.post(t, "/dead/replay", fmt.Sprintf(`{"cause":%s,"confirm":20,"per_second":1000}`, selected), &replayed); replayed.Replayed != 20 || !replayed.Complete {
		t.Errorf("the replay: %+v", replayed)
	}
	if a.post(t, "/dead/delete", `{"cause":"rejected","confirm":20}`, &deleted); deleted.Deleted != 20 || !deleted.Complete {
		t.Errorf("the delete: %+v", deleted)
	}
	if a.get(t, "/dead?by=cause", &got); got.counted() != "20 no lap #, token: ***; 20 true" {
		t.Errorf("then: %s", got.counted())
	}
	if w := send(a.Server, "GET", "/api/v1/audit", "viewer", ""); !strings.Contains(w.Body.String(), `confirmed 20, cause \"#: no lap #, of ***\"`) {
		t.Errorf("the trail: %s", w.Body)
	}
	if w := send(a.Server, "GET", "/api/v1/namespaces/default/dead?by=cause", "viewer", ""); w.Code != http.StatusForbidden {
		t.Errorf("a viewer: %d", w.Code)
	}
}

func TestACauseBeyondAHundredIsOneOfTheRest(t *testing.T) {
	t.Parallel()
	c := causes{known: map[string]*DeadCause{}}
	for i := range maxCauses + 2 {
		c.add(strings.Repeat("y", 1+i), "said", fmt.Sprint(i), int64(i+1))
	}
	answer, err := c.answer(t.Context(), true, nil)
	got := answer.Causes
	if err != nil || len(got) != maxCauses+1 || got[maxCauses].Cause != "" || got[maxCauses].Count != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Whatever fails in however many ways, the answer and the memory for it are bounded.
func TestCausesBeyondAHundredAreOne(t *testing.T) {
	t.Parallel()
	c := causes{known: map[string]*DeadCause{}}
	for i := range 5000 {
		name := "x" + strings.Repeat("y", i%2000)
		c.add(name, "said "+name, fmt.Sprint(i), int64(i+1))
	}
	c.add("often", "", "", 7)
	for range 9 {
		c.add("x", "last", "id", 9000)
	}
	got, err := c.answer(t.Context(), true, nil)
	if err != nil || len(got.Causes) != maxCauses+1 || len(c.known) > maxKnown || got.Looked != 5010 || !got.Complete {
		t.Fatalf("%d causes, %d known, %d looked at, %v", len(got.Causes), len(c.known), got.Looked, err)
	}
	sum := int64(0)
	for _, of := range got.Causes {
		sum += of.Count
	}
	first, rest := got.Causes[0], got.Causes[maxCauses]
	if first.Cause != "x" || first.Count != 12 || first.FirstMS != 1 || first.LastMS != 9000 || first.Example != "last" || first.ID != "id" {
		t.Errorf("the first: %+v", first)
	}
	if rest.Cause != "" || rest.FirstMS != 7 && rest.FirstMS > 1000 || rest.LastMS != 5000 || rest.ID != "4999" || sum != 5010 {
		t.Errorf("the rest: %+v, in all %d", rest, sum)
	}
}
