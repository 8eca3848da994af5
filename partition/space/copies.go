package space

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	lualayout "github.com/spillway-io/spillway/lua/layout"
	"github.com/spillway-io/spillway/partition/backend"
)

// Each pool of an open layout has a copy of the record. That of the newest layout's pool changes first:
// there, of two processes that change it, one wins.

// readRecord reads the copy of the record in a pool.
func readRecord(ctx context.Context, h *Home, b *backend.Backend) (Record, error) {
	fields, err := b.Background.HGetAll(ctx, h.recordKey()).Result()
	if err != nil {
		return Record{}, backend.Classify(err)
	}
	record, err := parseRecord(fields)
	if err != nil {
		return Record{}, backend.Wrap(backend.ErrIncompatible, fmt.Errorf("namespace %s: %w", h.Name, err))
	}
	return record, nil
}

// ReadRecords takes up what other processes recorded, and mends a record that knows less than this
// process does, as after a failover.
func (s *Space) ReadRecords(ctx context.Context, homes []*Home) {
	if s.Kind.Layouts == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, backend.ProbeTimeout)
	defer cancel()
	pipes := backend.Pipes{}
	versions := map[*Home]*redis.StringCmd{}
	for _, h := range homes {
		if h.resolved.Load() {
			versions[h] = pipes.To(h.Backend().Background).HGet(ctx, h.recordKey(), "version")
		}
	}
	_ = pipes.Exec(ctx) // each command has its own error
	for h, cmd := range versions {
		version, err := cmd.Int64()
		known := h.Layouts().Record
		lost := version == 0 && known.current().N > 1 // a ledger told of a layout, and the record is gone
		if err != nil && !errors.Is(err, redis.Nil) || version == known.Version && !lost {
			continue
		}
		_ = s.Refresh(ctx, h) // the next round asks again
	}
}

// Refresh joins what the pools of the open layouts record and what this process knows, on all sides.
// Only that of the newest layout has to answer: the others may be lost.
func (s *Space) Refresh(ctx context.Context, h *Home) error {
	copies := map[*backend.Backend]*Record{} // nil: it does not answer
	for read := -1; read < len(copies); {
		read = len(copies)
		for _, b := range s.Backends([]*Home{h}) {
			if _, done := copies[b]; done {
				continue
			}
			record, err := readRecord(ctx, h, b)
			switch {
			case err == nil:
				copies[b] = &record
				h.learn(record)
			case b == h.Backend():
				return err
			default:
				copies[b] = nil
			}
		}
	}
	known := h.Layouts().Record
	if known.current().N == 1 {
		return nil
	}
	at := h.Backend()
	switch newest := copies[at]; {
	case newest == nil:
		return errAnother // it came meanwhile
	case known.knowsMore(*newest):
		if _, err := s.writeRecord(ctx, h, newest.Version, known); err != nil {
			return err
		}
	}
	known = h.Layouts().Record // no copy may have a higher version than the record that changes
	for b, record := range copies {
		if b != at && record != nil && known.knowsMore(*record) {
			_, _ = writeCopy(ctx, h, b, record.Version, known) // any old copy is right
		}
	}
	return nil
}

// writeRecord stores a record in the place of the one of a version, in the pool of the newest layout
// that this process knows. It is false where another process was first.
func (s *Space) writeRecord(ctx context.Context, h *Home, read int64, r Record) (bool, error) {
	// Above every version of this record and of one that a failover set back: two that differ are
	// never of the same version.
	now, _ := h.Backend().Now()
	r.Version = max(r.Version, read, now) + 1
	wrote, err := writeCopy(ctx, h, h.Backend(), read, r)
	if wrote {
		h.learn(r)
	}
	return wrote, err
}

// writeCopy is writeRecord in any pool.
func writeCopy(ctx context.Context, h *Home, b *backend.Backend, read int64, r Record) (bool, error) {
	c := backend.NewCall(lualayout.Record, nil, []string{h.recordKey()}, append([]any{read,
		max(r.Version, read+1)}, r.fields()...)...)
	b.Run(ctx, b.Background, []*backend.Call{c})
	return c.Err == nil && c.Rest.Int() == 1, c.Err
}

// Learn takes up the record that a fenced shard answered with. An empty one, and one that cannot
// be read, have the process ask the store.
func (s *Space) Learn(ctx context.Context, h *Home, text []byte) error {
	record, err := parseText(text)
	if err == nil && len(record.Layouts) > 0 && h.learn(record) {
		return nil
	}
	return s.Refresh(ctx, h)
}

// noPool is the error of a namespace that lies, or is to lie, where this process cannot reach it.
func (s *Space) noPool(h *Home, pool string) error {
	return backend.Wrap(backend.ErrIncompatible, fmt.Errorf(
		"namespace %s: pool %s is not among those of this process: add it to pools in the file, and reload", h.Name, pool))
}

// announce leaves in a pool the record of a namespace that is about to come there: so a process whose
// configuration names that pool does not take the namespace for a new one. What the pool has under its
// name and the record does not explain is an error.
func (s *Space) announce(ctx context.Context, h *Home, pool string, to *backend.Backend, r Record,
	dry bool) error {
	found, err := readRecord(ctx, h, to)
	if err != nil {
		return err
	}
	first, err := to.Background.Exists(ctx, backend.ShardPrefix(h.prefix, h.Name, 0)+"ledger").Result()
	if err != nil {
		return backend.Classify(err)
	}
	explains := r.Layouts[0].N == 1 && r.Layouts[0].Pool == pool
	if found.in(pool).knowsMore(r) || first > 0 && !explains {
		return backend.Wrap(backend.ErrIncompatible, fmt.Errorf(
			"namespace %s: pool %s has another namespace of this name: delete what it has there, or use another pool", h.Name, pool))
	}
	if dry {
		return nil
	}
	_, err = writeCopy(ctx, h, to, found.Version, r)
	return err
}
