package space

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	lualayout "github.com/spillway-io/spillway/lua/layout"
	"github.com/spillway-io/spillway/partition/backend"
)

// Each pool of an open layout has a copy of the record, and so has the pool that the configuration
// names. That of the newest layout's pool changes first: there, of two processes that change it, one
// wins. Any old copy is right: it leads to the newer ones.

// readRecord reads the copy of the record in a pool.
func (s *Space) readRecord(ctx context.Context, h *Home, pool string) (Record, error) {
	fields, err := s.at(pool).Background.HGetAll(ctx, h.recordKey()).Result()
	if err != nil {
		return Record{}, backend.Classify(err)
	}
	record, err := parseRecord(fields)
	if err != nil {
		return Record{}, backend.Wrap(backend.ErrIncompatible, fmt.Errorf("namespace %s: %w", h.Name, err))
	}
	return record.in(pool), nil
}

// copies are a shard for each pool that has a copy, that of the newest layout first.
func (s *Space) copies(h *Home) (list []*Shard) {
	for _, l := range slices.Backward(h.Layouts().All) {
		sh := l.Shards[0]
		if (l.Closed == 0 || sh.Backend == s.backend) && !sh.Backend.IsMissing() &&
			!slices.ContainsFunc(list, func(o *Shard) bool { return o.Backend == sh.Backend }) {
			list = append(list, sh)
		}
	}
	return list
}

// ReadRecords takes up what other processes recorded, and mends a record that knows less than this
// process does, as after a failover.
func (s *Space) ReadRecords(ctx context.Context, homes []*Home) {
	ctx, cancel := context.WithTimeout(ctx, backend.ProbeTimeout)
	defer cancel()
	pipes := backend.Pipes{}
	versions := map[*Home]map[*Shard]*redis.StringCmd{}
	for _, h := range homes {
		if !h.resolved.Load() {
			continue
		}
		versions[h] = map[*Shard]*redis.StringCmd{}
		for i, sh := range s.copies(h) {
			if i == 0 || sh.Breaker.Allow() {
				versions[h][sh] = pipes.To(sh.Backend.Background).HGet(ctx, h.recordKey(), "version")
			}
		}
	}
	_ = pipes.Exec(ctx) // each command has its own error
	for h, asked := range versions {
		known, news := h.Layouts(), false
		for sh, cmd := range asked {
			version, err := cmd.Int64()
			lost := version == 0 && known.Record.current().N > 1 // a ledger told of a layout, and the record is gone
			if err == nil || errors.Is(err, redis.Nil) {
				news = news || version != known.Record.Version || lost
			} else if known.Closed(sh.Layout) {
				sh.Breaker.Done(backend.Classify(err)) // nothing else finds out that its pool is away
			}
		}
		if news {
			_ = s.Refresh(ctx, h) // the next round asks again
		}
	}
}

// Refresh joins what the pools record and what this process knows, on all sides. Only that of the newest
// layout has to answer: the others may be lost.
func (s *Space) Refresh(ctx context.Context, h *Home) error {
	copies := map[string]*Record{} // by pool; nil: it does not answer
	read := func(pool string) error {
		if _, done := copies[pool]; done {
			return nil
		}
		record, err := s.readRecord(ctx, h, pool)
		if copies[pool] = nil; err == nil {
			copies[pool] = &record
			h.learn(record)
		}
		return err
	}
	for known := (*Layouts)(nil); known != h.Layouts(); {
		known = h.Layouts()
		newest := known.Current().Shards[0]
		if newest.Backend.IsMissing() {
			return noPool(h, newest.Pool)
		}
		if err := read(newest.Pool); err != nil {
			return err
		}
		for _, sh := range s.copies(h) {
			_ = read(sh.Pool)
		}
	}
	layouts := h.Layouts()
	known, at := layouts.Record, layouts.Current().Shards[0].Pool
	if known.Version == 0 && known.current().N == 1 {
		return nil // it never had a record
	}
	if newest := copies[at]; newest != nil && known.newer(*newest) {
		if _, err := s.writeRecord(ctx, h, s.at(at), newest.Version, known); err != nil {
			return err
		}
		known = h.Layouts().Record
	}
	for pool, record := range copies {
		if pool != at && record != nil && known.newer(*record) {
			_, _ = writeCopy(ctx, h, s.at(pool), record.Version, known)
		}
	}
	return nil
}

