package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-io/spillway/partition/control"
)

// QueueNamespace is a namespace of kind queue.
type QueueNamespace struct {
	CreateNamespace
	CreatedAtMS int64  `json:"created_at_ms"` // 0: the file names it
	CreatedBy   string `json:"created_by"`
	FromFile    bool   `json:"from_file"`
	Tokens      int    `json:"tokens"`
}

// CreateNamespace is the request for one. Its keys are those of the file; what is left out
// has its default.
type CreateNamespace struct {
	Namespace    string         `json:"namespace"`
	Pool         string         `json:"pool"`
	Description  string         `json:"description"`
	Shards       int            `json:"shards"`
	Spread       map[string]int `json:"spread"`
	MaxJobs      int64          `json:"max_jobs"`
	MaxQueues    int64          `json:"max_queues"`
	MaxSchedules int64          `json:"max_schedules"`
	Dead         string         `json:"dead"`
	ReplyTTLMS   int64          `json:"reply_ttl_ms"`
}

const (
	deadKeep = "keep"
	deadDrop = "drop"
)

func formOf(n *control.Namespace) CreateNamespace {
	f := CreateNamespace{
		Namespace:    n.Name,
		Pool:         n.Pool,
		Description:  n.Description,
		Shards:       n.Policy.Shards,
		Spread:       n.Policy.Spread,
		MaxJobs:      n.Policy.MaxJobs,
		MaxQueues:    n.Policy.MaxQueues,
		MaxSchedules: n.Policy.MaxSchedules,
		Dead:         deadKeep,
		ReplyTTLMS:   n.Policy.ReplyTTL.Milliseconds(),
	}
	if n.Policy.DropDead {
		f.Dead = deadDrop
	}
	if f.Spread == nil {
		f.Spread = map[string]int{}
	}
	return f
}

func (s *Server) queueNamespaces(r *request) (any, error) {
	c := r.control()
	if r.err != nil {
		return nil, r.err
	}
	snapshot, list := c.Snapshot(), []QueueNamespace{}
	for _, n := range snapshot.Namespaces() {
		list = append(list, QueueNamespace{formOf(n), n.CreatedMS, n.CreatedBy, n.FromFile,
			len(snapshot.Tokens(n.Name))})
	}
	return map[string]any{"namespaces": list}, nil
}

func (s *Server) createNamespace(r *request) (any, error) {
	c, n := r.control(), control.NewNamespace("", control.DefaultPool, r.who.name)
	p := &n.Policy
	f := formOf(&n)
	r.decode(&f)
	switch {
	case r.err != nil:
		return nil, r.err
	case f.Dead != deadKeep && f.Dead != deadDrop:
		return nil, badRequest("dead: want keep or drop")
	case f.ReplyTTLMS < 0 || f.ReplyTTLMS > int64(365*24*time.Hour/time.Millisecond):
		return nil, badRequest("reply_ttl_ms: want 1000 to 86400000")
	}
	n.Name = f.Namespace
	n.Pool = f.Pool
	n.Description = f.Description
	p.Shards = f.Shards
	p.Spread = f.Spread
	p.MaxJobs = f.MaxJobs
	p.MaxQueues = f.MaxQueues
	p.MaxSchedules = f.MaxSchedules
	p.DropDead = f.Dead == deadDrop
	p.ReplyTTL = time.Duration(f.ReplyTTLMS) * time.Millisecond
	act := Act{Action: "create_namespace", Namespace: f.Namespace,
		Detail: fmt.Sprintf("pool %s, shards %d", f.Pool, f.Shards)}
	return s.changed(r, act, c.CreateNamespace(r.ctx, n), f)
}

// DeletedNamespace says how many of its jobs were deleted, or would be.
type DeletedNamespace struct {
	DryRun bool  `json:"dry_run"`
	Jobs   int64 `json:"jobs"`
}

// deleteNamespace deletes a namespace that has no jobs, or deletes its jobs, too. Each job
// is counted in the ledger, which stays in Redis.
func (s *Server) deleteNamespace(r *request) (any, error) {
	var body struct {
		Force  bool `json:"force"`
		DryRun bool `json:"dry_run"`
	}
	c, ns := r.queues()
	if r.decode(&body); r.err != nil {
		return nil, r.err
	}
	if ns.FromFile {
		return nil, conflict("%v", control.ErrInFile)
	}
	jobs := r.view.Queues(ns.Name)
	if jobs == nil {
		return nil, errors.New("the namespace is not in use yet") // its pool is not ready: 503
	}
	return s.exclusively(r, func(ctx context.Context) (any, error) {
		count, err := jobs.Jobs(ctx)
		if err == nil && count > 0 && !body.Force {
			return nil, hasJobs(count)
		}
		if err == nil && !body.Force {
			if err := hasSchedules(ctx, jobs); err != nil {
				return nil, err
			}
		}
		if err == nil && body.DryRun {
			return DeletedNamespace{true, count}, nil
		}
		var deleted int64
		if err == nil {
			deleted, err = deleteAll(ctx, c, ns.Name, jobs, body.Force)
		}
		act := Act{
			Action:    "delete_namespace",
			Namespace: ns.Name,
			Entries:   &deleted,
			Detail:    fmt.Sprintf("force %v", body.Force),
		}
		return s.changed(r, act, err, DeletedNamespace{Jobs: deleted})
	})
}

// hasJobs is why a namespace is not deleted.
func hasJobs(count int64) error {
	has, they := fmt.Sprintf("%d jobs", count), "them"
	if count == 1 {
		has, they = "1 job", "it"
	}
	return conflict("it has %s: purge its queues first, or send force: true (rm --force), which deletes %s for good", has, they)
}

// hasSchedules is why a namespace is not deleted, nil where it has no schedules: they would
// fire in the next of its name.
func hasSchedules(ctx context.Context, jobs Queues) error {
	n, err := jobs.Schedules(ctx)
	if err == nil && n > 0 {
		err = conflict("it has schedules (%d): delete them first, or send force: true (rm --force), which deletes them for good", n)
	}
	return err
}

// deleteAll deletes a namespace, and with force its jobs. None comes after they are counted.
func deleteAll(ctx context.Context, c Control, name string, jobs Queues,
	force bool) (deleted int64, err error) {
	err = c.DeleteNamespace(ctx, name, func(ctx context.Context) (err error) {
		if force {
			deleted, err = jobs.Purge(ctx)
		}
		count := int64(0)
		if err == nil {
			count, err = jobs.Jobs(ctx)
		}
		if err == nil && count > 0 {
			err = hasJobs(count)
		}
		if err == nil {
			err = hasSchedules(ctx, jobs)
		}
		return err
	})
	return deleted, err
}
