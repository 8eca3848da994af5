package clienttest

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
)

func whatAHandlerReturnsDecides(b *jobBench) {
	b.open(quickJobs())
	done, failed := b.put("welcome", act("ok", 0, 1)), b.put("welcome", act("fail", 0, 1))
	always, permanent := b.put("welcome", act("fail", 0, 9)), b.put("welcome", act("permanent", 0, 9))
	retry, notBegun := b.put("welcome", act("retry", 120_000, 9)), b.put("welcome", act("not_begun", 0, 2))
	b.work(quickWork())
	b.until("all are settled", func() bool {
		return b.state(done).State == "" && b.state(failed).State == "" && b.state(always).State == "dead" && b.state(permanent).State == "dead" &&
			b.state(retry).State == "delayed" && b.state(notBegun).State == ""
	})
	account := b.stop("")
	b.wantSettled(done, "ack")
	b.wantSettled(failed, "nack", "ack")
	b.wantSettled(always, "nack", "nack", "nack")
	b.wantSettled(permanent, "bury")
	b.wantSettled(retry, "nack")
	b.wantSettled(notBegun, "requeue", "requeue", "ack") // the handler counts its calls, as the attempt stays 1
	if last := jobsHandled(account, notBegun); last[len(last)-1].Attempt != 1 {
		b.Errorf("a job that was not begun has %+v", last)
	}
	if account.Errors != 6 || account.RequestErrors != 0 {
		b.Errorf("%d errors of handlers, %d of requests", account.Errors, account.RequestErrors)
	}
	for _, r := range b.server.of("claim") {
		if wait, err := time.ParseDuration(r.query["wait"]); r.path != "urgent,welcome/claim" || err != nil || wait != 5*time.Second {
			b.Fatalf("claimed by %+v", r)
		}
	}
}

func aHandlerThatThrowsFailsItsJobAlone(b *jobBench) {
	b.open(quickJobs())
	first, second := b.put("welcome", act("throw", 0, 9)), b.put("welcome", act("ok", 0, 1))
	b.work(quickWork())
	b.until("both have ended", func() bool { return b.state(first).State == "dead" && b.state(second).State == "" })
	b.stop("")
	b.wantSettled(first, "nack", "nack", "nack")
	b.wantSettled(second, "ack")
}

func hooksOfAWorkerThatThrowChangeNothing(b *jobBench) {
	b.open(quickJobs())
	b.server.script("claim", Step{Status: 503, Code: "overloaded"}, Step{Status: 503, Code: "overloaded"}, Step{})
	b.server.script("settle", Step{Status: 503, Code: "overloaded"}, Step{Status: 503, Code: "overloaded"}, Step{})
	failed, thrown, bad := b.put("welcome", act("fail", 0, 1)), b.put("welcome", act("throw", 0, 9)), b.put("welcome", act("bad_result", 0, 1))
	b.work(with(quickWork(), "throw_hooks", true))
	b.until("all have ended", func() bool {
		return b.state(failed).State == "" && b.state(thrown).State == "dead" && b.state(bad).State == ""
	})
	account := b.stop("")
	if account.Errors < 5 || account.RequestErrors != 2 || len(account.Handled) != 6 {
		b.Errorf("got %+v", account)
	}
	wantFaults(b, b.driver.said(), "job_hook", "claim_hook")
}

func handlersRunAtOnce(b *jobBench) {
	b.open(quickJobs())
	for range 9 {
		b.put("welcome", act("sleep", 500, 9))
	}
	b.work(with(quickWork(), "concurrency", 3))
	b.until("all have ended", func() bool { return len(b.worked().Handled) == 9 })
	if account := b.stop(""); account.Most != 3 {
		b.Errorf("%d at once, want 3", account.Most)
	}
}

