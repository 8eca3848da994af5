// Package ready says whether a service can work: it asks its stores every second, and logs what changes.
package ready

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
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/lifecycle"
	"github.com/spillway-io/spillway/partition/metric"
)

// Checker is a store that can be asked whether it can be used. Its warnings are the guarantees that it
// does not give in full.
type Checker interface {
	Check(ctx context.Context) (warnings []string, err error)
}

const (
	watchEvery   = time.Second
	watchTimeout = 2 * time.Second // a store that takes longer is not ready
)

// Why a service is not ready although its store may be.
var (
	ErrStarting     = errors.New("starting")
	ErrShuttingDown = errors.New("shutting down")
)

// Watch tracks whether the service is ready: the store can be used, and Stop has
// not been called.
type Watch struct {
	*lifecycle.Loop
	store Checker
	log   *zap.Logger

	mu           sync.Mutex
	err          error           // nil: ready
	unusable     time.Time       // when the store ceased to be usable, or the process started
	shuttingDown bool            // err no longer changes
	warned       map[string]bool // warnings of the last check, which are in the log
}

// New makes a Watch, and registers its metric.
func New(store Checker, reg prometheus.Registerer, log *zap.Logger) *Watch {
	w := &Watch{
		store:    store,
		log:      log,
		err:      ErrStarting,
		unusable: time.Now(),
		warned:   map[string]bool{},
	}
	w.Loop = lifecycle.New("watch", w.begin, w.run)
	r := metric.New(reg, "spillway_")
	r.Read("ready", "1 while the store can be used and the process is not shutting down.", func() float64 {
		if w.Ready() != nil {
			return 0
		}
		return 1
	})
	r.Must()
	return w
}

// Follow takes over what the watch before knows, so that the log says nothing twice.
func (w *Watch) Follow(before *Watch) {
	before.mu.Lock()
	defer before.mu.Unlock()
	w.err = before.err
	w.unusable = before.unusable
	w.warned = before.warned
}

// Ready is nil, or why the service should get no traffic.
func (w *Watch) Ready() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Warnings are the guarantees that the store does not give in full, as of the
// last check.
func (w *Watch) Warnings() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.warned))
}

// ShutDown makes the service not ready for good.
func (w *Watch) ShutDown() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err, w.shuttingDown = ErrShuttingDown, true
}

// begin checks the store once. Its error wraps partition.ErrIncompatible: no later check can
// succeed. A store that is down is not an error.
func (w *Watch) begin(ctx context.Context) error {
	if err := w.check(ctx); errors.Is(err, partition.ErrIncompatible) {
		w.ShutDown()
		return err
	}
	return nil
}

// Stop ends the checks. A check that is running takes at most watchTimeout.
func (w *Watch) Stop(ctx context.Context) error {
	w.ShutDown()
	return w.Loop.Stop(ctx)
}

// run checks the store every second until ctx ends.
func (w *Watch) run(ctx context.Context) {
	lifecycle.Every(ctx, watchEvery, func() { _ = w.check(ctx) }) // Ready returns it
}

// check asks the store once and logs what has changed.
func (w *Watch) check(ctx context.Context) error {
	checking, cancel := context.WithTimeout(ctx, watchTimeout)
	defer cancel()
	warnings, err := w.store.Check(checking)
	if ctx.Err() != nil {
		return ctx.Err() // which is no result about the store
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		before := w.warned
		w.warned = make(map[string]bool, len(warnings))
		for _, text := range warnings {
			w.warned[text] = true
			if !before[text] {
				w.log.Warn("store guarantees reduced", zap.String("warning", text))
			}
		}
		for text := range before {
			if !w.warned[text] {
				w.log.Info("store guarantee restored", zap.String("warning", text))
			}
		}
	}
	if w.shuttingDown {
		return err
	}
	before := w.err
	w.err = err
	if err != nil && (before == nil || before == ErrStarting) {
		w.unusable = time.Now()
	}
	switch {
	case err == nil && before != nil:
		w.log.Info("store ready", zap.Duration("after", time.Since(w.unusable)))
	case err != nil && (before == nil || before == ErrStarting || backend.Permanence(before) != backend.Permanence(err)):
		w.log.Error("store unusable, checked again every second", zap.Error(err))
	}
	return err
}
