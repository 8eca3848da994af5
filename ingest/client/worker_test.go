package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/client/clienttest"
)

// work runs a worker in the background. stop ends it and returns its error.
func work(t testing.TB, j *client.Jobs, handle func(context.Context, client.Job) error, cfg client.WorkerConfig) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- j.Work(ctx, []string{"urgent", "welcome"}, handle, cfg) }()
	return func() error { cancel(); return <-ended }
}

func counts(t testing.TB, j *client.Jobs) client.Counts {
	t.Helper()
	n, err := j.Counts(t.Context(), "welcome")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestWorkSettlesJobsByWhatTheHandlerReturns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := openJobs(t, clienttest.NewQueues())
		var mu sync.Mutex
		deliveries := map[string][]time.Time{}
		var told atomic.Int64
		stop := work(t, j, func(_ context.Context, job client.Job) error {
			mu.Lock()
			defer mu.Unlock()
			what := string(job.Payload)
			deliveries[what] = append(deliveries[what], time.Now())
			switch {
			case what == "permanent":
				return fmt.Errorf("wrapped: %w", client.Permanent(errors.New("no such user")))
			case what == "panic":
				panic("oops")
			case what == "in a minute" && job.Attempt == 1:
				return client.RetryIn(errors.New("busy"), time.Minute)
			case what == "once more" && job.Attempt == 1:
				return errors.New("busy")
			}
			return nil
		}, client.WorkerConfig{Concurrency: 4, OnError: func(client.Job, error) { told.Add(1) }})
		for _, payload := range []string{"fine", "permanent", "panic", "in a minute", "once more"} {
			publish(t, j, "welcome", payload, client.PublishOptions{})
		}
		time.Sleep(10 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		for what, want := range map[string]int{"fine": 1, "permanent": 1, "panic": 3, "in a minute": 2, "once more": 2} {
			if got := len(deliveries[what]); got != want {
				t.Errorf("%s: %d deliveries, want %d", what, got, want)
			}
		}
		if d := deliveries["in a minute"]; d[1].Sub(d[0]) != time.Minute {
			t.Errorf("it came again after %v", d[1].Sub(d[0]))
		}
		if n := counts(t, j); n.Dead != 2 || n.Ready+n.Pending != 0 || told.Load() != 6 {
			t.Errorf("got %+v, %d errors", n, told.Load())
		}
	})
}

func TestWorkRunsSoManyHandlersAndTakesUrgentJobsFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := openJobs(t, clienttest.NewQueues())
		for i := range 20 {
			publish(t, j, "welcome", fmt.Sprint(i), client.PublishOptions{})
		}
		publish(t, j, "urgent", "first", client.PublishOptions{})
		var running, most atomic.Int64
		var order []string
		var mu sync.Mutex
		stop := work(t, j, func(_ context.Context, job client.Job) error {
			most.Store(max(most.Load(), running.Add(1)))
			mu.Lock()
			order = append(order, job.Queue)
			mu.Unlock()
			time.Sleep(time.Second)
			running.Add(-1)
			return nil
		}, client.WorkerConfig{Concurrency: 3})
		time.Sleep(7500 * time.Millisecond)
		if err := stop(); err != nil {
			t.Error(err)
		}
		urgent := -1
		for i, queue := range order {
			if queue == "urgent" {
				urgent = i
			}
		}
		if most.Load() != 3 || len(order) != 21 || urgent < 0 || urgent > 2 {
			t.Errorf("%d at once, %d jobs, the urgent one as number %d", most.Load(), len(order), urgent)
		}
	})
}