func oneHandlerRunsAtATime(b *jobBench) {
	b.open(quickJobs())
	b.put("welcome", act("sleep", 50, 9))
	b.put("welcome", act("sleep", 50, 9))
	urgent := b.put("urgent", act("sleep", 50, 9))
	b.work(quickWork())
	b.until("all have ended", func() bool { return len(b.worked().Handled) == 3 })
	if account := b.stop(""); account.Most != 1 || account.Handled[0].ID != urgent {
		b.Errorf("%d at once, the first is %+v", account.Most, account.Handled[0])
	}
}

func aLeaseIsProlongedWhileItsHandlerRuns(b *jobBench) {
	b.open(quickJobs())
	id := b.put("welcome", act("sleep", 13_000, 9))
	b.work(with(quickWork(), "ttr", 6_000))
	b.until("it has ended", func() bool { return b.state(id).State == "" })
	if account := b.stop(""); len(jobsHandled(account, id)) != 1 {
		b.Errorf("got %+v", account.Handled)
	}
	b.wantSettled(id, "ack")
	if n := len(b.server.of("settle")); n > 12 {
		b.Errorf("%d settlements", n)
	}
}

func aLeaseIsAsLongAsTheQueueSays(b *jobBench) {
	b.open(quickJobs())
	id := b.put("welcome", act("sleep", 4_000, 9))
	_, answer := b.server.do(http.MethodPost, "urgent,welcome/claim?ttr=6s", "")
	b.server.script("claim", Step{Body: string(answer)}, Step{})
	o := quickWork()
	delete(o, "ttr")
	b.work(o)
	b.until("it has ended", func() bool { return b.state(id).State == "" })
	b.stop("")
	if claim, touch := b.server.of("claim")[0], b.server.of("settle")[0].body; claim.query["ttr"] != "" || !strings.Contains(touch, `"touch","ms":6000`) {
		b.Errorf("claimed by %v, then %s", claim.query, touch)
	}
}

func aHandlerWhoseLeaseIsLostIsTold(b *jobBench) {
	b.open(quickJobs())
	id := b.put("welcome", act("hang", 0, 9))
	b.work(with(quickWork(), "ttr", 3_000))
	b.until("it runs", func() bool { return b.worked().Running == 1 })
	b.server.do(http.MethodDelete, "welcome/jobs/"+id, "")
	b.until("it is told", func() bool { return len(b.worked().Handled) == 1 })
	if h := b.stop("").Handled[0]; h.Cause != "lease_lost" {
		b.Errorf("got %+v", h)
	}
	b.wantSettled(id)
}

func aJobGivenBackAfterATouchIsUncounted(b *jobBench) {
	b.open(quickJobs())
	id := b.put("welcome", act("not_begun", 3_000, 1))
	b.work(with(quickWork(), "ttr", 6_000))
	b.until("it is done", func() bool { return b.state(id).State == "" })
	if h := b.stop("").Handled; len(h) != 2 || h[1].Attempt != 1 || h[1].Cause != "" {
		b.Errorf("got %+v", h)
	}
	b.wantSettled(id, "requeue", "ack")
}

func aTouchThatFailsIsTriedAgain(b *jobBench) {
	b.open(with(quickJobs(), "backoff_max", 200))
	b.server.script("settle", Step{Cut: true}, Step{Status: 503, Code: "overloaded"}, Step{Hang: true}, Step{})
	id := b.put("welcome", act("sleep", 15_000, 9))
	b.work(with(quickWork(), "ttr", 12_000))
	b.until("it has ended", func() bool { return b.state(id).State == "" })
	if h := b.stop("").Handled; len(h) != 1 || h[0].Cause != "" {
		b.Errorf("got %+v", h)
	}
}

func aHandlerThatHangsIsToldToStop(b *jobBench) {
	b.open(quickJobs())
	id := b.put("welcome", act("hang", 0, 9))
	b.work(with(quickWork(), "stop_timeout", 300))
	b.until("it runs", func() bool { return b.worked().Running == 1 })
	if h := b.stop("").Handled; len(h) != 1 || h[0].Cause != "stopped" {
		b.Errorf("got %+v", h)
	}
	b.wantSettled(id, "requeue") // a stop uses no try up
	if b.wantState(id, "ready"); b.state(id).Attempt != 0 {
		b.Errorf("got %+v", b.state(id))
	}
}

