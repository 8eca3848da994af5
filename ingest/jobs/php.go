package jobs

import (
	"context"
	"fmt"
	"strings"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/php"
)

// phpRoutes are the routes that queues of PHP's have, with their parameters.
var phpRoutes = map[string][]string{
	"publish":    {"delay", "at", "dedup"},
	"counts":     nil,
	"purge":      {"state"},
	"claim":      {"count", "ttr", "wait", "on_end"},
	"take":       {"count", "ttr", "wait", "on_end"},
	"settle":     nil,
	"peek":       nil,
	"forecast":   {"step", "steps"},
	"dead":       {"do", "limit"},
	"list_dead":  {"limit", "offset"},
	"job":        nil,
	"delete_job": nil,
}

// NotOfPHP says what queues of PHP's do not have.
const NotOfPHP = "queues of PHP's have no schedules, traces, pauses or lists of jobs, and no jobs that are changed or prepared"

// ofPHP admits a request to a queue of PHP's, and returns the parameters that it may have.
func (c *call) ofPHP() ([]string, *ingest.Rejection) {
	params, has := phpRoutes[c.route.name]
	if !has {
		return nil, ingest.Reject(wire.CodeNoSuchRoute, NotOfPHP+": keep such jobs in a namespace of kind queue")
	}
	for _, queue := range c.queues {
		if !c.namespace.Serves(queue) {
			return nil, ingest.Reject(wire.CodeNoSuchQueue, "")
		}
	}
	rights := c.key.Rights()
	writes := c.route.name == "publish" || c.route.name == "dead" &&
		string(c.Ctx.QueryArgs().Peek("do")) == "respawn"
	switch {
	case !rights.Limited:
	case writes && !rights.Produce:
		return nil, ingest.Reject(wire.CodeForbidden,
			"the token may not publish here: a job of PHP's runs code, so it needs rights: [produce]")
	case !writes && !rights.Consume:
		return nil, ingest.Reject(wire.CodeForbidden,
			"the token may only publish here: its rights lack consume")
	}
	return params, nil
}

// mayPublish rejects the i-th job of a request when the token may not run its code.
func (c *call) mayPublish(i int, payload []byte) *ingest.Rejection {
	rights := c.key.Rights()
	if !rights.Limited {
		return nil
	}
	switch facts := php.Read(payload); {
	case facts.Raw && !rights.Raw:
		return ingest.Reject(wire.CodeForbidden,
			fmt.Sprintf("job %d holds what PHP unserializes, data.command: the token needs raw: true for it", i))
	case !rights.MayRun(facts.Class):
		return ingest.Reject(wire.CodeForbidden,
			fmt.Sprintf("job %d: the token may not run the class %.100q, but %s",
				i, facts.Class, strings.Join(strings.Fields(rights.Classes), ", ")))
	}
	return nil
}

// restarting is a store whose applications tell their workers to restart; *php.Store is one.
type restarting interface {
	RestartSignal(ctx context.Context, namespace string) string
}

// headerRestart is another text once the workers of a PHP application are to restart.
const headerRestart = "X-Spillway-Restart"

// tellRestart adds the restart signal to the answer to a claim of PHP's jobs.
func (a *api) tellRestart(c *call) {
	of, ok := a.store.(restarting)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), a.cfg.FlushTimeout)
	defer cancel()
	if signal := of.RestartSignal(ctx, c.namespace.Name); signal != "" {
		c.Ctx.Response.Header.Set(headerRestart, signal)
	}
}