// Such as a test's handler that calls t.FailNow.
func TestAHandlerThatEndsItsGoroutineFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := clienttest.NewQueues()
		j := openJobs(t, service)
		publish(t, j, "welcome", "x", client.PublishOptions{Tries: 2})
		var calls, told atomic.Int64
		stop := work(t, j, func(context.Context, client.Job) error {
			calls.Add(1)
			runtime.Goexit()
			return nil
		}, client.WorkerConfig{TTR: time.Minute, OnError: func(_ client.Job, err error) {
			if strings.Contains(err.Error(), "Goexit") {
				told.Add(1)
			}
		}})
		time.Sleep(10 * time.Second)
		if n := counts(t, j); n.Dead != 1 || calls.Load() != 2 || told.Load() != 2 {
			t.Errorf("got %+v after %d calls, %d errors", n, calls.Load(), told.Load())
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// What the service hands out beyond what was asked for comes again when its lease ends.
func TestAnAnswerWithMoreJobsThanWereAskedForIsNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := clienttest.NewQueues()
		one := `{"queue":"welcome","id":"0ATN8Z2M3QF6Y00000G4S7W1KX","attempt":1,"tries":1,"data":"eA=="}`
		var answers atomic.Int64
		service.Fail = func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/claim") && answers.Add(1) == 1 {
				return clienttest.Answer(200, `{"jobs":[`+strings.Repeat(one+",", 20)+one+`]}`), nil
			}
			return nil, nil
		}
		j := openJobs(t, service)
		for i := range 10 {
			publish(t, j, "welcome", fmt.Sprint(i), client.PublishOptions{})
		}
		var running, most, done, failed atomic.Int64
		stop := work(t, j, func(context.Context, client.Job) error {
			most.Store(max(most.Load(), running.Add(1)))
			time.Sleep(time.Second)
			running.Add(-1)
			done.Add(1)
			return nil
		}, client.WorkerConfig{Concurrency: 2, OnError: func(client.Job, error) { failed.Add(1) }})
		time.Sleep(time.Minute)
		if err := stop(); err != nil || most.Load() != 2 || done.Load() != 10 || failed.Load() != 1 {
			t.Errorf("%v; %d at once, %d done, %d errors", err, most.Load(), done.Load(), failed.Load())
		}
	})
}

// A handler may take much longer than the TTR, through an outage shorter than the lease.
func TestALeaseIsProlongedWhileItsHandlerRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := clienttest.NewQueues()
		began := time.Now()
		service.Fail = func(*http.Request) (*http.Response, error) {
			if d := time.Since(began); d > 60*time.Second && d < 95*time.Second {
				return nil, errors.New("connection reset")
			}
			return nil, nil
		}
		j := openJobs(t, service)
		publish(t, j, "welcome", "x", client.PublishOptions{Tries: 1})
		var deliveries atomic.Int64
		stop := work(t, j, func(ctx context.Context, _ client.Job) error {
			deliveries.Add(1)
			time.Sleep(10 * time.Minute)
			return ctx.Err()
		}, client.WorkerConfig{Concurrency: 2})
		time.Sleep(11 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := counts(t, j); deliveries.Load() != 1 || n != (client.Counts{}) {
			t.Errorf("%d deliveries, %+v", deliveries.Load(), n)
		}
	})
}

func TestATouchThatHangsDoesNotCostTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := clienttest.NewQueues()
		var settlements atomic.Int64
		service.Fail = func(r *http.Request) (*http.Response, error) {
			if strings.HasSuffix(r.URL.Path, "/settle") && settlements.Add(1) == 1 {
				<-r.Context().Done()
				return nil, r.Context().Err()
			}
			return nil, nil
		}
		j := openJobs(t, service)
		publish(t, j, "welcome", "x", client.PublishOptions{Tries: 1})
		var cause atomic.Value
		stop := work(t, j, func(ctx context.Context, _ client.Job) error {
			time.Sleep(time.Minute)
			if err := context.Cause(ctx); err != nil {
				cause.Store(err)
			}
			return nil
		}, client.WorkerConfig{TTR: 9 * time.Second})
		time.Sleep(65 * time.Second)
		if err := stop(); err != nil || cause.Load() != nil || counts(t, j) != (client.Counts{}) {
			t.Errorf("%v, %v, %+v", err, cause.Load(), counts(t, j))
		}
	})
}

