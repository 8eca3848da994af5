package clienttest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// jobCases are the cases of RunQueues.
var jobCases = map[string]func(*jobBench){
	"a job is claimed as it was published":                          aJobIsClaimedAsItWasPublished,
	"options of a publish reach the service":                        optionsOfAPublishReachTheService,
	"a unique job is stored once, and changed as a double says":     aUniqueJobIsStoredOnce,
	"many jobs are published in one request":                        manyJobsArePublishedInOneRequest,
	"what no service takes is not sent":                             whatNoServiceTakesIsNotSent,
	"a claim waits for the first job":                               aClaimWaitsForTheFirstJob,
	"a claim of nothing is empty":                                   aClaimOfNothingIsEmpty,
	"a job ends as it is settled":                                   aJobEndsAsItIsSettled,
	"a settlement of a lease that is over is gone":                  aSettlementOfALeaseThatIsOverIsGone,
	"an error is told, 1 KiB of it":                                 anErrorIsTold,
	"progress is told with a touch, and read":                       progressIsTold,
	"an ack tells a result, and who waits for the end reads it":     anAckTellsAResult,
	"what a handler returns is the result of its job":               whatAHandlerReturnsIsTheResult,
	"times that no service takes are taken for the nearest":         timesThatNoServiceTakesAreTakenForTheNearest,
	"a publish whose answer is lost stores one job":                 aPublishWhoseAnswerIsLostStoresOneJob,
	"a publish that may be stored says so":                          aPublishThatMayBeStoredSaysSo,
	"an ack whose answer is lost is no error":                       anAckWhoseAnswerIsLostIsNoError,
	"a call waits as long as 429 says":                              aCallWaitsAsLongAs429Says,
	"a call is tried again while the service is away":               aCallIsTriedAgainWhileTheServiceIsAway,
	"a call that hangs ends after its timeout":                      aCallThatHangsEndsAfterItsTimeout,
	"a rejected call is not repeated":                               aRejectedCallIsNotRepeated,
	"an answer that is none of Spillway's is unknown":               anAnswerThatIsNoneIsUnknown,
	"the token is sent":                                             theTokenIsSent,
	"what a handler returns decides":                                whatAHandlerReturnsDecides,
	"a handler that throws fails its job alone":                     aHandlerThatThrowsFailsItsJobAlone,
	"hooks of a worker that throw change nothing":                   hooksOfAWorkerThatThrowChangeNothing,
	"handlers run at once, as many as concurrency says":             handlersRunAtOnce,
	"one handler runs at a time by default":                         oneHandlerRunsAtATime,
	"a lease is prolonged while its handler runs":                   aLeaseIsProlongedWhileItsHandlerRuns,
	"a handler whose lease is lost is told":                         aHandlerWhoseLeaseIsLostIsTold,
	"a job given back unbegun after a touch is uncounted":           aJobGivenBackAfterATouchIsUncounted,
	"a touch that fails is tried again before the lease ends":       aTouchThatFailsIsTriedAgain,
	"a handler that hangs is told to stop, and its job comes again": aHandlerThatHangsIsToldToStop,
	"a stop waits for handlers and leaves other jobs uncounted":     aStopWaitsForHandlers,
	"jobs that arrive during a stop go back uncounted":              jobsThatArriveDuringAStopGoBack,
	"a worker that waits stops at once":                             aWorkerThatWaitsStopsAtOnce,
	"a worker outlives a service that is away":                      aWorkerOutlivesAServiceThatIsAway,
	"a worker outlives answers that are none":                       aWorkerOutlivesAnswersThatAreNone,
	"a worker waits as long as 429 says":                            aWorkerWaitsAsLongAs429Says,
	"an ack that is not answered is repeated until it is":           anAckIsRepeated,
	"a worker goes on while its token is rejected":                  aWorkerGoesOnWhileItsTokenIsRejected,
	"a worker gives up when it was told to":                         aWorkerGivesUp,
	"a worker whose request is wrong ends":                          aWorkerWhoseRequestIsWrongEnds,
	"more jobs than were asked for are none":                        moreJobsThanWereAskedForAreNone,
	"a lease is for as long as the queue says, unless told":         aLeaseIsAsLongAsTheQueueSays,
	"a worker without a hook warns once of each failure":            aWorkerWithoutAHookWarns,
	"a publish that a buffer takes says so, and is not repeated":    aPublishIntoABufferSaysSo,
}

