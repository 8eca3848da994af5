package spillway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	spillway "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/client/clienttest"
	"github.com/spillway-io/spillway/partition/clocktest"
)

// work runs a worker in the background. stop ends it and returns its error.
func work(t testing.TB, j *spillway.Queues, handle func(context.Context, spillway.Job) error, cfg spillway.WorkerConfig) (stop func() error) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- j.Work(ctx, []string{"urgent", "welcome"}, handle, cfg) }()
	return func() error { cancel(); return <-ended }
}

func counts(t testing.TB, j *spillway.Queues) spillway.Counts {
	t.Helper()
	n, err := j.Counts(t.Context(), "welcome")
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// A handler's result is one only where it is all that the handler says.
func TestAResultBesideAnErrorIsAnError(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j, broken := openJobs(t, clienttest.NewQueues()), errors.New("the file did not close")
		var told error
		stop := work(t, j, func(context.Context, spillway.Job) error {
			return spillway.Permanent(errors.Join(spillway.Result(1), broken))
		}, spillway.WorkerConfig{OnError: func(_ spillway.Job, err error) { told = err }})
		publish(t, j, "welcome", "1", spillway.PublishOptions{})
		clocktest.Pass(time.Minute)
		if err := stop(); err != nil || !errors.Is(told, broken) || counts(t, j).Dead != 1 {
			t.Errorf("%v, told %v, %+v", err, told, counts(t, j))
		}
	})
}

// Places are what is asked for, and come back where no job came.
func TestWorkAsksForAsManyJobsAsThereArePlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := openJobs(t, clienttest.NewQueues())
		var mu sync.Mutex
		places, running, most, done := 3, 0, 0, 0
		stop := work(t, j, func(context.Context, spillway.Job) error {
			mu.Lock()
			running++
			most = max(most, running)
			mu.Unlock()
			clocktest.Take(time.Second)
			mu.Lock()
			defer mu.Unlock()
			places, running, done = places+1, running-1, done+1
			return nil
		}, spillway.WorkerConfig{Concurrency: 100, Wait: time.Second, Places: func(ctx context.Context, unused int) int {
			for mu.Lock(); ; mu.Lock() {
				places, unused = places+unused, 0
				if n := places; n > 0 || ctx.Err() != nil {
					places = 0
					mu.Unlock()
					return n
				}
				mu.Unlock()
				clocktest.Take(10 * time.Millisecond)
			}
		}})
		for range 10 {
			publish(t, j, "welcome", "1", spillway.PublishOptions{})
		}
		clocktest.Pass(time.Minute)
		if err := stop(); err != nil || done != 10 || most != 3 {
			t.Errorf("%d jobs are done, %d at once, %v", done, most, err)
		}
	})
}

