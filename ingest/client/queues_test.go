package spillway_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	spillway "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/client/clienttest"
)

func openJobs(t testing.TB, transport http.RoundTripper) *spillway.Queues {
	t.Helper()
	j, err := spillway.NewQueues("http://127.0.0.1:1", spillway.QueuesConfig{Namespace: "mail", Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func publish(t testing.TB, j *spillway.Queues, queue, payload string, o spillway.PublishOptions) string {
	t.Helper()
	p, err := j.Publish(t.Context(), queue, []byte(payload), o)
	if err != nil || len(p.IDs) != 1 {
		t.Fatalf("got %v, %v", p, err)
	}
	return p.IDs[0]
}

func takeOne(t testing.TB, j *spillway.Queues, queue string, ttr time.Duration) spillway.Job {
	t.Helper()
	jobs, err := j.Claim(t.Context(), []string{"none", queue}, spillway.ClaimOptions{TTR: ttr})
	if err != nil || len(jobs) != 1 {
		t.Fatalf("got %v, %v", jobs, err)
	}
	return jobs[0]
}

func TestAttemptsWaitAsLongAsTheServiceSays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := clienttest.NewQueues()
		failures := 2
		service.Fail = func(*http.Request) (*http.Response, error) {
			if failures--; failures < 0 {
				return nil, nil
			}
			answer := clienttest.Answer(503, `{"error":"overloaded","message":"m"}`)
			answer.Header.Set("Retry-After", "7")
			return answer, nil
		}
		began := time.Now()
		j := openJobs(t, service)
		publish(t, j, "welcome", "x", spillway.PublishOptions{})
		if took := time.Since(began); took < 14*time.Second || took > 15*time.Second {
			t.Errorf("it took %v", took)
		}
		failures = 100
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := j.Peek(ctx, "welcome"); !errors.Is(err, spillway.ErrUnavailable) || ctx.Err() != nil {
			t.Errorf("got %v, want ErrUnavailable at once", err)
		}
	})
}

func TestAnswersAreErrorsThatTellWhatToDo(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		status int
		body   string
		want   error
		text   string
	}{
		{404, `{"error":"no_such_job","message":"m"}`, spillway.ErrNoJob, "no_such_job: m"},
		{429, `{"error":"too_many_jobs","message":"m"}`, spillway.ErrTooManyJobs, ""},
		{429, `{"error":"too_many_queues","message":"m"}`, spillway.ErrTooManyQueues, ""},
		{429, `{"error":"rate_limited","message":"m"}`, spillway.ErrRateLimited, ""},
		{429, ``, spillway.ErrRateLimited, "429"},
		{401, `{"error":"unauthorized","message":"m"}`, spillway.ErrUnauthorized, ""},
		{413, `{"error":"entry_too_large","message":"m"}`, spillway.ErrTooLarge, ""},
		{400, `{"error":"bad_delay","message":"m"}`, spillway.ErrInvalid, "bad_delay: m"},
		{404, `<html>`, spillway.ErrInvalid, "404 Not Found"},
		{503, `{"error":"store_unavailable","message":"m"}`, spillway.ErrUnavailable, ""},
		{503, `{"error":"store_unavailable","message":"m","outcome":"unknown"}`, spillway.ErrUnknown, ""},
		{502, `<html>`, spillway.ErrUnknown, "502"},
		{200, `<html>`, spillway.ErrUnknown, "none of Spillway's"},
		{302, ``, spillway.ErrInvalid, "302"},
	} {
		j, err := spillway.NewQueues("http://127.0.0.1:1", spillway.QueuesConfig{Attempts: 1, Transport: &answers{status: row.status, body: row.body}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = j.Peek(t.Context(), "welcome")
		var e *spillway.Error
		if !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.text) || !errors.As(err, &e) || e.Unknown != (row.want == spillway.ErrUnknown) {
			t.Errorf("%d %s: got %v", row.status, row.body, err)
		}
	}
}