func aJobIsClaimedAsItWasPublished(b *jobBench) {
	b.open(quickJobs())
	for _, payload := range []string{"{\"to\":\"ada\"}", "a\n\x00\xff\r\n", strings.Repeat("x", 100_000)} {
		id := b.publish(nil, payload).IDs[0]
		j := b.claim(1, nil)[0]
		if j.ID != id || j.Queue != "welcome" || j.Attempt != 1 || j.Tries != 25 || j.payload() != payload {
			b.Errorf("got %.200v", j)
		}
		b.settle("", "ack", j, 0, "")
	}
	r := b.server.of("claim")[0]
	if r.path != "urgent,welcome/claim" || r.query["wait"] != "" {
		b.Errorf("claimed by %v", r)
	}
}

func optionsOfAPublishReachTheService(b *jobBench) {
	b.open(quickJobs())
	o := map[string]any{"delay": 90_000, "ttl": 3_600_000, "tries": 7, "id": "order-7", "key": "k-1", "dedup": 600_000, "on_end": "ended", "attributes": map[string]string{"tenant": "r&d", "note": ""}}
	first := b.publish(o, "1")
	b.wantState(first.IDs[0], "delayed")
	r := b.server.of("publish")[0]
	for name, want := range map[string]time.Duration{"delay": 90 * time.Second, "ttl": time.Hour, "dedup": 10 * time.Minute} {
		if got, err := time.ParseDuration(r.query[name]); err != nil || got != want {
			b.Errorf("%s: got %q", name, r.query[name])
		}
	}
	if r.key != "k-1" || r.query["tries"] != "7" || r.query["id"] != "order-7" || r.query["on_end"] != "ended" || r.query["attribute.tenant"] != "r&d" {
		b.Errorf("got %+v", r)
	}
	if note, sent := r.query["attribute.note"]; !sent || note != "" {
		b.Errorf("got %+v without an empty attribute", r)
	}
	const at = 4_102_444_800_250
	b.publish(map[string]any{"at": at, "shards": 2}, "3")
	if r := b.server.of("publish")[1]; r.query["shards"] != "2" {
		b.Errorf("shards: got %+v", r)
	} else if got, err := time.Parse(time.RFC3339Nano, r.query["at"]); err != nil || got.UnixMilli() != at {
		b.Errorf("at: got %q", r.query["at"])
	}
	if again := b.publish(o, "1"); !again.Repeated || again.IDs[0] != first.IDs[0] {
		b.Errorf("the same key: got %+v", again)
	}
	if again := b.publish(map[string]any{"id": "order-7"}, "2"); !again.Exists || again.Repeated || again.IDs[0] != first.IDs[0] {
		b.Errorf("the same id: got %+v", again)
	}
}

func manyJobsArePublishedInOneRequest(b *jobBench) {
	b.open(quickJobs())
	if r := b.publish(nil, "1", "two", `{"n":3}`); len(r.IDs) != 3 || len(b.server.of("publish")) != 1 {
		b.Errorf("got %+v in %d requests", r, len(b.server.of("publish")))
	}
	jobs := b.claim(3, map[string]any{"count": 10, "ttr": 90_000})
	if jobs[0].payload() != "1" || jobs[2].payload() != `{"n":3}` {
		b.Errorf("got %v", jobs)
	}
	if ttr, err := time.ParseDuration(b.server.of("claim")[0].query["ttr"]); err != nil || ttr != 90*time.Second {
		b.Errorf("got %v", b.server.of("claim")[0].query)
	}
	if r := b.want("", jobCommand{Op: "counts", Queue: "welcome"}); r.Leased != 3 || r.Ready+r.Delayed+r.Dead != 0 {
		b.Errorf("got %+v", r)
	}
}

func whatNoServiceTakesIsNotSent(b *jobBench) {
	b.open(quickJobs())
	b.want("empty", publishCommand(nil, ""))
	b.want("empty", publishCommand(nil, "1", ""))
	b.want("invalid", publishCommand(nil, "1", "a\nb"))
	b.want("invalid", publishCommand(nil, "1", "a\r"))
	for _, queue := range []string{"_x", ".x", "a/b", "a,b", "ü", strings.Repeat("x", 256)} {
		c := publishCommand(nil, "1")
		c.Queue = queue
		b.want("invalid", c)
		b.want("invalid", jobCommand{Op: "claim", Queues: []string{"a", queue}})
		b.want("invalid", jobCommand{Op: "settle", Do: "ack", Queue: queue, ID: "x", Attempt: 1})
	}
	if paths := b.server.paths(); len(paths) != 0 {
		b.Errorf("requests came: %v", paths)
	}
}

