package admin

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
	"github.com/spillway-io/spillway/partition/mask"
)

// acted is a server on a real Redis, with a token of each role.
type acted struct {
	*backlog
	*Server
	log *drops.Log
}

func newActed(t *testing.T) *acted {
	b := newBacklog(t)
	a := &acted{backlog: b, log: drops.NewLog()}
	a.Server = New(Config{Listen: "127.0.0.1:8081", Source: func() View {
		return View{Store: b.Store, Health: &fakeHealth{}, Metrics: prometheus.NewRegistry(), Tokens: tokensOfEachRole(), MaskFields: mask.DefaultFields(), Drops: a.log}
	}}, zap.NewNop())
	return a
}

// post sends a write as an admin and reads the answer into body.
func (a *acted) post(t *testing.T, path, text string, body any) *httptest.ResponseRecorder {
	t.Helper()
	w := send(a.Server, "POST", "/api/v1/namespaces/default"+path, "admin", text)
	if body != nil {
		if err := json.Unmarshal(w.Body.Bytes(), body); err != nil || w.Code != 200 {
			t.Fatalf("%s %s: %d %s", path, text, w.Code, w.Body)
		}
	}
	return w
}

func (a *acted) get(t *testing.T, path string, body any) {
	t.Helper()
	w := send(a.Server, "GET", "/api/v1/namespaces/default"+path, "admin", "")
	if err := json.Unmarshal(w.Body.Bytes(), body); err != nil || w.Code != 200 {
		t.Fatalf("%s: %d %s", path, w.Code, w.Body)
	}
}

// bury makes every entry of a partition a dead letter.
func (a *acted) bury(t *testing.T, name, reason string) {
	t.Helper()
	a.buryFor(t, name, reason, func(int64) (said, detail string) { return "422", "<no>" })
}

// buryFor does so with what the sink said of each.
func (a *acted) buryFor(t *testing.T, name, reason string, said func(seq int64) (text, detail string)) {
	t.Helper()
	claim := a.Claim(t.Context(), []partition.ClaimRequest{{Namespace: a.ns, Partition: name, MaxBatches: 1}}, time.Minute)[0]
	if claim.Err != nil || claim.Lease == nil {
		t.Fatalf("claim %s: %+v", name, claim)
	}
	l := claim.Lease
	commit := &partition.Commit{Lease: l, Lo: l.From, Hi: l.To, Dead: len(l.Entries)}
	for seq := l.From; seq < l.To; seq++ {
		text, detail := said(seq)
		commit.DeadLetters = append(commit.DeadLetters, fmt.Appendf(nil,
			`{"namespace":"default","partition":%q,"seq":%d,"ts":1763629675100,"id":"id-%d","batch":"b","attempt":2,"data":{"n":%d,"token":"canary"},"reason":%q,"error":%q,"detail":%q}`+"\n", name, seq, seq-l.From, seq, reason, text, detail))
	}
	if a.Commit(t.Context(), []*partition.Commit{commit}); commit.Err != nil {
		t.Fatal(commit.Err)
	}
}

func TestAPauseIsShownEverywhereUntilItIsResumed(t *testing.T) {
	t.Parallel()
	a := newActed(t)
	a.produce(t, 0, 3, func(int) (int, time.Duration) { return 2, time.Minute })
	var answer PauseState
	for range 2 {
		if a.post(t, "/pause", `{"reason":"deploy"}`, &answer); answer.Paused == nil || answer.Paused.By != "admin-1" || answer.Paused.Reason != "deploy" || answer.Paused.SinceMS == 0 {
			t.Fatalf("got %+v", answer.Paused)
		}
	}
	a.post(t, "/pause", `{"part":"p000001"}`, &answer)
	w := send(a.Server, "GET", "/api/v1/pauses", "viewer", "")
	if body := w.Body.String(); strings.Count(body, "since_ms") != 2 || !strings.Contains(body, `"partition":"p000001"`) {
		t.Errorf("pauses: %s", body)
	}
	var account Account
	if a.get(t, "", &account); account.Paused == nil || account.PausedPartitions != 1 {
		t.Errorf("account: %+v", account)
	}
	a.Server.observer.tick(t.Context())
	if err := a.Store.Pause(t.Context(), a.ns, "p000009", partition.Pause{By: "admin-1"}); err != nil { // it has no entries
		t.Fatal(err)
	}
	var list PartitionList
	if a.get(t, "/partitions?paused=1&sort=depth", &list); list.Total != 2 || list.Partitions[0].Partition != "p000001" || !list.Partitions[0].Paused {
		t.Errorf("partitions: %+v", list)
	}
	if empty := list.Partitions[1]; empty.Partition != "p000009" || !empty.Paused || empty.Depth != 0 || empty.OldestAgeMS != 0 {
		t.Errorf("a paused partition without entries: %+v", empty)
	}
	list = PartitionList{}
	if a.get(t, "/partitions", &list); list.Total != 3 {
		t.Errorf("one without entries is listed: %+v", list)
	}
	if _, err := a.Store.Resume(t.Context(), a.ns, "p000009"); err != nil {
		t.Fatal(err)
	}
	claims := a.Claim(t.Context(), []partition.ClaimRequest{{Namespace: a.ns, Partition: "p000000", MaxBatches: 1}}, time.Minute)
	if claims[0].Lease != nil {
		t.Error("a paused namespace is delivered")
	}
	a.post(t, "/resume", `{"part":"p000001"}`, &answer)
	if a.post(t, "/resume", `{}`, &answer); !answer.Was {
		t.Error("a resume does not say that it ended a pause")
	}
	answer = PauseState{}
	a.post(t, "/resume", `{}`, &answer)
	if a.get(t, "", &account); answer.Paused != nil || answer.Was || account.Paused != nil || account.PausedPartitions != 0 {
		t.Errorf("after resume: %+v %+v", answer.Paused, account)
	}
	if got := send(a.Server, "GET", "/api/v1/audit", "viewer", "").Body.String(); strings.Count(got, `"action":"resume"`) != 3 || !strings.Contains(got, "it was not paused") {
		t.Errorf("the trail: %s", got)
	}
}

