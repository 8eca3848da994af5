//go:build php

package php

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

func sum(b []byte) string {
	s := md5.Sum(b)
	return hex.EncodeToString(s[:])
}

// isThink tells a library of ThinkPHP, whose jobs have neither fail() nor middleware.
func (f flavor) isThink() bool { return f.library != "" }

// asked is what a job does, and what becomes of it then, with a back-off of 3 s.
type asked struct {
	acts  string
	do    string
	delay int
	not   []string // applications without it
}

var asks = []asked{
	{"delete", "delete", 0, nil},
	{"release:5", "release", 5, nil},
	{"release", "release", 0, nil},
	{"", "forgot", 0, nil},
	// In Redis the last release counts, and a delete does not take it back.
	{"release:5 release:9", "release", 9, nil},
	{"release:5 delete", "release", 5, nil},
	{"delete release:5", "release", 5, nil},
	{"release:5 throw:later", "release", 5, nil},
	{"delete throw:later", "delete", 0, nil},
	{"throw:x", "release", 3, nil},
	{"error:x", "release", 3, []string{"think2"}}, // whose worker does not catch an Error
	{"error:x", "forgot", 0, []string{"think3", "laravel"}},
	{"fail:x", "failed", 0, []string{"think2", "think3"}},
	{"fail:x release:5", "release", 5, []string{"think2", "think3"}},
	{"print:hello delete", "delete", 0, nil},
}

func (a asked) of(p *project) bool { return !slices.Contains(a.not, p.app) }

func TestWhatAJobAsksForIsTheAnswer(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		c := p.start(t, 0)
		for _, tt := range append(asks, asked{"release:-5", "release", 0, nil}) {
			if !tt.of(p) {
				continue
			}
			p.push(t, note(strings.Fields(tt.acts)...))
			d := p.claim(t)
			a := c.run(t, d)
			if a.Do != tt.do || a.Delay != tt.delay {
				t.Errorf("%q: got %s with delay %d and %q, want %s with %d", tt.acts, a.Do, a.Delay, a.error(), tt.do, tt.delay)
			}
			if throws := strings.Contains(tt.acts, "throw") || strings.Contains(tt.acts, ":x"); throws != (a.error() != "") {
				t.Errorf("%q: the error is %q", tt.acts, a.error())
			}
			p.settle(t, d, answer{Do: "delete"})
		}
		// What a job prints never reaches descriptor 3.
		if out := c.end(t); strings.Count(out, `{"seq":"1","do":"delete"`) != 1 || !strings.Contains(out, "hello to stderr") {
			t.Errorf("the output of the jobs is %q", out)
		}
	})
}

// The answers of the test above are what the library's own worker does to Redis.
func TestTheLibrarysWorkerDoesInRedisWhatTheAnswersSay(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		ctx := context.Background()
		for _, tt := range asks {
			if !tt.of(p) {
				continue
			}
			p.push(t, note(strings.Fields(tt.acts)...))
			began := time.Now().Unix()
			if out, err := p.php(t, append(slices.Clone(p.once), p.queue)...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			took := time.Now().Unix() - began
			delayed := p.redis.ZRangeWithScores(ctx, p.key+":delayed", 0, -1).Val()
			reserved, ready := p.redis.ZCard(ctx, p.key+":reserved").Val(), p.redis.LLen(ctx, p.key).Val()
			if ready != 0 || (reserved == 1) != (tt.do == "forgot") || (len(delayed) == 1) != (tt.do == "release") {
				t.Errorf("%q: %d ready, %d reserved, delayed are %v, want what %s means", tt.acts, ready, reserved, delayed, tt.do)
			}
			if late := int64(tt.delay) + began; len(delayed) == 1 && (int64(delayed[0].Score) < late || int64(delayed[0].Score) > late+took) {
				t.Errorf("%q: it comes again after %v s, want %d", tt.acts, int64(delayed[0].Score)-began, tt.delay)
			}
			must(t, p.redis.Del(ctx, p.key, p.key+":delayed", p.key+":reserved", p.key+":notify").Err())
		}
	}, think3, think2, laravel)
}

func TestAnAnswerAfterThrowNamesClassAndMessage(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		p.push(t, note("throw:no such mailbox"), note("throw-bytes"))
		c := p.start(t, 0)
		if a := c.next(t); a.error() != "RuntimeException: no such mailbox" {
			t.Errorf("the error is %q", a.error())
		}
		// Of bytes that are no text and are too many, what fits.
		d := p.claim(t)
		for strings.Contains(d.payload, "mailbox") {
			p.settle(t, d, answer{Do: "delete"})
			d = p.claim(t)
		}
		if a := c.run(t, d); !strings.HasPrefix(a.error(), "RuntimeException: \ufffdü") || len(a.error()) > 5000 {
			t.Errorf("the error has %d bytes and begins with %.40q", len(a.error()), a.error())
		}
	})
}

