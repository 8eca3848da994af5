package jobs

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

func TestDeadLettersAreListed(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	if r := p.do("GET", "/v1/mail/q/dead", ""); r.status != 200 || r.raw != `{"total":0,"jobs":[]}`+"\n" {
		t.Errorf("none: got %d %s", r.status, r.raw)
	}
	p.store.With(func() {
		for i := range 30 {
			p.store.dead = append(p.store.dead, job.Job{Queue: "q", ID: fmt.Sprint("id", i), Tries: 3, Attempt: 3, Reason: job.Lapsed, Published: 5, Expires: 9, At: int64(100 + i), Payload: []byte(fmt.Sprint(i))})
		}
	})
	first := `{"queue":"q","id":"id7","attempt":3,"tries":3,"published_ms":5,"data":"Nw==","state":"dead","reason":"lapsed","died_ms":107}`
	if r := p.do("GET", "/v1/mail/q/dead?offset=7&limit=1", ""); r.status != 200 || r.raw != `{"total":30,"jobs":[`+first+"]}\n" {
		t.Errorf("got %d %s", r.status, r.raw)
	}
	if r := p.do("GET", "/v1/mail/q/dead", ""); len(r.Jobs) != 20 || r.Jobs[19].ID != "id19" {
		t.Errorf("got %d jobs: %s", len(r.Jobs), r.raw)
	}
	if r := p.do("HEAD", "/v1/mail/q/dead", ""); r.status != 200 || r.raw != "" {
		t.Errorf("HEAD: got %d %s", r.status, r.raw)
	}
	if r := p.do("PUT", "/v1/mail/q/dead", ""); r.status != 405 || r.header.Get("Allow") != "POST, GET, HEAD, OPTIONS" {
		t.Errorf("PUT: got %d, Allow %q", r.status, r.header.Get("Allow"))
	}
	p.store.With(func() { p.store.dead[0].Payload = make([]byte, 60<<20) })
	if r := p.do("GET", "/v1/mail/q/dead", ""); r.status != 503 || r.Error != "overloaded" {
		t.Errorf("more than memory has room for: got %d %.200s", r.status, r.raw)
	}
}

// Who waits for the end of a job costs the store no payload at each look.
func TestAWaitReadsThePayloadAtItsEnd(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	id := p.do("POST", "/v1/mail/q", "x").IDs[0]
	p.do("POST", "/v1/mail/q/claim", "")
	end := make(chan *reply, 1)
	go func() { end <- p.do("GET", "/v1/mail/q/jobs/"+id+"?wait=1m", "") }()
	eventually(t, "it looks again once ends are told", func() bool { return p.store.looks.Load()+p.store.gets.Load() > 1 })
	if n := p.store.gets.Load(); n != 0 {
		t.Errorf("it was read %d times", n)
	}
	p.do("POST", "/v1/mail/q/settle", `{"id":"`+id+`","do":"bury"}`)
	if r := <-end; !strings.Contains(r.raw, `"data":"eA==","state":"dead"`) || p.store.gets.Load() != 1 {
		t.Errorf("got %d %s, read %d times", r.status, r.raw, p.store.gets.Load())
	}
	id = p.do("POST", "/v1/mail/q", "y").IDs[0]
	if r := p.do("GET", "/v1/mail/q/jobs/"+id+"?wait=1ms", ""); !strings.Contains(r.raw, `"data":"eQ==","state":"ready"`) {
		t.Errorf("a wait that is over first: got %d %s", r.status, r.raw)
	}
}

func TestTextIsShownAsTextToWhoAsks(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	for payload, want := range map[string]string{"{\"to\":\"<é&>\"}\n": `"text":"{\"to\":\"<é&>\"}\n"`, "\xff": `"data":"/w=="`} {
		id := p.do("POST", "/v1/mail/q", payload).IDs[0]
		for _, r := range []*reply{p.do("GET", "/v1/mail/q/jobs/"+id+"?text", ""), p.do("GET", "/v1/mail/q/jobs/"+id+"?wait=1ms&text=1", ""),
			p.do("GET", "/v1/mail/q/peek?text=1", ""), p.do("POST", "/v1/mail/q/claim?text", "")} {
			if r.status != 200 || !strings.Contains(r.raw, want) || strings.Contains(r.raw, `"data"`) == strings.Contains(want, `"text"`) {
				t.Errorf("got %d %s, want %s", r.status, r.raw, want)
			}
		}
		if r := p.do("GET", "/v1/mail/q/jobs/"+id, ""); !strings.Contains(r.raw, `"data":"`) || strings.Contains(r.raw, `"text"`) {
			t.Errorf("without text: %s", r.raw)
		}
		p.do("DELETE", "/v1/mail/q/jobs/"+id, "")
	}
	if r := p.do("GET", "/v1/mail/q/peek?text=no", ""); r.status != 400 {
		t.Errorf("got %d %s", r.status, r.raw)
	}
}

func TestAForecastEndsWithTheLastStepThatHasAny(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	for due, want := range map[string][]int64{"": nil, "0,3": {0, 3}, "1": {1, 0, 0}} {
		p.store.With(func() { p.store.due, p.store.ticks = want, want })
		if r := p.do("GET", "/v1/mail/q/forecast", ""); r.status != 200 || r.raw != `{"now_ms":5000,"step_ms":600000,"due":[`+due+`],"scheduled":[`+due+`],"scheduled_by":"next"}`+"\n" {
			t.Errorf("%v: got %d %s", want, r.status, r.raw)
		}
	}
}