func TestATraceIsRead(t *testing.T) {
	t.Parallel()
	body := `{"events":[{"at_ms":1764000000000,"event":"claimed","by":"push","attempt":1},{"at_ms":1764000000040,"event":"written","attempt":1,"sink":"crm","outcome":"retried","status":503,"ms":40},{"at_ms":1764000000041,"event":"nacked","attempt":1,"error":"busy"}]}`
	j, err := spillway.NewQueues("http://127.0.0.1:1", spillway.QueuesConfig{Attempts: 1, Transport: &answers{status: 200, body: body}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := j.Trace(t.Context(), "welcome", "0AT")
	want := []spillway.TraceEvent{
		{At: time.UnixMilli(1764000000000), Event: "claimed", By: "push", Attempt: 1},
		{At: time.UnixMilli(1764000000040), Event: "written", Attempt: 1, Sink: "crm", Outcome: "retried", Status: 503, Took: 40 * time.Millisecond},
		{At: time.UnixMilli(1764000000041), Event: "nacked", Attempt: 1, Error: "busy"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

// Every code of the service means one of the errors: a new code must be looked at.
func TestEveryCodeHasAnError(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../wire/codes.go")
	if err != nil {
		t.Fatal(err)
	}
	invalid := regexp.MustCompile(`^(bad_.*|no_such_(route|partition|queue)|foreign_type|method_not_allowed|schedule_ended|revision_mismatch|headers_too_large|unsupported_.*)$`)
	others := []string{"too_many_partitions", "version_unsupported"} // of buffers, and of the admin port
	found := 0
	for _, match := range regexp.MustCompile(`Code\w+ +Code = "(\w+)"`).FindAllStringSubmatch(string(source), -1) {
		code := match[1]
		found++
		if slices.Contains(others, code) {
			continue
		}
		j, err := spillway.NewQueues("http://127.0.0.1:1", spillway.QueuesConfig{Attempts: 1, Transport: &answers{status: 400, body: `{"error":"` + code + `","message":"m"}`}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := j.Peek(t.Context(), "welcome"); errors.Is(err, spillway.ErrInvalid) != invalid.MatchString(code) {
			t.Errorf("%s: got %v", code, err)
		}
	}
	if found < 40 {
		t.Errorf("found %d codes", found)
	}
}

func TestWhatNoClientCanDoIsRejected(t *testing.T) {
	t.Parallel()
	for _, cfg := range []spillway.QueuesConfig{{Namespace: "/"}, {Token: "a b"}, {Timeout: -1}, {BackoffBase: time.Second, BackoffMax: time.Millisecond}} {
		if _, err := spillway.NewQueues("http://127.0.0.1:1", cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
	if _, err := spillway.NewQueues("ftp://x", spillway.QueuesConfig{}); err == nil {
		t.Error("ftp is taken")
	}
}

func TestTheTokenIsNotShown(t *testing.T) {
	t.Parallel()
	service := clienttest.NewQueues()
	service.Fail = func(*http.Request) (*http.Response, error) { return nil, errors.New("connection reset") }
	j, err := spillway.NewQueues("http://127.0.0.1:1", spillway.QueuesConfig{Token: "secret", Transport: service, Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = j.Peek(t.Context(), "q"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("got %v", err)
	}
}

func TestACallWhoseContextEndsSaysWhetherItMayHaveBeenDone(t *testing.T) {
	t.Parallel()
	service := clienttest.NewQueues()
	ctx, cancel := context.WithCancel(t.Context())
	service.Lose = func(r *http.Request) error { cancel(); return r.Context().Err() }
	j := openJobs(t, service)
	_, sent := j.Publish(ctx, "welcome", []byte("x"), spillway.PublishOptions{})
	var e *spillway.Error
	if !errors.Is(sent, spillway.ErrUnknown) || !errors.Is(sent, context.Canceled) || !errors.As(sent, &e) || !e.Unknown {
		t.Errorf("a publish that may be stored: got %v", sent)
	}
	_, not := j.Publish(ctx, "welcome", []byte("x"), spillway.PublishOptions{})
	if errors.Is(not, spillway.ErrUnknown) || !errors.Is(not, context.Canceled) || service.Requests() != 1 {
		t.Errorf("a publish that was not sent: got %v after %d requests", not, service.Requests())
	}
	service.Lose = nil
	service.Fail = func(*http.Request) (*http.Response, error) {
		return nil, &net.OpError{Op: "dial", Err: errors.New("rejected")}
	}
	if _, err := j.Publish(t.Context(), "welcome", []byte("x"), spillway.PublishOptions{}); !errors.Is(err, spillway.ErrUnavailable) || errors.Is(err, spillway.ErrUnknown) {
		t.Errorf("no service: got %v", err)
	}
}

// The last attempt did nothing, but one before it may have.
func TestAnAttemptThatMayHaveBeenDoneIsNotForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, last := range []string{"store_unavailable", "rate_limited"} {
			service := clienttest.NewQueues()
			service.Lose = func(*http.Request) error { return errors.New("connection reset") }
			service.Fail = func(*http.Request) (*http.Response, error) {
				if service.Requests() == 1 {
					return nil, nil
				}
				return clienttest.Answer(503, `{"error":"`+last+`","message":"m"}`), nil
			}
			j := openJobs(t, service)
			_, err := j.Publish(t.Context(), "welcome", []byte("x"), spillway.PublishOptions{})
			var e *spillway.Error
			if !errors.Is(err, spillway.ErrUnknown) || !errors.As(err, &e) || !e.Unknown || e.Code != last || service.Requests() != 4 {
				t.Errorf("got %v after %d requests", err, service.Requests())
			}
		}
	})
}

func TestAPublishIsNotRepeatedWhenItsKeyMayBeForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for ttl, requests := range map[time.Duration]int{0: 2, 10 * time.Minute: 4} {
			service := clienttest.NewQueues()
			service.Lose = func(*http.Request) error { return errors.New("connection reset") }
			service.Fail = func(*http.Request) (*http.Response, error) {
				if service.Requests() == 1 {
					return nil, nil
				}
				answer := clienttest.Answer(503, `{"error":"overloaded","message":"m"}`)
				answer.Header.Set("Retry-After", "118")
				return answer, nil
			}
			_, err := openJobs(t, service).Publish(t.Context(), "welcome", []byte("x"), spillway.PublishOptions{Key: "k", Dedup: ttl})
			if !errors.Is(err, spillway.ErrUnknown) || service.Requests() != requests {
				t.Errorf("ttl %v: %v after %d requests", ttl, err, service.Requests())
			}
		}
	})
}
