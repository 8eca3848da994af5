package space

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/partition/backend"
)

// Check asks whether all homes can be used now. It returns nil when every server
//
//   - answers, and has the scripts,
//   - does not evict keys (maxmemory-policy noeviction),
//   - has an append-only file, where the kind is Durable,
//   - lets this user run every command,
//   - holds namespaces of this kind in a format that this program knows, and the configured
//     number of shards.
//
// backend.ErrIncompatible says what does not match and what to do; a person has to act. Other
// errors pass by themselves. warnings are for the log. On a Redis Cluster that passed once, an
// unreachable master does not fail the Check while at least one shard of a home is left: a
// balancer that takes all processes out would make a partial outage a total one.
//
// The last conclusive result is kept: see AllUsable, Home.Usable and Known.
func (s *Space) Check(ctx context.Context, homes []*Home) (warnings []string, err error) {
	warnings, err = s.conclude(ctx, homes, true)
	return warnings, s.backend.Explain(ctx, err)
}

// Inspect is a Check that keeps no result, and records nothing where a namespace is new to the
// store.
func (s *Space) Inspect(ctx context.Context, homes []*Home) (warnings []string, err error) {
	warnings, err = s.conclude(ctx, homes, false)
	return warnings, s.backend.Explain(ctx, err)
}

// Unusable is why nothing may be stored in a home whose Usable is false.
func (s *Space) Unusable(h *Home) error {
	if _, err := s.Known(h); err != nil {
		return err
	}
	return errUnchecked
}

var errUnchecked = backend.Wrap(backend.ErrUnavailable, errors.New("no check of the store has passed yet"))

// AllUsable is nil when the last Check of all homes passed, which costs a load. The first caller
// runs it.
func (s *Space) AllUsable(ctx context.Context, homes []*Home) error {
	if s.passed.Load() {
		return nil
	}
	if v := s.last.Load(); v != nil {
		return v.err
	}
	s.checking.Lock()
	defer s.checking.Unlock()
	if v := s.last.Load(); v != nil {
		return v.err
	}
	_, err := s.conclude(ctx, homes, true)
	return notRun(err)
}

// CheckOne is nil when the last check of a home passed, so that nothing is stored where nobody
// reads it. The first caller runs one: it may take seconds while a master is away.
func (s *Space) CheckOne(ctx context.Context, h *Home) error {
	if done, err := s.Known(h); done {
		return err
	}
	h.checking.Lock()
	defer h.checking.Unlock()
	if done, err := s.Known(h); done {
		return err
	}
	if s.servers.Load() == nil {
		if _, err := s.checkServers(ctx, []*Home{h}, true); err != nil {
			return notRun(s.explainRights(ctx, []*Home{h}, err))
		}
	}
	return notRun(s.checkHomes(ctx, []*Home{h}, true)[0])
}

// Known is what the last conclusive check of a home said, without a round trip.
func (s *Space) Known(h *Home) (done bool, err error) {
	if v := s.servers.Load(); v != nil && v.err != nil {
		return true, v.err
	}
	if v := h.checked.Load(); v != nil {
		return true, v.err
	}
	return false, nil
}

// notRun is the error of an operation that did not run, because a check failed.
func notRun(err error) error {
	if errors.Is(err, backend.ErrUnknown) {
		return backend.Wrap(backend.ErrUnavailable, err)
	}
	return err
}

func conclusive(err error) bool { return err == nil || errors.Is(err, backend.ErrIncompatible) }

func (s *Space) conclude(ctx context.Context, homes []*Home,
	record bool) (warnings []string, err error) {
	if warnings, err = s.checkServers(ctx, homes, record); err == nil {
		var more []string
		more, err = judge(homes, s.checkHomes(ctx, homes, record), s.mayBeAway)
		warnings = append(warnings, more...)
	}
	if err = s.explainRights(ctx, homes, err); record && conclusive(err) {
		s.last.Store(&result{err})
		s.passed.Store(err == nil)
	}
	return warnings, err
}

// judge is the verdict over all homes. Those that passed may be out of reach while one is not.
func judge(homes []*Home, errs []error, mayBeAway func(*Home) bool) (warnings []string, err error) {
	var broken []error
	var away error
	reached := false
	for i, wrong := range errs {
		switch h := homes[i]; {
		case wrong == nil:
			reached = true
		case errors.Is(wrong, backend.ErrBroken) && h.Required:
			broken = append(broken, wrong)
		case errors.Is(wrong, backend.ErrBroken):
			warnings = append(warnings, fmt.Sprintf("namespace %s is rejected: %v", h.Name, wrong))
		case mayBeAway(h):
			away = wrong
		default:
			err = wrong
		}
	}
	switch {
	case len(broken) > 0:
		return warnings, errors.Join(broken...)
	case err == nil && !reached:
		return warnings, away
	}
	return warnings, err
}