func TestAPurgeTakesNotMoreThanWasConfirmed(t *testing.T) {
	t.Parallel()
	a := newActed(t)
	a.produce(t, 0, 10, func(int) (int, time.Duration) { return 5, 10 * time.Minute })
	a.produce(t, 10, 10, func(int) (int, time.Duration) { return 5, time.Minute })
	var dry, done Purged
	a.post(t, "/purge", `{"older_than":"5m","dry_run":true}`, &dry)
	if dry != (Purged{true, 50, 10, 0, true}) {
		t.Fatalf("the dry run: %+v", dry)
	}
	a.produce(t, 5, 2, func(int) (int, time.Duration) { return 5, 10 * time.Minute }) // 60 match now
	a.post(t, "/purge", `{"older_than":"5m","confirm":50}`, &done)
	if done.Entries != 50 || done.Complete || done.DryRun {
		t.Errorf("the purge: %+v", done)
	}
	o, err := a.Overview(t.Context(), a.ns)
	if err != nil || o.Purged != 50 || o.Ledger.Buffered != 60 {
		t.Errorf("%+v, %v", o, err)
	}
	if totals := a.log.Totals("default"); totals[drops.Purged].Entries != 50 {
		t.Errorf("the samples count %+v", totals)
	}
	if residual, err := a.Audit(t.Context(), a.ns); residual != 0 || err != nil {
		t.Errorf("residual %d, %v", residual, err)
	}
}