func aClaimWaitsForTheFirstJob(b *jobBench) {
	b.open(with(quickJobs(), "timeout", 1_000))
	claimed := make(chan jobReply)
	go func() {
		claimed <- b.ask(jobCommand{Op: "claim", Queues: []string{"urgent", "welcome"}, Options: map[string]any{"wait": 50_000}})
	}()
	b.until("the claim waits", func() bool { return len(b.server.of("claim")) == 1 })
	time.Sleep(1500 * time.Millisecond) // beyond the timeout
	id := b.put("welcome", "1")
	if r := <-claimed; r.Error != "" || len(r.Jobs) != 1 || r.Jobs[0].ID != id || len(b.server.of("claim")) != 1 {
		b.Errorf("got %+v in %d requests", r, len(b.server.of("claim")))
	}
}

func aClaimOfNothingIsEmpty(b *jobBench) {
	b.open(quickJobs())
	b.claim(0, nil)
	b.claim(0, map[string]any{"wait": 20})
	b.claim(0, map[string]any{"ttr": 0})
	if r := b.server.of("claim")[2]; r.query["ttr"] != "" {
		b.Errorf("got %v for the ttr of the queue", r.query)
	}
}

func aJobEndsAsItIsSettled(b *jobBench) {
	b.open(quickJobs())
	for _, row := range []struct {
		do      string
		ms      int64
		state   string
		attempt int
	}{
		{"ack", 0, "", 0}, {"nack", 0, "ready", 1}, {"nack", 60_000, "delayed", 1}, {"bury", 0, "dead", 0}, {"requeue", 0, "ready", 0}, {"touch", 60_000, "leased", 1},
	} {
		id := b.put("welcome", "1")
		b.settle("", row.do, b.claim(1, nil)[0], row.ms, "")
		if j := b.state(id); j.State != row.state || j.Attempt != row.attempt {
			b.Errorf("after %s %d: %q, attempt %d", row.do, row.ms, j.State, j.Attempt)
		}
		if row.state != "" {
			r := b.want("", jobCommand{Op: "get", Queue: "welcome", ID: id})
			if len(r.Jobs) != 1 || r.Jobs[0].State != row.state || r.Jobs[0].ID != id {
				b.Errorf("get: %+v", r)
			}
			b.want("", jobCommand{Op: "delete", Queue: "welcome", ID: id})
		}
		b.want("no_job", jobCommand{Op: "get", Queue: "welcome", ID: id})
		b.want("no_job", jobCommand{Op: "delete", Queue: "welcome", ID: id})
	}
}

func aSettlementOfALeaseThatIsOverIsGone(b *jobBench) {
	b.open(quickJobs())
	b.put("welcome", "1")
	j := b.claim(1, nil)[0]
	b.settle("", "nack", j, 0, "")
	for _, do := range []string{"nack", "bury", "touch", "requeue"} {
		b.settle("gone", do, j, 1000, "")
	}
	b.settle("", "ack", j, 0, "") // counts, though late
	b.settle("gone", "ack", j, 0, "")
}

func anErrorIsTold(b *jobBench) {
	b.open(quickJobs())
	b.put("welcome", "1")
	b.put("welcome", "2")
	jobs := b.claim(2, map[string]any{"count": 2})
	b.settle("", "nack", jobs[0], 0, "no such \"user\"\n")
	b.settle("", "bury", jobs[1], 0, "x"+strings.Repeat("ü", 2000))
	for i, r := range b.server.of("settle") {
		var line struct{ Error string }
		if err := json.Unmarshal([]byte(r.body), &line); err != nil || !utf8.ValidString(line.Error) {
			b.Errorf("got %q", r.body)
		}
		if n := len(line.Error); i == 0 && line.Error != "no such \"user\"\n" || i == 1 && (n < 1022 || n > 1024) {
			b.Errorf("got %d bytes: %.40q", n, line.Error)
		}
	}
}

func progressIsTold(b *jobBench) {
	b.open(quickJobs())
	id := b.publish(nil, "1").IDs[0]
	j := b.claim(1, nil)[0]
	b.want("", jobCommand{Op: "settle", Do: "progress", Queue: j.Queue, ID: j.ID, Attempt: j.Attempt, MS: 90_000, Progress: 40, Note: "row \"7\" \\ \n é"})
	b.want("", jobCommand{Op: "settle", Do: "progress", Queue: j.Queue, ID: j.ID, Attempt: j.Attempt, Progress: 40, Note: "row \"7\" \\ \n é"})
	var line struct {
		Do, Note string
		MS       int64
		Progress *int
	}
	if sent := b.server.of("settle")[1].body; json.Unmarshal([]byte(sent), &line) != nil || line.MS != 60_000 {
		b.Errorf("sent %s for as long as a claim says by default", sent)
	}
	sent := b.server.of("settle")[0].body
	if err := json.Unmarshal([]byte(sent), &line); err != nil || line.Do != "touch" || line.MS != 90_000 || line.Progress == nil || *line.Progress != 40 {
		b.Errorf("sent %s", sent)
	}
	if got := b.want("", jobCommand{Op: "get", Queue: "welcome", ID: id}).Jobs; len(got) != 1 || got[0].Progress != 40 || got[0].Note != "row \"7\" \\ \n é" {
		b.Errorf("read %+v", got)
	}
}

