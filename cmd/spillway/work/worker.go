package work

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/process"
	spillway "github.com/spillway-io/spillway/ingest/client"
)

// A worker supervises children.
type worker struct {
	*settings
	version  string
	log      *zap.Logger
	noise    *zap.Logger // of what children may repeat without end
	desk     *desk
	pool     *process.Pool
	hooks    *hooks
	metrics  *metrics
	http     http.RoundTripper
	jobs     *spillway.Queues
	asked    int // jobs, by the last claim
	busy     atomic.Int64
	stopping context.Context // ends when no new job is to begin
	restart  *string         // what the service said last of restarts; of the claims alone
}

func newWorker(s *settings, version string, log *zap.Logger) (w *worker, err error) {
	quiet := func(core zapcore.Core) zapcore.Core { return zapcore.NewSamplerWithOptions(core, time.Second, 5, 0) }
	w = &worker{
		settings: s, version: version, log: log, noise: log.WithOptions(zap.WrapCore(quiet)), desk: newDesk(),
		hooks: newHooks(s.Hook, s.Name, s.program.Env, log), metrics: newMetrics(),
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = maxQueues + 1
	w.http = transport
	w.jobs, err = spillway.NewQueues(s.Server, spillway.QueuesConfig{Namespace: s.Namespace,
		Token: s.Token, Transport: w})
	return w, err
}

// run works until ctx ends, and then drains.
func (w *worker) run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w.stopping = ctx
	w.pool = process.NewPool(ctx, process.PoolConfig{
		Run: map[string]func(*process.Slot) error{"lines": w.lines, "each": w.each,
			"self": w.self}[w.Mode],
		Memory: int64(w.Memory), MaxTime: w.MaxTime, MaxUses: w.MaxJobs,
		Ending:  w.ending,
		Crashed: w.crashed,
	})
	defer w.hooks.close()
	defer func() { stop(); w.pool.Wait() }()
	closeMetrics, err := w.metrics.serve(w)
	if err != nil {
		return err
	}
	defer closeMetrics()
	w.log.Info(
		"worker starts",
		zap.String("name", w.Name),
		zap.String("namespace",
			w.Namespace),
		zap.Strings("queues", w.queues),
		zap.String("mode", w.Mode),
		zap.String("children", w.Children),
	)
	w.hooks.tell("worker_start", -1, nil, "")
	w.pool.Resize(w.least)
	var own sync.WaitGroup
	own.Go(w.scale)
	own.Go(w.signals)
	if w.Mode != "self" {
		err = w.jobs.Work(ctx, w.queues, w.desk.handle, spillway.WorkerConfig{
			Concurrency:    spillway.Concurrency(2*w.most + 2*maxAhead),
			Places:         w.places,
			TTR:            w.TTR,
			BackoffBase:    w.Backoff.Base,
			BackoffMax:     w.Backoff.Max,
			StopTimeout:    max(w.Drain, 1),
			GiveUpAfter:    spillway.None, // whoever starts it gives it the new token
			OnRequestError: func(err error) { w.log.Warn("claim", zap.Error(err)) },
		})
		stop()
	}
	w.pool.Wait()
	own.Wait()
	w.hooks.tell("stop", -1, nil, "")
	w.log.Info("worker has stopped")
	return err
}

func (w *worker) ending(m *process.Member, why string) {
	w.metrics.killed.WithLabelValues(why).Inc()
	w.log.Warn("child is ended", zap.Int("child", m.Slot.N), zap.Int("pid", m.PID()),
		zap.String("why", why))
	if event := map[string]string{"timeout": "job_timeout", "memory": "memory"}[why]; event != "" {
		w.hooks.tell(event, m.Slot.N, nil, "")
	}
}

func (w *worker) crashed(slot, times int, wait time.Duration, err error) {
	w.log.Error("child does not run", zap.Int("child", slot), zap.Int("times", times),
		zap.Duration("again_in", wait), zap.Error(err))
}