func aStopWaitsForHandlers(b *jobBench) {
	b.open(quickJobs())
	ids := []string{}
	for range 6 {
		ids = append(ids, b.put("welcome", act("sleep", 1000, 9)))
	}
	b.work(with(quickWork(), "concurrency", 2))
	b.until("two run", func() bool { return b.worked().Running == 2 })
	account := b.stop("")
	if account.Running != 0 {
		b.Errorf("%d handlers run after the stop", account.Running)
	}
	b.until("no request is under way", b.server.idle)
	for _, id := range ids {
		if j, n := b.state(id), len(jobsHandled(account, id)); n == 1 && j.State != "" || n == 0 && (j.State != "ready" || j.Attempt != 0) || n > 1 {
			b.Errorf("handled %d times, and then %+v", n, j)
		}
	}
}

// The answer to the claim is on its way when the stop comes. A library that gives the request up leaves the
// jobs to the service.
func jobsThatArriveDuringAStopGoBack(b *jobBench) {
	b.open(quickJobs())
	ids := []string{b.put("welcome", act("ok", 0, 1)), b.put("welcome", act("ok", 0, 1))}
	b.server.script("claim", Step{Delay: 3 * time.Second})
	b.work(with(quickWork(), "concurrency", 2))
	b.until("a claim is under way", func() bool { return len(b.server.of("claim")) == 1 })
	account := b.stop("")
	b.until("no request is under way", b.server.idle)
	for _, id := range ids {
		if j := b.state(id); len(account.Handled) != 0 || j.State != "ready" || j.Attempt != 0 {
			b.Errorf("%d handlers ran, and then %+v", len(account.Handled), j)
		}
	}
}

func aWorkerThatWaitsStopsAtOnce(b *jobBench) {
	b.open(quickJobs())
	b.work(with(quickWork(), "wait", 600_000))
	b.until("a claim waits", func() bool { return len(b.server.of("claim")) == 1 })
	began := time.Now()
	b.stop("")
	if took := time.Since(began); took > 15*time.Second {
		b.Errorf("it took %v", took)
	}
	b.until("no request is under way", b.server.idle)
	if id := b.put("welcome", "1"); b.state(id).State != "ready" {
		b.Error("a claim lives on")
	}
}

func aWorkerOutlivesAServiceThatIsAway(b *jobBench) {
	b.open(quickJobs())
	away := slices.Repeat([]Step{{Cut: true}, {Status: 503, Code: "shutting_down"}, {Status: 500, Code: "internal"}}, 5)
	b.server.script("claim", append(away, Step{})...)
	id := b.put("welcome", act("ok", 0, 1))
	b.work(quickWork())
	b.until("it is done", func() bool { return b.state(id).State == "" })
	if account := b.stop(""); account.RequestErrors != len(away) || account.Errors != 0 {
		b.Errorf("%d errors of %d requests, %d of handlers", account.RequestErrors, len(away), account.Errors)
	}
}

func aWorkerOutlivesAnswersThatAreNone(b *jobBench) {
	b.open(quickJobs())
	none := []Step{{Body: "<html>"}, {Body: "null"}, {Body: `{"jobs":[{"queue":"welcome"}]}`}, {Status: 502, Body: "<html>"}}
	b.server.script("claim", append(none, Step{})...)
	b.server.script("settle", Step{Body: "<html>"}, Step{Body: `{"results":[]}`}, Step{})
	id := b.put("welcome", act("ok", 0, 1))
	b.work(quickWork())
	b.until("it is done", func() bool { return b.state(id).State == "" })
	account := b.stop("")
	if account.RequestErrors != len(none) || len(account.Handled) != 1 {
		b.Errorf("got %+v", account)
	}
	b.wantSettled(id, "ack", "ack", "ack")
}