func TestAHandlerWhoseLeaseIsLostIsTold(t *testing.T) {
	t.Parallel()
	t.Run("taken away", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			j := openJobs(t, clienttest.NewQueues())
			id := publish(t, j, "welcome", "x", client.PublishOptions{})
			began := time.Now()
			stop := work(t, j, func(ctx context.Context, job client.Job) error {
				if err := j.Delete(ctx, "welcome", id); err != nil {
					t.Error(err)
				}
				<-ctx.Done()
				if cause := context.Cause(ctx); cause != client.ErrLeaseLost || time.Since(began) > 21*time.Second {
					t.Errorf("%v after %v", cause, time.Since(began))
				}
				return ctx.Err()
			}, client.WorkerConfig{})
			time.Sleep(time.Minute)
			if err := stop(); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("outage", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			service := clienttest.NewQueues()
			began := time.Now()
			service.Fail = func(*http.Request) (*http.Response, error) {
				if d := time.Since(began); d > 30*time.Second && d < 10*time.Minute {
					return nil, errors.New("connection reset")
				}
				return nil, nil
			}
			j := openJobs(t, service)
			publish(t, j, "welcome", "x", client.PublishOptions{})
			var deliveries atomic.Int64
			stop := work(t, j, func(ctx context.Context, job client.Job) error {
				if deliveries.Add(1) == 1 {
					<-ctx.Done()
					// Touched after 20 s for a minute.
					if d := time.Since(began); context.Cause(ctx) != client.ErrLeaseLost || d < 79*time.Second || d > 81*time.Second {
						t.Errorf("%v after %v", context.Cause(ctx), d)
					}
				}
				return ctx.Err()
			}, client.WorkerConfig{})
			time.Sleep(11 * time.Minute)
			if err := stop(); err != nil {
				t.Error(err)
			}
			if n := counts(t, j); deliveries.Load() != 2 || n != (client.Counts{}) {
				t.Errorf("%d deliveries, %+v", deliveries.Load(), n)
			}
		})
	})
}

func TestWorkStopsWhenItsHandlersHaveEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := openJobs(t, clienttest.NewQueues())
		publish(t, j, "welcome", "x", client.PublishOptions{})
		stop := work(t, j, func(ctx context.Context, _ client.Job) error {
			time.Sleep(20 * time.Second)
			return ctx.Err()
		}, client.WorkerConfig{})
		time.Sleep(time.Second)
		began := time.Now()
		if err := stop(); err != nil || time.Since(began) != 19*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if n := counts(t, j); n != (client.Counts{}) {
			t.Errorf("got %+v", n)
		}
	})
}

func TestAHandlerThatDoesNotEndIsCutOffAndItsJobGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := openJobs(t, clienttest.NewQueues())
		publish(t, j, "welcome", "x", client.PublishOptions{})
		stop := work(t, j, func(ctx context.Context, _ client.Job) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}, client.WorkerConfig{StopTimeout: 5 * time.Second, TTR: time.Hour})
		time.Sleep(time.Second)
		began := time.Now()
		if err := stop(); err != nil || time.Since(began) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if n := counts(t, j); n.Ready != 1 {
			t.Errorf("got %+v", n)
		}
	})
}

func TestWorkOutlivesOutagesWithBackoff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := clienttest.NewQueues()
		var down atomic.Bool
		service.Fail = func(*http.Request) (*http.Response, error) {
			if down.Load() {
				return clienttest.Answer(503, `{"error":"shutting_down","message":"m"}`), nil
			}
			return nil, nil
		}
		j := openJobs(t, service)
		publish(t, j, "welcome", "x", client.PublishOptions{})
		down.Store(true)
		var done atomic.Int64
		stop := work(t, j, func(context.Context, client.Job) error { done.Add(1); return nil }, client.WorkerConfig{})
		time.Sleep(10 * time.Minute)
		if n := service.Requests(); n > 600 || n < 100 {
			t.Errorf("%d requests in 10 minutes", n)
		}
		down.Store(false)
		time.Sleep(6 * time.Second)
		if err := stop(); err != nil || done.Load() != 1 {
			t.Errorf("%v, %d done", err, done.Load())
		}
	})
}

func TestWorkEndsWhenTheServiceRejectsIt(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		status int
		code   string
		want   error
	}{{401, "unauthorized", client.ErrUnauthorized}, {404, "no_such_namespace", client.ErrNoNamespace}, {400, "bad_ttr", client.ErrInvalid}} {
		j := openJobs(t, &answers{status: row.status, body: `{"error":"` + row.code + `","message":"m"}`})
		err := j.Work(t.Context(), []string{"welcome"}, func(context.Context, client.Job) error { return nil }, client.WorkerConfig{})
		if !errors.Is(err, row.want) {
			t.Errorf("got %v, want %v", err, row.want)
		}
	}
	j := openJobs(t, clienttest.NewQueues())
	if err := j.Work(t.Context(), nil, nil, client.WorkerConfig{Concurrency: -1}); err == nil || !strings.Contains(err.Error(), "concurrency") {
		t.Errorf("got %v", err)
	}
}