func TestJobsAreReadAndDeleted(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	p.store.counts = job.Counts{Ready: 3, Delayed: -1, Leased: -1, Pending: 5, Dead: 2, OldestReady: 4000}
	id := p.do("POST", "/v1/mail/q?id=mine", "\xffx").IDs[0]
	for _, c := range []struct{ method, path, want string }{
		{"GET", "/v1/mail/q", `{"namespace":"mail","queue":"q","ready":3,"pending":5,"dead":2,"oldest_age_ms":1000}`},
		{"GET", "/v1/mail/q/jobs/" + id, `{"queue":"q","id":"` + id + `","attempt":0,"tries":25,"published_ms":5000,"data":"/3g=","state":"ready"}`},
		{"GET", "/v1/mail/q/peek", `{"queue":"q","id":"` + id + `","attempt":0,"tries":25,"published_ms":5000,"data":"/3g=","state":"ready"}`},
		{"GET", "/v1/mail/q/forecast?step=1h&steps=3", `{"now_ms":5000,"step_ms":3600000,"due":[],"scheduled":[],"scheduled_by":"next"}`},
		{"DELETE", "/v1/mail/q/jobs/" + id, `{"state":"deleted"}`},
		{"DELETE", "/v1/mail/q/jobs/" + id, ``},
		{"DELETE", "/v1/mail/q?state=ready", `{"deleted":1,"complete":true}`},
		{"DELETE", "/v1/mail/q?state=all", `{"deleted":9,"complete":true}`},
		{"POST", "/v1/mail/q/dead?do=respawn&limit=7&ttl=1h", `{"respawned":7,"complete":false}`},
		{"POST", "/v1/mail/q/dead?do=delete", `{"deleted":100,"complete":false}`},
	} {
		r := p.do(c.method, c.path, "")
		if want := c.want + "\n"; c.want != "" && r.raw != want || c.want == "" && r.status != 404 {
			t.Errorf("%s %s: got %d %s, want %s", c.method, c.path, r.status, r.raw, want)
		}
	}
	if r := p.do("HEAD", "/v1/mail/q", ""); r.status != 200 || r.raw != "" {
		t.Errorf("HEAD: %d %q", r.status, r.raw)
	}
	if p.metric("requests_total", "200", "purge") != 2 || p.metric("requests_total", "404", "delete_job") != 1 {
		t.Error("requests are not counted by route")
	}
}

func TestDeadLettersAreNamedByIDEachAnsweredOnItsOwn(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	ids := p.do("POST", "/v1/mail/q", "1\n2\n3", asNDJSON).IDs
	body, _ := json.Marshal(map[string][]string{"ids": {ids[0], "none", ids[1], ids[2]}})
	refs := []job.Ref{}
	for _, id := range ids {
		ref, _ := p.store.Namespace("mail").ParseID("q", id)
		refs = append(refs, ref)
	}
	state := func(i int) string { // as the store of the test does it
		return map[bool]string{true: "ready", false: "gone"}[refs[i].Seq%2 == 1]
	}
	want := fmt.Sprintf(`{"results":[{"i":0,"state":%q},{"i":1,"state":"gone"},{"i":2,"state":%q},{"i":3,"state":%q}]}`, state(0), state(1), state(2))
	if r := p.do("POST", "/v1/mail/q/dead?do=respawn&ttl=1h", string(body)); r.status != 200 || r.raw != want+"\n" {
		t.Errorf("got %d %s, want %s", r.status, r.raw, want)
	}
	p.do("POST", "/v1/mail/q/dead?do=delete&limit=5&reason=lapsed&error=time+out&age=1h", "")
	a := p.store.deadAct
	if a.Verb != job.DeleteDead || a.Limit != 5 || a.Reason != job.Lapsed || a.Error != "time out" || a.Age != time.Hour {
		t.Errorf("the store was asked %+v", a)
	}
}

// Work on many jobs that ends early says what it did.
func TestWorkThatEndsEarlySaysWhatItDid(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	p.store.readErr, p.store.begins = errAway, true
	for _, c := range []struct{ method, path, want string }{
		{"DELETE", "/v1/mail/q?state=all", `{"deleted":9,"complete":false}`},
		{"POST", "/v1/mail/q/dead?do=respawn&limit=7", `{"respawned":7,"complete":false}`},
		{"POST", "/v1/mail/q/dead?do=delete&limit=8", `{"deleted":8,"complete":false}`},
	} {
		if r := p.do(c.method, c.path, ""); r.status != 200 || r.raw != c.want+"\n" {
			t.Errorf("%s %s: got %d %s", c.method, c.path, r.status, r.raw)
		}
	}
}

// How often a buried job was claimed is not known, and so not said.
func TestADeadJobSaysWhyItDied(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	p.do("POST", "/v1/mail/q?ttl=1h", "x")
	r := p.do("POST", "/v1/mail/q/claim", "")
	j := r.Jobs[0]
	if !strings.Contains(r.raw, `"expires_ms"`) {
		t.Errorf("a job with a ttl does not say when it expires: %s", r.raw)
	}
	p.do("POST", "/v1/mail/q/settle", `{"id":"`+j.ID+`","do":"bury"}`)
	want := `{"queue":"q","id":"` + j.ID + `","tries":25,"published_ms":5000,"data":"eA==","state":"dead","reason":"buried"}` + "\n"
	if r := p.do("GET", "/v1/mail/q/jobs/"+j.ID, ""); r.raw != want {
		t.Errorf("got %s, want %s", r.raw, want)
	}
}