func aWorkerWaitsAsLongAs429Says(b *jobBench) {
	b.open(quickJobs())
	b.server.script("claim", Step{Status: 429, Code: "rate_limited", RetryAfter: 1}, Step{})
	id := b.put("welcome", act("ok", 0, 1))
	b.work(quickWork())
	b.until("it is done", func() bool { return b.state(id).State == "" })
	b.stop("")
	if r := b.server.of("claim"); r[1].at.Sub(r[0].at) < 950*time.Millisecond {
		b.Errorf("the second claim came after %v", r[1].at.Sub(r[0].at))
	}
}

func anAckIsRepeated(b *jobBench) {
	b.open(quickJobs())
	var steps []Step
	for range 6 {
		steps = append(steps, Step{Cut: true})
	}
	b.server.script("settle", append(steps, Step{Lose: true}, Step{})...)
	id := b.put("welcome", act("ok", 0, 1))
	b.work(quickWork())
	b.until("it is acked", func() bool { return b.state(id).State == "" })
	if account := b.stop(""); len(account.Handled) != 1 {
		b.Errorf("got %+v", account)
	}
	if n := len(b.server.of("settle")); n != len(steps)+2 {
		b.Errorf("%d settlements", n)
	}
}

func aWorkerGoesOnWhileItsTokenIsRejected(b *jobBench) {
	b.open(quickJobs())
	rejected := []Step{{Status: 401, Code: "unauthorized"}, {Status: 403, Code: "forbidden"}, {Status: 404, Code: "no_such_namespace"}}
	for _, route := range []string{"claim", "settle"} {
		b.server.script(route, append(slices.Clone(rejected), Step{})...)
	}
	id := b.put("welcome", act("ok", 0, 1))
	b.work(quickWork())
	b.until("it is done", func() bool { return b.state(id).State == "" })
	if account := b.stop(""); account.RequestErrors != len(rejected) || len(account.Handled) != 1 {
		b.Errorf("got %+v", account)
	}
}

func aWorkerGivesUp(b *jobBench) {
	for word, step := range map[string]Step{"unauthorized": {Status: 401, Code: "unauthorized"}, "no_namespace": {Status: 404, Code: "no_such_namespace"}} {
		b.open(quickJobs())
		b.server.script("claim", step)
		before := len(b.server.of("claim"))
		b.work(with(quickWork(), "give_up_after", 50))
		b.until("it has tried", func() bool { return len(b.server.of("claim")) > before+1 })
		b.want(word, jobCommand{Op: "wait"})
	}
}

func aWorkerWhoseRequestIsWrongEnds(b *jobBench) {
	b.open(quickJobs())
	b.server.script("claim", Step{Status: 400, Code: "bad_ttr"})
	b.work(quickWork())
	b.want("invalid", jobCommand{Op: "wait"})
	if n := len(b.server.of("claim")); n != 1 {
		b.Errorf("%d claims", n)
	}
}

func aWorkerWithoutAHookWarns(b *jobBench) {
	b.open(with(quickJobs(), "token", "s3cret"))
	b.server.script("claim", Step{Status: 401, Code: "unauthorized"})
	b.work(with(quickWork(), "no_hook", true))
	b.until("it has tried", func() bool { return len(b.server.of("claim")) > 5 })
	b.until("it warns", func() bool { return strings.Contains(b.driver.said(), b.server.url) })
	b.server.script("claim", Step{Status: 503, Code: "overloaded"})
	b.until("it warns again", func() bool { return strings.Contains(b.driver.said(), "overloaded") })
	b.stop("")
	wantWarnings(b, b.driver.said(), b.server.url, "unauthorized", "overloaded")
}

func moreJobsThanWereAskedForAreNone(b *jobBench) {
	b.open(quickJobs())
	jobs := `{"queue":"welcome","id":"0ATN8Z2M3QF6Y00000G4S7W1KX","attempt":1,"tries":1,"data":"eA=="}`
	b.server.script("claim", Step{Body: fmt.Sprintf(`{"jobs":[%s,%s]}`, jobs, jobs)}, Step{})
	id := b.put("welcome", act("ok", 0, 1))
	b.work(quickWork())
	b.until("it is done", func() bool { return b.state(id).State == "" })
	if account := b.stop(""); account.RequestErrors != 1 || len(account.Handled) != 1 {
		b.Errorf("got %+v", account)
	}
}