func TestAThrowingJobGoesBackUntilItsTriesAreUsedUp(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		p.push(t, note("throw:x"))
		c := p.start(t, 3)
		want := []string{"release", "release", "failed"}
		if p.app == "think2" { // whose worker fails a job at the delivery after its last
			want = []string{"release", "release", "release", "failed"}
		}
		for attempt, do := range want {
			a := c.next(t)
			if a.Do != do || do == "release" && a.Delay != 3 {
				t.Errorf("attempt %d: got %+v: %s, want %s after 3 s", attempt+1, a, a.error(), do)
			}
			if n := p.count(t, failed); (n == 1) != (do == "failed") {
				t.Errorf("attempt %d: failed() has run %d times", attempt+1, n)
			}
		}
		c.end(t)
		var attempts []int
		for _, s := range p.seen(t) {
			if ran(s) {
				attempts = append(attempts, s.Ran)
			}
			if failed(s) && p.app != "think2" && *s.Failed != "RuntimeException" {
				t.Errorf("failed() got %q", *s.Failed)
			}
			if failedJobs(s) && s.FailedJobs != "shop" {
				t.Errorf("failed_jobs has the connection %q", s.FailedJobs)
			}
		}
		if !slices.Equal(attempts, []int{1, 2, 3}) {
			t.Errorf("the job saw the attempts %v, want 1 2 3", attempts)
		}
		if n := p.count(t, failedJobs); p.app != "think2" && n != 1 {
			t.Errorf("failed_jobs has %d rows, want 1", n)
		}
	})
}

func TestTriesOfThePayloadWin(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		p.push(t, command(map[string]any{"tries": 2}, "throw:x"))
		c := p.start(t, 1)
		if a := c.next(t); a.Do != "release" {
			t.Errorf("attempt 1: got %+v", a)
		}
		if a := c.next(t); a.Do != "failed" {
			t.Errorf("attempt 2: got %+v", a)
		}
	}, think3, laravel, artisan)
}

func TestTheEndOfRetriesOfThePayloadWins(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		name := "retryUntil"
		if p.isThink() {
			name = "timeoutAt"
		}
		// Over, it fails unrun; not over, the tries of a job do not count in Laravel.
		p.push(t, command(map[string]any{name: time.Now().Unix() - 5}, "delete"))
		c := p.start(t, 1)
		if a := c.next(t); a.Do != "failed" || !strings.Contains(a.error(), "MaxAttemptsExceeded") {
			t.Errorf("over: got %+v: %s", a, a.error())
		}
		if n := p.count(t, func(s seen) bool { return ran(s) || s.Handled }); n != 0 {
			t.Error("the job ran after its end of retries")
		}
		if p.isThink() {
			return
		}
		p.push(t, command(map[string]any{name: time.Now().Unix() + 1000}, "throw:x"))
		for range 3 {
			if a := c.next(t); a.Do != "release" {
				t.Errorf("not over: got %+v", a)
			}
		}
	}, think3, laravel, artisan)
}

func TestBackoffAndMiddlewareAreLaravels(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		p.push(t, command(map[string]any{"backoff": []int{1, 50}, "tries": 4}, "throw:x"))
		c := p.start(t, 1)
		for attempt, delay := range []int{1, 50, 50} {
			if a := c.next(t); a.Do != "release" || a.Delay != delay {
				t.Errorf("attempt %d: got %+v, want release after %d s", attempt+1, a, delay)
			}
		}
		if a := c.next(t); a.Do != "failed" {
			t.Errorf("at its last try: got %+v", a)
		}
		p.push(t, command(map[string]any{"held": true}, "delete"))
		if a := c.next(t); a.Do != "release" || a.Delay != 7 {
			t.Errorf("held by a middleware: got %+v", a)
		}
		d := p.claim(t)
		p.settle(t, d, answer{Do: "delete"})
		p.push(t, command(map[string]any{"maxExceptions": 2, "tries": 9}, "throw:x"))
		if a, b := c.next(t), c.next(t); a.Do != "release" || b.Do != "failed" {
			t.Errorf("with two exceptions at most: got %+v, then %+v", a, b)
		}
		// What runs to its end is deleted, and what names a time to come back is told in seconds.
		p.push(t, command(nil))
		if a := c.next(t); a.Do != "delete" {
			t.Errorf("an object that has run: got %+v", a)
		}
		p.push(t, note("release-at:60"))
		if a := c.next(t); a.Do != "release" || a.Delay < 55 || a.Delay > 60 {
			t.Errorf("released until in 60 s: got %+v", a)
		}
	}, laravel, artisan)
}