func timesThatNoServiceTakesAreTakenForTheNearest(b *jobBench) {
	b.open(quickJobs())
	for _, row := range []struct {
		ms    int64
		state string
	}{{-999, "ready"}, {31 * 24 * 3600 * 1000, "delayed"}} {
		id := b.put("welcome", "1")
		b.settle("", "nack", b.claim(1, nil)[0], row.ms, "")
		b.wantState(id, row.state)
		b.server.do(http.MethodDelete, "welcome/jobs/"+id, "")
	}
}

func aPublishWhoseAnswerIsLostStoresOneJob(b *jobBench) {
	b.open(quickJobs())
	b.server.script("publish", Step{Lose: true}, Step{Lose: true}, Step{})
	if r := b.publish(nil, "1"); len(r.IDs) != 1 || r.Repeated {
		b.Errorf("got %+v", r)
	}
	b.claim(1, map[string]any{"count": 10})
	requests := b.server.of("publish")
	if len(requests) != 3 || requests[0].key == "" || requests[0].key != requests[2].key {
		b.Errorf("got %+v", requests)
	}
	b.publish(nil, "2")
	if r := b.server.of("publish"); r[3].key == r[0].key {
		b.Error("two publishes have one key")
	}
}

func aPublishThatMayBeStoredSaysSo(b *jobBench) {
	b.open(with(quickJobs(), "attempts", 2))
	b.server.script("publish", Step{Lose: true}, Step{Status: 503, Code: "store_unavailable"})
	b.want("unknown", publishCommand(nil, "1"))
	if n := len(b.server.of("publish")); n != 2 {
		b.Errorf("%d requests", n)
	}
	b.want("unavailable", publishCommand(nil, "1"))
}

func anAckWhoseAnswerIsLostIsNoError(b *jobBench) {
	b.open(quickJobs())
	b.put("welcome", "1")
	j := b.claim(1, nil)[0]
	b.server.script("settle", Step{Lose: true}, Step{})
	b.settle("", "ack", j, 0, "")
}

func aCallWaitsAsLongAs429Says(b *jobBench) {
	b.open(quickJobs())
	b.server.script("publish", Step{Status: 429, Code: "rate_limited", RetryAfter: 1}, Step{})
	b.publish(nil, "1")
	if r := b.server.of("publish"); len(r) != 2 || r[1].at.Sub(r[0].at) < 950*time.Millisecond {
		b.Errorf("got %+v", r)
	}
	b.server.script("publish", Step{Status: 429, Code: "too_many_jobs"})
	b.want("too_many_jobs", publishCommand(nil, "1"))
}

func aCallIsTriedAgainWhileTheServiceIsAway(b *jobBench) {
	b.open(quickJobs())
	for _, route := range []string{"publish", "claim", "settle"} {
		b.server.script(route, Step{Cut: true}, Step{Status: 503, Code: "overloaded"}, Step{Status: 502, Body: "<html>"}, Step{})
	}
	b.publish(nil, "1")
	b.settle("", "ack", b.claim(1, nil)[0], 0, "")
	for _, route := range []string{"publish", "claim", "settle"} {
		if n := len(b.server.of(route)); n != 4 {
			b.Errorf("%s: %d requests", route, n)
		}
	}
	b.server.script("publish", Step{Status: 503, Code: "overloaded"})
	b.want("unavailable", publishCommand(nil, "1"))
	if n := len(b.server.of("publish")); n != 8 {
		b.Errorf("%d requests, want 4 more", n)
	}
}

func aCallThatHangsEndsAfterItsTimeout(b *jobBench) {
	b.open(with(quickJobs(), "timeout", 2_000))
	b.server.script("publish", Step{Hang: true}, Step{})
	b.publish(nil, "1")
}