func aUniqueJobIsStoredOnce(b *jobBench) {
	b.open(quickJobs())
	o := func(conflict string) map[string]any {
		return with(map[string]any{"unique": 90_000, "unique_key": "cart 7", "delay": 60_000}, "on_conflict", conflict)
	}
	first := b.publish(o("keep"), "1")
	for _, row := range []struct {
		conflict, payload string
		changed           bool
	}{{"keep", "1", false}, {"replace", "3", true}, {"extend", "3", true}} {
		again := b.publish(o(row.conflict), "3")
		got := b.want("", jobCommand{Op: "get", Queue: "welcome", ID: first.IDs[0]}).Jobs[0].payload()
		if !again.Exists || again.Changed != row.changed || again.Repeated || again.IDs[0] != first.IDs[0] || got != row.payload {
			b.Errorf("%s: got %+v, and %q", row.conflict, again, got)
		}
	}
	if unique, err := time.ParseDuration(b.server.of("publish")[0].query["unique"]); first.Exists || err != nil || unique != 90*time.Second {
		b.Errorf("got %+v by %v", first, b.server.of("publish")[0].query)
	}
}

func anAckTellsAResult(b *jobBench) {
	b.open(with(quickJobs(), "timeout", 1_000))
	kept, gone := b.publish(nil, "1").IDs[0], b.publish(nil, "2").IDs[0]
	b.claim(2, map[string]any{"count": 2})
	get := func(id string, wait int) saidJob {
		r := b.ask(jobCommand{Op: "get", Queue: "welcome", ID: id, Options: map[string]any{"wait": wait}})
		return append(r.Jobs, saidJob{State: r.Error})[0]
	}
	if j := get(kept, 20); j.State != "leased" || j.payload() != "1" {
		b.Errorf("before its end: %+v", j)
	}
	result := map[string]any{"n": []any{1.0, "é\n", nil}, "o": map[string]any{}}
	ack := jobCommand{Op: "settle", Do: "ack", Queue: "welcome", ID: kept, Attempt: 1, Result: strings.Repeat("x", 5000)}
	b.want("invalid", ack)
	ack.Result = result
	b.want("", ack)
	if j := get(kept, 50_000); j.State != "acked" || !reflect.DeepEqual(j.Result, result) {
		b.Errorf("got %+v", j)
	}
	read, before := make(chan saidJob), len(b.server.of("get"))
	go func() { read <- get(gone, 50_000) }()
	b.until("it waits", func() bool { return len(b.server.of("get")) > before })
	time.Sleep(1500 * time.Millisecond) // beyond the timeout
	b.server.do(http.MethodPost, "welcome/settle", fmt.Sprintf(`{"id":%q,"do":"ack"}`, gone))
	if j := <-read; j.State != "gone" || j.ID != gone || len(b.server.of("get")) != before+1 {
		b.Errorf("the end of a job that is not kept: %+v in %d requests", j, len(b.server.of("get"))-before)
	}
}

func whatAHandlerReturnsIsTheResult(b *jobBench) {
	b.open(quickJobs())
	results := map[string]any{}
	for _, do := range []string{"result", "bad_result", "big_result", "ok"} {
		results[b.put("welcome", act(do, 0, 1))] = map[string]any{"result": map[string]any{"done": true}}[do]
	}
	b.work(quickWork())
	b.until("all are done", func() bool {
		for id := range results {
			if state := b.state(id).State; state != "" && state != "acked" {
				return false
			}
		}
		return true
	})
	if account := b.stop(""); account.Errors != 2 || account.RequestErrors != 0 || len(account.Handled) != 4 {
		b.Errorf("got %+v", account)
	}
	for id, want := range results {
		b.wantSettled(id, "ack")
		if got := b.state(id); !reflect.DeepEqual(got.Result, want) {
			b.Errorf("got %+v, want %v", got, want)
		}
	}
}