func TestDeadLettersAreListedByAnyFilterInPages(t *testing.T) {
	t.Parallel()
	a := newActed(t)
	a.produce(t, 0, 4, func(int) (int, time.Duration) { return 20, time.Minute })
	for i, reason := range []string{"rejected", "timeout", "rejected", "rejected"} {
		a.bury(t, fmt.Sprintf("p%06d", i), reason)
	}
	for _, tt := range []struct {
		query string
		want  int
	}{
		{"", 80}, {"&cause=%23:+%3Cno%3E", 80}, {"&cause=422:+%3Cno%3E&partition=p000001", 20}, {"&cause=422", 0}, {"&reason=rejected", 60}, {"&reason=timeout&partition=p000001", 20}, {"&partition=p000001&reason=rejected", 0}, {"&id=id-1", 4}, {"&reason=nothing", 0},
	} {
		seen, cursor := map[string]bool{}, ""
		for pages := 0; ; pages++ {
			var list LetterList
			a.get(t, "/dead?limit=7&after="+strings.ReplaceAll(cursor, "+", "%2B")+tt.query, &list)
			if list.Total != 80 || len(list.Letters) > 7 {
				t.Fatalf("%s: %+v", tt.query, list)
			}
			for _, l := range list.Letters {
				if seen[l.Letter] {
					t.Errorf("%s: %s comes twice", tt.query, l.Letter)
				}
				seen[l.Letter] = true
			}
			if cursor = list.Next; cursor == "" || pages > 100 {
				break
			}
		}
		if len(seen) != tt.want {
			t.Errorf("%q: %d letters, want %d", tt.query, len(seen), tt.want)
		}
	}
	var list LetterList
	a.get(t, "/dead?limit=1", &list)
	w := send(a.Server, "GET", "/api/v1/namespaces/default/dead/"+list.Letters[0].Letter, "operator", "")
	if body := w.Body.String(); w.Code != 200 || !strings.Contains(body, `"token":"***"`) || !strings.Contains(body, `"detail":"422: \u003cno\u003e"`) || strings.Contains(body, "canary") {
		t.Errorf("one letter: %d %s", w.Code, body)
	}
	for path, want := range map[string]string{"/dead/0000000000000000": "no_such_dead_letter", "/dead/x": "no_such_dead_letter", "/dead?after=x": "bad_request", "/dead?after=0.5%2Bx": "bad_request", "/dead?limit=501": "bad_limit"} {
		if w := send(a.Server, "GET", "/api/v1/namespaces/default"+path, "operator", ""); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// Twice at once counts once: of several requests at once the store sees one, or each letter
// once.
func TestAReplayTwiceAtOnceCountsOnce(t *testing.T) {
	t.Parallel()
	a := newActed(t)
	a.produce(t, 0, 3, func(int) (int, time.Duration) { return 20, time.Minute })
	for i := range 3 {
		a.bury(t, fmt.Sprintf("p%06d", i), "rejected")
	}
	before, err := a.Overview(t.Context(), a.ns)
	if err != nil {
		t.Fatal(err)
	}
	// Another process has a lock of its own.
	other := New(Config{Listen: "127.0.0.1:8081", Source: a.cfg.Source}, zap.NewNop())
	var dry Replayed
	a.post(t, "/dead/replay", `{"reason":"rejected","dry_run":true}`, &dry)
	if dry.Replayed != 60 || !dry.DryRun || !dry.Complete {
		t.Fatalf("the dry run: %+v", dry)
	}
	var all sync.WaitGroup
	for i := range 6 {
		all.Go(func() {
			w := send([]*Server{a.Server, other}[i%2], "POST", "/api/v1/namespaces/default/dead/replay", "operator", `{"reason":"rejected","confirm":60,"per_second":1000}`)
			if w.Code != 200 && w.Code != 409 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		})
	}
	all.Wait()
	o, err := a.Overview(t.Context(), a.ns)
	if err != nil || o.Ledger.Accepted-before.Ledger.Accepted != 60 || o.Ledger.Buffered != 60 || o.DeadLetters != 0 || o.Ledger.Dead != 60 {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestAReplayKeepsItsRateAndItsBound(t *testing.T) {
	t.Parallel()
	a := newActed(t)
	a.produce(t, 0, 1, func(int) (int, time.Duration) { return 30, time.Minute })
	a.bury(t, "p000000", "rejected")
	began := time.Now()
	var done Replayed
	a.post(t, "/dead/replay", `{"confirm":20,"per_second":40}`, &done)
	if done.Replayed != 20 || done.Failed != 0 || done.Complete {
		t.Errorf("got %+v", done)
	}
	// Four at once, and the last four after 16 of them: 0.4 s.
	if took := time.Since(began); took < 390*time.Millisecond {
		t.Errorf("20 letters at 40 a second take %v", took)
	}
	var list LetterList
	if a.get(t, "/dead", &list); list.Total != 10 {
		t.Errorf("10 letters are left, the list says %+v", list)
	}
	ids, _ := json.Marshal([]string{list.Letters[0].Letter, list.Letters[3].Letter, "00000000000000aa"})
	var gone Deleted
	if a.post(t, "/dead/delete", `{"letters":`+string(ids)+`,"dry_run":true}`, &gone); gone.Deleted != 2 || !gone.DryRun {
		t.Errorf("the dry run: %+v", gone)
	}
	if a.post(t, "/dead/delete", `{"letters":`+string(ids)+`,"confirm":2}`, &gone); gone.Deleted != 2 || !gone.Complete {
		t.Errorf("got %+v", gone)
	}
	long := strings.Repeat("x", maxReason+1) // the trail keeps 1,000 of them
	for _, text := range []string{`{"confirm":1,"reason":"` + long + `"}`, `{"confirm":1,"partition":"a/b"}`, `{"confirm":1,"per_second":0}`, `{"confirm":1,"per_second":1001}`, `{"confirm":1,"letters":["x"]}`, `{}`, `{"confirm":1,"limit":-1}`} {
		if w := a.post(t, "/dead/replay", text, nil); w.Code != 400 {
			t.Errorf("%s: %d %s", text, w.Code, w.Body)
		}
	}
	if o, err := a.Overview(t.Context(), a.ns); err != nil || o.DeadLetters != 8 {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestAReplayThatTheStopCutsCountsWhatItTried(t *testing.T) {
	t.Parallel()
	a := newActed(t)
	a.produce(t, 0, 1, func(int) (int, time.Duration) { return 10, time.Minute })
	a.bury(t, "p000000", "rejected")
	var replaying sync.WaitGroup
	replaying.Go(func() {
		var done Replayed
		a.post(t, "/dead/replay", `{"confirm":10,"per_second":1}`, &done)
		if done.Replayed == 0 || done.Complete {
			t.Errorf("got %+v", done)
		}
	})
	for {
		if o, err := a.Overview(t.Context(), a.ns); err != nil || o.DeadLetters < 10 {
			break
		}
	}
	a.end()
	replaying.Wait()
}