// What handlers call takes 10 at once. Beyond, it throttles them or does not answer; or it slows them
// down, and takes 20 after a while, then 10 again.
func TestWorkWithAutoRunsAsManyHandlersAsEndInTime(t *testing.T) {
	t.Parallel()
	for name, beyond := range map[string]func() error{
		"slow":         func() error { clocktest.Take(400 * time.Millisecond); return nil },
		"throttled":    func() error { return spillway.RetryIn(errors.New("busy"), time.Second) },
		"not answered": func() error { clocktest.Take(2 * time.Second); return fmt.Errorf("crm: %w", context.DeadlineExceeded) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := openJobs(t, clienttest.NewQueues())
				for range 10 {
					payloads := slices.Repeat([][]byte{[]byte("x")}, 1000)
					if _, err := j.PublishMany(t.Context(), "welcome", payloads, spillway.PublishOptions{Tries: 1000}); err != nil {
						t.Fatal(err)
					}
				}
				var running, most, knee atomic.Int64
				knee.Store(10)
				stop := work(t, j, func(context.Context, spillway.Job) error {
					n := running.Add(1)
					defer running.Add(-1)
					most.Store(max(most.Load(), n))
					if n > knee.Load() {
						return beyond()
					}
					clocktest.Take(200 * time.Millisecond)
					return nil
				}, spillway.WorkerConfig{Concurrency: spillway.Auto(4, 64, 300*time.Millisecond), BackoffMax: time.Second})
				knees := []int64{10, 20, 10}
				if name != "slow" || testing.Short() {
					knees = knees[:1]
				}
				for _, ends := range knees {
					knee.Store(ends)
					clocktest.Pass(30 * time.Second)
					for range 10 {
						most.Store(running.Load())
						clocktest.Pass(time.Second)
						if n := most.Load(); 10*n < 8*ends || 10*n > 12*ends {
							t.Errorf("%d handlers at once, where %d end in time", n, ends)
						}
					}
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestWorkRejectsAnAutoThatFindsNothing(t *testing.T) {
	t.Parallel()
	j := openJobs(t, clienttest.NewQueues())
	for _, c := range []spillway.Concurrency{
		spillway.Auto(0, 64, time.Second), spillway.Auto(64, 1, time.Second), spillway.Auto(8, 8, time.Second),
		spillway.Auto(1, 32768, time.Second), spillway.Auto(1, 64, 0), spillway.Auto(1, 64, 2*time.Hour),
	} {
		err := j.Work(t.Context(), []string{"welcome"}, nil, spillway.WorkerConfig{Concurrency: c})
		if err == nil || !strings.Contains(err.Error(), "Auto") {
			t.Errorf("got %v", err)
		}
	}
	for _, c := range []spillway.Concurrency{spillway.Auto(1, 2, time.Millisecond), spillway.Auto(32766, 32767, time.Hour)} {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := j.Work(ctx, []string{"welcome"}, nil, spillway.WorkerConfig{Concurrency: c}); err != nil {
			t.Error(err)
		}
	}
}

// Such as a test's handler that calls t.FailNow.
func TestAHandlerThatEndsItsGoroutineFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := clienttest.NewQueues()
		j := openJobs(t, service)
		publish(t, j, "welcome", "x", spillway.PublishOptions{Tries: 2})
		var calls, told atomic.Int64
		stop := work(t, j, func(context.Context, spillway.Job) error {
			calls.Add(1)
			runtime.Goexit()
			return nil
		}, spillway.WorkerConfig{TTR: time.Minute, OnError: func(_ spillway.Job, err error) {
			if strings.Contains(err.Error(), "Goexit") {
				told.Add(1)
			}
		}})
		clocktest.Pass(10 * time.Second)
		if n := counts(t, j); n.Dead != 1 || calls.Load() != 2 || told.Load() != 2 {
			t.Errorf("got %+v after %d calls, %d errors", n, calls.Load(), told.Load())
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAHandlerWhoseLeaseLapsesInAnOutageIsTold(t *testing.T) {
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
		publish(t, j, "welcome", "x", spillway.PublishOptions{})
		var deliveries atomic.Int64
		stop := work(t, j, func(ctx context.Context, job spillway.Job) error {
			if deliveries.Add(1) == 1 {
				<-ctx.Done()
				// Touched after 20 s for a minute.
				if d := time.Since(began); context.Cause(ctx) != spillway.ErrLeaseLost || d < 79*time.Second || d > 81*time.Second {
					t.Errorf("%v after %v", context.Cause(ctx), d)
				}
			}
			return ctx.Err()
		}, spillway.WorkerConfig{})
		clocktest.Pass(11 * time.Minute)
		if err := stop(); err != nil {
			t.Error(err)
		}
		if n := counts(t, j); deliveries.Load() != 2 || n != (spillway.Counts{}) {
			t.Errorf("%d deliveries, %+v", deliveries.Load(), n)
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
		publish(t, j, "welcome", "x", spillway.PublishOptions{})
		down.Store(true)
		var done atomic.Int64
		stop := work(t, j, func(context.Context, spillway.Job) error { done.Add(1); return nil }, spillway.WorkerConfig{})
		clocktest.Pass(10 * time.Minute)
		if n := service.Requests(); n > 600 || n < 100 {
			t.Errorf("%d requests in 10 minutes", n)
		}
		down.Store(false)
		clocktest.Pass(6 * time.Second)
		if err := stop(); err != nil || done.Load() != 1 {
			t.Errorf("%v, %d done", err, done.Load())
		}
	})
}

func TestWorkEndsAtOnceWhereItIsTold(t *testing.T) {
	t.Parallel()
	j := openJobs(t, &answers{status: 401, body: `{"error":"unauthorized","message":"m"}`})
	if err := j.Work(t.Context(), []string{"welcome"}, nil, spillway.WorkerConfig{GiveUpAfter: spillway.None}); !errors.Is(err, spillway.ErrUnauthorized) {
		t.Errorf("got %v", err)
	}
	if err := j.Work(t.Context(), nil, nil, spillway.WorkerConfig{Concurrency: -1}); err == nil || !strings.Contains(err.Error(), "concurrency") {
		t.Errorf("got %v", err)
	}
}

// The route takes a line a job.
func TestJobsThatEndTogetherAreSettledTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		service := clienttest.NewQueues()
		service.Fail = func(r *http.Request) (*http.Response, error) {
			clocktest.Take(time.Millisecond)
			return nil, nil
		}
		j := openJobs(t, service)
		if _, err := j.PublishMany(t.Context(), "welcome", slices.Repeat([][]byte{[]byte("x")}, 128), spillway.PublishOptions{}); err != nil {
			t.Fatal(err)
		}
		before := service.Requests()
		stop := work(t, j, func(context.Context, spillway.Job) error { return nil }, spillway.WorkerConfig{Concurrency: 128})
		clocktest.Pass(time.Second)
		if n := service.Requests() - before; n > 5 || counts(t, j) != (spillway.Counts{}) {
			t.Errorf("%d requests for 128 jobs, %+v", n, counts(t, j))
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
}

// shaky is a service that answers some lines of a settle with a code, or rejects long ones.
type shaky struct {
	*clienttest.Queues
	most int
	code func(line string) string
}

func (s *shaky) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/settle") {
		return s.Queues.RoundTrip(r)
	}
	clocktest.Take(time.Millisecond) // others end meanwhile
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	var kept, results []string
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) > s.most {
		return clienttest.Answer(413, `{"error":"too_many_entries","message":"m"}`), nil
	}
	for _, line := range lines {
		code := s.code(line)
		if code == "" {
			kept = append(kept, line)
			code = "state"
		}
		results = append(results, code)
	}
	r.Body = io.NopCloser(strings.NewReader(strings.Join(kept, "\n")))
	if len(kept) > 0 {
		if _, err := s.Queues.RoundTrip(r); err != nil {
			return nil, err
		}
	}
	for i, code := range results {
		if results[i] = fmt.Sprintf(`{"i":%d,"error":%q}`, i, code); code == "state" {
			results[i] = fmt.Sprintf(`{"i":%d,"state":"acked"}`, i)
		}
	}
	return clienttest.Answer(200, `{"results":[`+strings.Join(results, ",")+`]}`), nil
}

func TestASettlementThatFailsCostsItsNeighboursNothing(t *testing.T) {
	t.Parallel()
	var away atomic.Int64
	for name, row := range map[string]struct {
		most       int
		code       func(line string) string
		left, told int64
	}{
		"too many lines":       {3, func(string) string { return "" }, 0, 0},
		"a line that is wrong": {1000, func(line string) string { return map[bool]string{true: "bad_item"}[strings.Contains(line, "0007")] }, 1, 1},
		"a shard that is away": {1000, func(line string) string { return map[bool]string{true: "store_unavailable"}[away.Add(1) <= 30] }, 0, 30},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				j := openJobs(t, &shaky{Queues: clienttest.NewQueues(), most: row.most, code: row.code})
				if _, err := j.PublishMany(t.Context(), "welcome", slices.Repeat([][]byte{[]byte("x")}, 20), spillway.PublishOptions{}); err != nil {
					t.Fatal(err)
				}
				var told, done atomic.Int64
				stop := work(t, j, func(context.Context, spillway.Job) error { done.Add(1); return nil },
					spillway.WorkerConfig{Concurrency: 20, OnError: func(spillway.Job, error) { told.Add(1) }})
				clocktest.Pass(30 * time.Second)
				if n := counts(t, j); n.Pending != row.left || n.Ready+n.Dead != 0 || told.Load() != row.told || done.Load() != 20 {
					t.Errorf("%d errors, %d done, %+v", told.Load(), done.Load(), n)
				}
				if err := stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A time that is over comes of time.Until, one that is far off of a date.
func TestATimeThatNoServiceTakesIsTakenForTheNearest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		j := openJobs(t, clienttest.NewQueues())
		for _, row := range []struct {
			after time.Duration
			want  spillway.Counts
		}{
			{math.MinInt64, spillway.Counts{Ready: 1}}, {math.MaxInt64, spillway.Counts{Pending: 1, Delayed: 1}},
		} {
			id := publish(t, j, "welcome", "x", spillway.PublishOptions{})
			if err := j.Nack(t.Context(), takeOne(t, j, "welcome", time.Minute), row.after, nil); err != nil || counts(t, j) != row.want {
				t.Errorf("nack after %v: %v, %+v", row.after, err, counts(t, j))
			}
			if err := j.Delete(t.Context(), "welcome", id); err != nil {
				t.Fatal(err)
			}
			id = publish(t, j, "welcome", "x", spillway.PublishOptions{})
			stop := work(t, j, func(_ context.Context, job spillway.Job) error {
				if job.Attempt == 1 {
					return spillway.RetryIn(errors.New("busy"), row.after)
				}
				clocktest.Take(time.Hour)
				return nil
			}, spillway.WorkerConfig{StopTimeout: time.Nanosecond})
			clocktest.Pass(time.Second)
			if job, err := j.Get(t.Context(), "welcome", id); err != nil || (job.State == "delayed") != (row.want.Delayed == 1) || job.Attempt != 2-int(row.want.Delayed) {
				t.Errorf("retry in %v: %+v, %v", row.after, job, err)
			}
			if err := stop(); err != nil {
				t.Error(err)
			}
			if err := j.Delete(t.Context(), "welcome", id); err != nil && !errors.Is(err, spillway.ErrNoJob) {
				t.Fatal(err)
			}
		}
	})
}
