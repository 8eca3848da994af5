package main

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
)

// checker is what watch asks of the store.
type checker interface {
	Check(ctx context.Context) (warnings []string, err error)
}

const (
	watchEvery   = time.Second
	watchTimeout = 2 * time.Second // a store that needs longer is not ready
)

var (
	errStarting     = errors.New("starting")
	errShuttingDown = errors.New("shutting down")
)

// watch knows whether the service is ready: the store can be used, and nobody
// has asked us to stop.
type watch struct {
	store checker
	log   *zap.Logger

	mu     sync.Mutex
	err    error           // nil: ready
	closed bool            // err stays as it is
	warned map[string]bool // warnings of the last look, which are in the log
}

func newWatch(store checker, reg prometheus.Registerer, log *zap.Logger) *watch {
	w := &watch{store: store, log: log, err: errStarting, warned: map[string]bool{}}
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "spillway_ready", Help: "1 while the store can be used and the process is not shutting down.",
	}, func() float64 {
		if w.ready() != nil {
			return 0
		}
		return 1
	}))
	return w
}

// ready is nil, or why the service should get no traffic.
func (w *watch) ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// warnings are what the store promises less than it could, by the last look.
func (w *watch) warnings() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.warned))
}

// close makes the service not ready for good.
func (w *watch) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err, w.closed = errShuttingDown, true
}

// run looks every second until ctx ends.
func (w *watch) run(ctx context.Context) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			_ = w.look(ctx) // ready tells
		}
	}
}

// look asks the store once and logs what is new.
func (w *watch) look(ctx context.Context) error {
	checking, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	warnings, err := w.store.Check(checking)
	if ctx.Err() != nil {
		return ctx.Err() // it says nothing about the store
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		before := w.warned
		w.warned = make(map[string]bool, len(warnings))
		for _, text := range warnings {
			w.warned[text] = true
			if !before[text] {
				w.log.Warn("the store promises less than it could", zap.String("warning", text))
			}
		}
	}
	if w.closed {
		return err
	}
	before := w.err
	w.err = err
	switch {
	case err == nil && before != nil:
		w.log.Info("the store is ready")
	case err != nil && (before == nil || before == errStarting || class(before) != class(err)):
		w.log.Error("the store cannot be used; trying again every second", zap.Error(err))
	}
	return err
}

// class is what of an error is worth a new line in the log: its text may hold
// a port that differs each time.
func class(err error) error {
	for _, c := range []error{partition.ErrIncompatible, partition.ErrBroken} {
		if errors.Is(err, c) {
			return c
		}
	}
	return nil
}