// newer reports whether a copy that is o is to be replaced by r.
func (r Record) newer(o Record) bool { return r.Version > o.Version || r.knowsMore(o) }

// writeRecord stores a record in the place of the one of a version, in the pool of the newest layout
// that the caller decided by. It is false where another process was first.
func (s *Space) writeRecord(ctx context.Context, h *Home, at *backend.Backend, read int64, r Record) (bool, error) {
	// Above every version of this record and of one that a failover set back: two that differ are
	// never of the same version.
	now, _ := at.Now()
	r.Version = max(r.Version, read, now) + 1
	wrote, err := writeCopy(ctx, h, at, read, r)
	if wrote {
		h.learn(r)
	}
	return wrote, err
}

// writeCopy is writeRecord in any pool.
func writeCopy(ctx context.Context, h *Home, at *backend.Backend, read int64, r Record) (bool, error) {
	c := backend.NewCall(lualayout.Record, nil, []string{h.recordKey()}, append([]any{read,
		max(r.Version, read+1)}, r.fields()...)...)
	at.Run(ctx, at.Background, []*backend.Call{c})
	return c.Err == nil && c.Rest.Int() == 1, c.Err
}

// Learn takes up the record that a fenced shard answered with. An empty one, and one that cannot
// be read, have the process ask the store.
func (s *Space) Learn(ctx context.Context, h *Home, text []byte) error {
	record, err := parseText(text)
	if err == nil && len(record.Layouts) > 0 && h.learn(record) {
		return nil
	}
	before := h.Layouts()
	if err := s.Refresh(ctx, h); err != nil || h.Layouts() != before {
		return err
	}
	s.recall(ctx, h)
	return nil
}

// noPool is the error of a namespace that lies, or is to lie, where this process cannot reach it.
func noPool(h *Home, pool string) error {
	return backend.Wrap(backend.ErrIncompatible, fmt.Errorf(
		"%w: namespace %s: pool %s is not among those of this process: add it to pools in the file, and reload", ErrNoPool, h.Name, pool))
}

// welcome asks whether a namespace may come to a pool: the pool can be used, all live
// processes have it, and it has nothing under the name that the record does not explain. It returns the version of the copy there.
func (s *Space) welcome(ctx context.Context, h *Home, pool string) (version int64, err error) {
	to := s.at(pool)
	if _, err := s.inspect(ctx, to); err != nil {
		return 0, to.Explain(ctx, err)
	}
	for _, of := range s.Backends([]*Home{h}) {
		if to.Same(ctx, of) {
			return 0, backend.Wrap(backend.ErrIncompatible, fmt.Errorf(
				"namespace %s: pool %s is the Redis where it has entries already: leave out the pool, or name another", h.Name, pool))
		}
	}
	found, err := s.readRecord(ctx, h, pool)
	if err != nil {
		return 0, err
	}
	first, err := to.Background.Exists(ctx, backend.ShardPrefix(h.prefix, h.Name, 0)+"ledger").Result()
	if err != nil {
		return 0, backend.Classify(err)
	}
	if lack, err := s.lack(ctx, h, pool); err != nil {
		return 0, err
	} else if lack > 0 {
		return 0, backend.Wrap(backend.ErrIncompatible, fmt.Errorf(
			"namespace %s: pool %s is missing in %d of the processes that serve it: add it to pools in their files, and reload them", h.Name, pool, lack))
	}
	current := h.Layouts().Current().N
	came := h.Layouts().All[0].Shards[0].Pool // where it was first used
	switch copied := len(found.Layouts) > 0; {
	case first > 0 && came != pool, copied && found.Layouts[0].Pool != came:
		return 0, backend.Wrap(backend.ErrIncompatible, fmt.Errorf(
			"namespace %s: pool %s has another namespace of this name: delete what it has there, or use another pool", h.Name, pool))
	case copied && h.learn(found) && h.Layouts().Current().N != current: // after a failover that lost the newer ones
		return 0, errAnother
	}
	return found.Version, nil
}