// places is that of the desk. When the last claim brought nothing the worker sleeps, in PHP's words.
func (w *worker) places(ctx context.Context, unused int) int {
	if unused > 0 && unused == w.asked {
		w.hooks.tell("sleep", -1, nil, "")
	}
	w.asked = w.desk.places(ctx, unused)
	return w.asked
}

// RoundTrip tells the service of this worker with each claim, and reads what it says of restarts.
func (w *worker) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(r.URL.Path, "/claim") {
		return w.http.RoundTrip(r)
	}
	r = r.Clone(r.Context())
	r.Header.Set("X-Spillway-Worker", w.about())
	if w.restart == nil { // the first does not wait: its answer says of what restarts the children know
		query := r.URL.Query()
		query.Del("wait")
		r.URL.RawQuery = query.Encode()
	}
	response, err := w.http.RoundTrip(r)
	if err == nil && response.StatusCode == http.StatusOK {
		w.restarted(response.Header.Get("X-Spillway-Restart"))
	}
	return response, err
}

// restarted replaces the children when what the service says of restarts has changed: from nothing,
// too, but not to nothing, which it also says when it cannot look.
func (w *worker) restarted(now string) {
	last := w.restart
	if last != nil && (now == "" || now == *last) {
		return
	}
	if w.restart = &now; last != nil {
		w.log.Info("children are replaced: a restart was asked for")
		w.hooks.tell("restart", -1, nil, "")
		w.pool.Restart()
	}
}

// about is what the service is told of this worker, 1 KiB at most.
func (w *worker) about() string {
	children, memory := w.pool.Children(), int64(0)
	for _, c := range children {
		memory += c.RSS()
	}
	text, _ := json.Marshal(struct { // of texts and numbers, which cannot fail
		Name     string `json:"name"`
		Children int    `json:"children"`
		Busy     int64  `json:"busy"`
		Memory   int64  `json:"memory"` // bytes
		Version  string `json:"version"`
	}{w.Name, len(children), w.busy.Load(), memory, w.version})
	return string(text)
}

// Scaling.
const (
	scaleEvery = time.Second
	scaleAt    = time.Second      // the oldest ready job has waited so long: one more
	scaleDown  = 30 * time.Second // none has, for so long: one less
)

// scale adds and ends children.
func (w *worker) scale() {
	rest := time.Now() // since then nothing has waited
	for w.least < w.most && guard.Sleep(w.stopping, scaleEvery) {
		var oldest time.Duration
		for _, queue := range w.queues {
			counts, err := w.jobs.Counts(w.stopping, queue)
			if err != nil && w.stopping.Err() == nil {
				w.log.Warn("look at a queue", zap.String("queue", queue), zap.Error(err))
			}
			oldest = max(oldest, counts.OldestAge)
		}
		n, failing := w.pool.Size()
		all := w.Mode != "self" && int(w.busy.Load()) >= n
		switch {
		case oldest >= scaleAt:
			if rest = time.Now(); n < w.most && failing == 0 {
				w.pool.Resize(n + 1)
			}
		case all:
			rest = time.Now()
		case n > w.least && time.Since(rest) >= scaleDown:
			w.pool.Resize(n - 1)
		}
		if now, _ := w.pool.Size(); now != n {
			w.log.Info("children", zap.Int("before", n), zap.Int("now", now),
				zap.Duration("oldest", oldest))
		}
	}
}

// signals pauses and goes on, as PHP's workers do.
func (w *worker) signals() {
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, process.PauseSignal, process.ResumeSignal)
	defer signal.Stop(signals)
	for {
		select {
		case <-w.stopping.Done():
			return
		case s := <-signals:
			w.pause(s == process.PauseSignal)
			for _, m := range w.pool.Children() {
				if signal, ok := s.(syscall.Signal); ok && w.Mode == "self" {
					m.Signal(signal)
				}
			}
		}
	}
}

// pause stops jobs from beginning, or lets them begin again. Many a SIGTERM comes with a SIGCONT.
func (w *worker) pause(paused bool) {
	changed := false
	w.desk.note(func() { changed, w.desk.paused = w.desk.paused != paused, paused })
	if changed {
		w.log.Info("pause", zap.Bool("paused", paused))
	}
}
