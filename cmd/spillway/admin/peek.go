package admin

import (
	"github.com/spillway-io/spillway/partition"
)

// Peek is what a partition holds, the oldest entry first.
type Peek struct {
	Depth   int64   `json:"depth"`
	Entries []Entry `json:"entries"`
}

func (s *Server) peek(r *request) (any, error) {
	ns, err := r.namespace()
	if err != nil {
		return nil, err
	}
	name, err := r.partition()
	if err != nil {
		return nil, err
	}
	masks, err := s.masks(r)
	if err != nil {
		return nil, err
	}
	var ask partition.PeekRequest
	if ask.Limit, err = r.number("limit", 20, 1, 128); err != nil {
		return nil, err
	}
	switch r.URL.Query().Get("from") {
	case "", "oldest":
	case "newest":
		ask.FromNewest = true
	default:
		return nil, badRequest("from: want oldest or newest")
	}
	ctx, cancel := r.reading()
	defer cancel()
	found, err := r.view.Store.Peek(ctx, ns, name, ask)
	if err != nil {
		return nil, err
	}
	answer := Peek{Depth: found.Depth, Entries: []Entry{}}
	now := s.sweep.now().UnixMilli()
	for _, e := range found.Entries {
		answer.Entries = append(answer.Entries, entryOf(e, masks, now))
	}
	return answer, nil
}