// Spillway kills a job at its timeout and gives it back: the next delivery lets PHP fail it.
func TestAJobThatWasKilledAtItsLastTryFails(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		p.push(t, note("hang"))
		d := p.claim(t)
		c := p.start(t, 1)
		c.send(t, d)
		redistest.Until(t, time.Minute, "the job hangs", func() bool { return p.count(t, func(s seen) bool { return s.Hangs }) == 1 })
		must(t, c.cmd.Process.Kill())
		_ = c.cmd.Wait() // killed
		p.settle(t, d, answer{Do: "release"})
		if a := p.start(t, 1).next(t); a.Do != "failed" {
			t.Errorf("got %+v: %s", a, a.error())
		}
		if n, m := p.count(t, failed), p.count(t, ran); n != 1 || m != 1 {
			t.Errorf("the job ran %d times and failed() %d times, want once each", m, n)
		}
	})
}

func TestTheLibrarysEventsFireInTheChild(t *testing.T) {
	want := map[string]string{
		"think3":  "JobProcessing JobProcessed JobProcessing JobFailed JobExceptionOccurred WorkerStopping",
		"think2":  "worker_daemon_start worker_before_process worker_before_process worker_before_process queue_failed",
		"laravel": "Looping JobProcessing JobProcessed Looping JobProcessing JobFailed JobExceptionOccurred WorkerStopping",
	}
	onEach(t, func(t *testing.T, p *project) {
		p.push(t, note("delete"), note("throw:x"))
		c := p.start(t, 1)
		c.next(t)
		c.next(t)
		if p.app == "think2" {
			c.next(t)
		}
		c.end(t)
		var events []string
		for _, s := range p.seen(t) {
			if s.Event != "" {
				events = append(events, s.Event)
			}
		}
		if got := strings.Join(events, " "); got != want[p.app] {
			t.Errorf("got %s, want %s", got, want[p.app])
		}
		if n := p.count(t, func(s seen) bool { return s.Reported == "RuntimeException" }); p.app == "laravel" && n != 1 {
			t.Errorf("the exception was reported %d times, want once", n)
		}
	})
}

func TestEachJobHasAScopeOfItsOwnInLaravel(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		p.push(t, command(nil, "scope", "scope"), command(nil, "scope"))
		c := p.start(t, 1)
		c.next(t)
		c.next(t)
		var jobs []int
		for _, s := range p.seen(t) {
			if s.Scoped > 0 {
				jobs = append(jobs, s.Scoped)
			}
		}
		if !slices.Equal(jobs, []int{1, 2, 1}) {
			t.Errorf("the scopes counted %v, want 1 2, then 1", jobs)
		}
	}, laravel, artisan)
}

// Horizon's own queue fires events when it pops, deletes and releases, by which its dashboard and its metrics live.
// The package itself cannot be had here, so stand-ins with its constructors take its place.
func TestTheEventsOfHorizonAreFiredWhereThereIsHorizon(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		p.env = append(p.env, "HORIZON=1")
		c := p.start(t, 1)
		shown := 0
		for _, tt := range []struct {
			act  string
			want []string
		}{
			{"delete", []string{"JobReserved", "JobDeleted false"}},
			{"release:5", []string{"JobReserved", "JobReleased 5"}},
			{"throw:x", []string{"JobReserved", "JobDeleted true", "JobFailed RuntimeException"}},
		} {
			p.push(t, note(tt.act))
			d := p.claim(t)
			c.run(t, d)
			p.settle(t, d, answer{Do: "delete"})
			var got []string
			all := p.seen(t)
			for _, s := range all[shown:] {
				switch s.Horizon {
				case "":
					continue
				case "JobDeleted":
					got = append(got, fmt.Sprint(s.Horizon, " ", s.HasFailed))
				case "JobReleased":
					got = append(got, fmt.Sprint(s.Horizon, " ", s.Delay))
				case "JobFailed":
					got = append(got, s.Horizon+" "+s.Reported)
				default:
					got = append(got, s.Horizon)
				}
				if s.Queue != p.queue || s.Connection != "shop" || s.Body != sum([]byte(d.payload)) {
					t.Errorf("%s: %+v is not of the job", tt.act, s)
				}
			}
			if shown = len(all); !slices.Equal(got, tt.want) {
				t.Errorf("%s: Horizon is told %q, want %q", tt.act, got, tt.want)
			}
		}
		// What is no job of Laravel's has no id, by which Horizon knows jobs.
		c.run(t, delivery{"7", `{"job":"App\\Jobs\\Note@fire","data":{"acts":["delete"]},"attempts":0}`, 1})
		for _, s := range p.seen(t)[shown:] {
			if s.Horizon != "" {
				t.Errorf("without an id: %+v", s)
			}
		}
	}, laravel, artisan)
}
