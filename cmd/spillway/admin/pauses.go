package admin

import (
	"context"

	"github.com/spillway-io/spillway/partition"
)

// PausedPart is a pause and what it stops.
type PausedPart struct {
	Namespace string `json:"namespace"`
	Partition string `json:"partition,omitempty"` // absent: the whole namespace
	Pause
}

func (s *Server) pauses(r *request) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), readTimeout)
	defer cancel()
	list := []PausedPart{}
	for _, ns := range r.view.Store.Namespaces() {
		parts, err := r.view.Store.Pauses(ctx, ns)
		if err != nil {
			return nil, err
		}
		for _, p := range parts {
			list = append(list, PausedPart{ns.Name, p.Partition, *pauseOf(&p.Pause)})
		}
	}
	return map[string]any{"pauses": list}, nil
}

// readPauses notes which partitions of a namespace are paused.
func (s *sweep) readPauses(ctx context.Context, store Store, ns *partition.Namespace) error {
	parts, err := store.Pauses(ctx, ns)
	if err != nil {
		return err
	}
	paused := map[string]bool{}
	for _, p := range parts {
		if p.Partition != "" {
			paused[p.Partition] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := s.spaces[ns.Name]
	if sp == nil {
		return nil
	}
	for name := range sp.paused {
		if r := sp.rows[name]; r != nil {
			r.paused = false
		}
	}
	for name := range paused {
		if r := sp.rows[name]; r != nil {
			r.paused = true
		}
	}
	sp.paused = paused
	return nil
}
