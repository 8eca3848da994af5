package work

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/drain/process"
)

// hooks tell a program or a URL of events, one after the other. Who has an event never waits: when
// the hook is slower than the events, some are dropped.
type hooks struct {
	worker  string
	program process.Command // or url
	url     string
	http    *http.Client
	log     *zap.Logger
	events  chan []byte // nil: there is no hook
	done    chan struct{}
}

const (
	hookTimeout = time.Second
	hookRoom    = 256 // events
)

// labels are the names that think-queue has for events.
var labels = map[string]string{
	"worker_start": "worker_daemon_start", "before_job": "worker_before_process", "job_failed": "queue_failed",
	"sleep": "worker_before_sleep", "memory": "worker_memory_exceeded", "restart": "worker_queue_restart",
}

// An event is what a hook is told.
type event struct {
	Event   string          `json:"event"`
	Label   string          `json:"label,omitempty"`
	Worker  string          `json:"worker"`
	AtMS    int64           `json:"at_ms"`
	Child   *int            `json:"child,omitempty"`
	Queue   string          `json:"queue,omitempty"`
	Job     string          `json:"id,omitempty"`
	Attempt int             `json:"attempt,omitempty"`
	Error   string          `json:"error,omitempty"`
	Data    json.RawMessage `json:"data,omitempty"` // the line of the child, of the event child
}

// newHooks returns the hooks to a URL or program, which env is for; "" is none.
func newHooks(target, worker string, env []string, log *zap.Logger) *hooks {
	h := &hooks{worker: worker, log: log}
	switch {
	case target == "":
		return h
	case strings.HasPrefix(target, "http://") || strings.HasPrefix(target, "https://"):
		h.url, h.http = target, &http.Client{Timeout: hookTimeout}
	default:
		h.program = process.Command{Args: strings.Fields(target), Env: env, MaxStderr: 256}
	}
	h.events, h.done = make(chan []byte, hookRoom), make(chan struct{})
	go h.run()
	return h
}

// tell tells an event of a child, or of none: -1, and of a job, or of none.
func (h *hooks) tell(name string, child int, t *task, failed string) {
	h.send(event{Event: name, Error: failed}, child, t)
}

func (h *hooks) send(e event, child int, t *task) {
	if h.events == nil {
		return
	}
	e.Label, e.Worker, e.AtMS = labels[e.Event], h.worker, time.Now().UnixMilli()
	if child >= 0 {
		e.Child = &child
	}
	if t != nil {
		e.Queue, e.Job, e.Attempt = t.Queue, t.ID, t.Attempt
	}
	text, err := json.Marshal(e)
	if err != nil {
		return // never: data is JSON, which a child's line was found to be
	}
	select {
	case h.events <- text:
	default:
		h.log.Debug("an event is dropped: the hook is slow", zap.String("event", e.Event))
	}
}

func (h *hooks) run() {
	defer close(h.done)
	for text := range h.events {
		if err := h.call(text); err != nil {
			h.log.Warn("hook", zap.Error(err))
		}
	}
}

func (h *hooks) call(text []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), hookTimeout)
	defer cancel()
	if h.url == "" {
		program := h.program
		program.Input = text
		_, err := program.Run(ctx)
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := h.http.Do(request)
	if err != nil {
		return err
	}
	_ = response.Body.Close()
	if response.StatusCode >= 300 {
		return fmt.Errorf("it answered %d", response.StatusCode)
	}
	return nil
}

// close waits until the last events are told, as long as one may take.
func (h *hooks) close() {
	if h.events == nil {
		return
	}
	close(h.events)
	select {
	case <-h.done:
	case <-time.After(hookTimeout):
	}
}
