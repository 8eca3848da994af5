package admin

import (
	"context"

	"github.com/spillway-io/spillway/ingest/jobs"
)

// WorkerList is the workers of a namespace of queues that say what they are.
type WorkerList struct {
	Workers []jobs.Worker `json:"workers"`
}

// Restarting is a store whose workers can be told to restart; *php.Store is one.
type Restarting interface {
	Restart(ctx context.Context, namespace string) error
}

// workers lists those that claimed through this process.
func (s *Server) workers(r *request, _ *struct{}) (WorkerList, error) {
	space := r.jobSpace()
	list := WorkerList{Workers: []jobs.Worker{}}
	if r.err != nil {
		return list, r.err
	}
	if r.view.Workers != nil {
		list.Workers = r.view.Workers(space.ns.Name)
	}
	return list, nil
}

// restartWorkers tells the workers of a PHP application to restart after their jobs: PHP's own, and
// those of spillway work.
func (s *Server) restartWorkers(r *request, _ *struct{}) (told Told, err error) {
	space := r.jobSpace()
	if r.err != nil {
		return told, r.err
	}
	of, ok := space.store.(Restarting)
	if !ok {
		return told, notHere(space.ns.Name, kindOf(space.ns),
			", whose workers have no restart signal: send them SIGTERM, or SIGHUP")
	}
	return Told{"told"}, of.Restart(r.ctx, space.ns.Name)
}

// Told is the answer about workers that were told to restart.
type Told struct {
	State string `json:"state"`
}