func aRejectedCallIsNotRepeated(b *jobBench) {
	b.open(quickJobs())
	for i, row := range []struct {
		step Step
		want string
	}{
		{Step{Status: 400, Code: "bad_delay"}, "invalid"}, {Step{Status: 401, Code: "unauthorized"}, "unauthorized"}, {Step{Status: 403, Code: "forbidden"}, "unauthorized"},
		{Step{Status: 404, Code: "no_such_namespace"}, "no_namespace"}, {Step{Status: 413, Code: "entry_too_large"}, "too_large"}, {Step{Status: 404, Body: "<html>"}, "invalid"},
		{Step{Status: 302, Body: "x"}, "invalid"},
	} {
		b.server.script("publish", row.step)
		b.want(row.want, publishCommand(nil, "1"))
		if n := len(b.server.of("publish")); n != i+1 {
			b.Fatalf("%d requests for %d calls", n, i+1)
		}
	}
}

func aPublishIntoABufferSaysSo(b *jobBench) {
	b.open(quickJobs())
	b.server.script("publish", Step{Body: `{"accepted":1,"evicted":0,"rejected":0,"results":[]}`})
	b.want("no_namespace", publishCommand(nil, "1"))
	b.want("no_namespace", publishCommand(nil, "1", "2"))
	if n := len(b.server.of("publish")); n != 2 {
		b.Errorf("%d requests", n)
	}
}

// noneOfSpillways are bodies with status 200, one a line, that answer neither a publish, nor a claim,
// nor an ack of one job.
const noneOfSpillways = `<html>welcome</html>
null
true
7
[]
{}
{"ids":
{"ids":null,"jobs":null,"results":null}
{"ids":7,"jobs":7,"results":7}
{"ids":[],"jobs":[null],"results":[]}
{"ids":[7],"jobs":[7],"results":[7]}
{"ids":[null],"jobs":[{}],"results":[null]}
{"ids":{},"jobs":[{"queue":"welcome"}],"results":[{}]}
{"ids":[{}],"jobs":[{"queue":"other","id":"x","attempt":1,"tries":1,"data":""}],"results":[{"i":0}]}
{"ids":"x","jobs":[{"queue":"welcome","id":"x","attempt":"1","tries":1,"data":""}],"results":[{"i":0,"state":7}]}
{"ids":[[]],"jobs":[{"queue":"welcome","id":7,"attempt":1,"tries":1,"data":""}],"results":[{"i":0,"state":"acked"},{"i":1,"state":"acked"}]}
{"ids":true,"jobs":[{"queue":"welcome","id":"x","attempt":1,"tries":1,"data":"?"}],"results":{"i":0}}`

func anAnswerThatIsNoneIsUnknown(b *jobBench) {
	b.open(quickJobs())
	b.put("welcome", "1")
	j := b.claim(1, nil)[0]
	for body := range strings.SplitSeq(noneOfSpillways+"\n"+strings.Repeat("[", 100_000), "\n") {
		for _, route := range []string{"publish", "claim", "settle"} {
			b.server.script(route, Step{Body: body})
		}
		for _, c := range []jobCommand{publishCommand(nil, "1"), {Op: "claim", Queues: []string{"welcome"}}, {Op: "settle", Do: "ack", Queue: "welcome", ID: j.ID, Attempt: 1}} {
			if r := b.ask(c); r.Error != "unknown" {
				b.Errorf("%s answered %.80q: %+v", c.Op, body, r)
			}
		}
	}
}

func theTokenIsSent(b *jobBench) {
	b.open(with(quickJobs(), "token", "s3cret"))
	b.publish(nil, "1")
	b.settle("", "ack", b.claim(1, nil)[0], 0, "")
	for _, route := range []string{"publish", "claim", "settle"} {
		if r := b.server.of(route); r[0].token != "s3cret" {
			b.Errorf("%s: got %q", route, r[0].token)
		}
	}
}

// jobsHandled are those of one job.
func jobsHandled(r jobReply, id string) (list []handled) {
	for _, h := range r.Handled {
		if h.ID == id {
			list = append(list, h)
		}
	}
	return list
}

// act is a payload that tells a handler what to do.
func act(do string, ms int, attempts int) string {
	return fmt.Sprintf(`{"do":%q,"ms":%d,"attempts":%d}`, do, ms, attempts)
}

// settled are the words of the settlements of a job, in their order, without its touches.
func (b *jobBench) settled(id string) (list []string) {
	for _, r := range b.server.of("settle") {
		for line := range strings.SplitSeq(strings.TrimSpace(r.body), "\n") {
			var said struct{ ID, Do string }
			if err := json.Unmarshal([]byte(line), &said); err != nil {
				b.Errorf("a line of a settle: %q", line)
			}
			if said.ID == id && said.Do != "touch" {
				list = append(list, said.Do)
			}
		}
	}
	return list
}

func (b *jobBench) wantSettled(id string, want ...string) {
	b.Helper()
	if got := b.settled(id); !slices.Equal(got, want) {
		b.Errorf("settled by %v, want %v", got, want)
	}
}
