package admin

import (
	"context"
	"errors"
	"net/http"

	"github.com/spillway-io/spillway/partition"
)

// PausedPart is a pause and what it stops.
type PausedPart struct {
	Namespace string `json:"namespace"`
	Partition string `json:"partition,omitempty"` // absent: the whole namespace
	Pause
}

func (s *Server) pauses(r *request) (any, error) {
	ctx, cancel := r.reading()
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

// notePauses keeps which partitions of a namespace are paused.
func (s *sweep) notePauses(namespace string, parts []partition.PausedPart) {
	paused := map[string]bool{}
	for _, p := range parts {
		if p.Partition != "" {
			paused[p.Partition] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sp := s.spaces[namespace]
	if sp == nil {
		return
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
}

// maxReason is the longest reason of a pause, in bytes.
const maxReason = 512

// pause stops the delivery of the partition in the path, or of the whole namespace.
func (s *Server) pause(r *request) (any, error) {
	var body struct {
		Reason string `json:"reason"`
	}
	ns, name, err := r.part()
	if err != nil {
		return nil, err
	}
	if err := r.decode(&body); err != nil {
		return nil, err
	}
	if len(body.Reason) > maxReason {
		return nil, badRequest("reason: want 512 bytes at most")
	}
	ctx, cancel := s.acting(r, readTimeout)
	defer cancel()
	err = r.view.Store.Pause(ctx, ns, name, partition.Pause{By: r.who.name, Reason: body.Reason})
	s.record(r, Act{Action: "pause", Namespace: ns.Name, Partition: name, Detail: body.Reason}, err)
	if errors.Is(err, partition.ErrTooManyPauses) {
		err = &refusal{http.StatusConflict, codeConflict, err.Error()}
	}
	if err != nil {
		return nil, err
	}
	return s.pausedNow(ctx, r, ns, name)
}

// resume ends a pause. Where nothing is paused it changes nothing.
func (s *Server) resume(r *request) (any, error) {
	ns, name, err := r.part()
	if err != nil {
		return nil, err
	}
	if err := r.decode(&struct{}{}); err != nil {
		return nil, err
	}
	ctx, cancel := s.acting(r, readTimeout)
	defer cancel()
	was, err := r.view.Store.Resume(ctx, ns, name)
	detail := ""
	if !was && err == nil {
		detail = "it was not paused"
	}
	s.record(r, Act{Action: "resume", Namespace: ns.Name, Partition: name, Detail: detail}, err)
	if err != nil {
		return nil, err
	}
	return s.pausedNow(ctx, r, ns, name)
}

// pausedNow is the pause of a partition, or of the namespace, as the store has it.
func (s *Server) pausedNow(ctx context.Context, r *request, ns *partition.Namespace, name string) (any, error) {
	parts, err := r.view.Store.Pauses(ctx, ns)
	if err != nil {
		return nil, err
	}
	s.sweep.notePauses(ns.Name, parts)
	answer := map[string]*Pause{"paused": nil}
	for _, p := range parts {
		if p.Partition == name {
			answer["paused"] = pauseOf(&p.Pause)
		}
	}
	return answer, nil
}

// part is the namespace in the path, and the partition where it has one.
func (r *request) part() (ns *partition.Namespace, name string, err error) {
	space := r.PathValue("namespace")
	if _, queues := r.view.jobSpace(space); queues {
		return nil, "", notHere(space, kindQueue, ", which has no pause: stop its workers, or take its rules of push out of the file and reload")
	}
	if ns, err = r.namespace(); err == nil && r.PathValue("partition") != "" {
		name, err = r.partition()
	}
	return ns, name, err
}