// checkServers checks what does not depend on a namespace.
func (s *Space) checkServers(ctx context.Context, homes []*Home, record bool) (warnings []string, err error) {
	if v := s.servers.Load(); s.backend.Cluster() && v != nil && v.err == nil {
		asking, cancel := s.backend.Probing(ctx)
		defer cancel()
		warnings, err = s.backend.CheckServers(asking)
		if !errors.Is(err, backend.ErrBroken) && !errors.Is(err, backend.ErrRejectsWrites) && ctx.Err() == nil {
			return warnings, nil // a master may be away
		}
	} else {
		warnings, err = s.inspectServers(ctx, homes, record)
	}
	if record && conclusive(err) {
		s.servers.Store(&result{err})
		for _, h := range homes {
			h.usable.Store(err == nil && h.passed())
		}
	}
	return warnings, err
}

func (s *Space) inspectServers(ctx context.Context, homes []*Home, record bool) (warnings []string, err error) {
	if warnings, err = s.inspect(ctx); err != nil {
		return warnings, err
	}
	if !s.backend.Embedded() && s.Foreign != nil {
		var foreign []string
		foreign, err = s.findForeign(ctx, homes, record)
		warnings = append(warnings, foreign...)
	}
	return warnings, err
}

// inspect checks the server.
func (s *Space) inspect(ctx context.Context) (warnings []string, err error) {
	b := s.backend
	if _, err := b.ReadTime(ctx); err != nil {
		return nil, err
	}
	if !s.loaded.Load() {
		if err := b.Load(ctx, s.Kind.Scripts); err != nil {
			return nil, err
		}
		s.loaded.Store(true)
	}
	if b.Embedded() {
		return s.Kind.Embedded, nil
	}
	if warnings, err = b.CheckServers(ctx); err == nil && s.Durable {
		err = b.CheckPersistence(ctx)
	}
	return warnings, err
}

// passed reports whether the last check of the home by itself passed.
func (h *Home) passed() bool {
	v := h.checked.Load()
	return v != nil && v.err == nil
}

// mayBeAway reports whether a master of a home may be.
func (s *Space) mayBeAway(h *Home) bool { return s.backend.Cluster() && h.passed() }

// findings are what Foreign found last.
type findings struct {
	warnings []string
	at       time.Time
}

// findForeign is Foreign; a regular check leaves it to others where they do it, see Home.Rest, and
// says what was found last.
func (s *Space) findForeign(ctx context.Context, homes []*Home, regular bool) ([]string, error) {
	if last := s.foreign.Load(); regular && last != nil && len(homes) > 0 &&
		time.Since(last.at) < homes[0].Rest(Whole) {
		return last.warnings, nil
	}
	warnings, err := s.Foreign(ctx)
	if err == nil {
		s.foreign.Store(&findings{warnings, time.Now()})
	} else {
		s.foreign.Store(nil)
	}
	return warnings, err
}

// rightsEvery is after how many checks, which are one a second, the rights on one of the homes are asked for again.
const rightsEvery = 5

// checkHomes checks each home, and records what is new. It keeps conclusive results.
func (s *Space) checkHomes(ctx context.Context, homes []*Home, record bool) []error {
	errs := make([]error, len(homes))
	var permitted []*Home
	turn := int(s.turns.Add(1))
	for i, h := range homes {
		if _, errs[i] = s.count(ctx, h); errs[i] == nil {
			errs[i] = s.checkRights(ctx, h, turn%rightsEvery == 0 && turn/rightsEvery%len(homes) == i)
		}
		if errs[i] = s.explainRights(ctx, []*Home{h}, errs[i]); errs[i] == nil {
			permitted = append(permitted, h)
		}
	}
	found := s.checkLedgers(ctx, permitted, record)
	for i, h := range homes {
		if errs[i] == nil {
			errs[i] = found[h]
		}
		if record && conclusive(errs[i]) {
			h.checked.Store(&result{errs[i]})
			servers := s.servers.Load()
			h.usable.Store(errs[i] == nil && (servers == nil || servers.err == nil))
		}
	}
	return errs
}
