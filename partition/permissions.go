package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/partition/backend"
)

// probePartition is a name that no caller can use.
const probePartition = "!permission-probe"

// checkPermissions tries on every shard whether the server lets this user run all
// commands of the scripts and the store. Redis does not roll back: a script whose
// user may run its first write and not its second is left half done. The probe
// runs once by digest and once with its text, because the store uses both.
func (s *Store) checkPermissions(ctx context.Context) error {
	if s.permitted.Load() {
		return nil
	}
	for _, ns := range s.Namespaces() {
		calls := make([]*backend.Call, 0, 2*len(ns.shards))
		for i := range ns.shards {
			sh := &ns.shards[i]
			for range 2 {
				calls = append(calls, backend.NewCall(lua.PermissionProbe, nil, probeKeys(sh), probePartition))
			}
			calls[len(calls)-1].WithText()
		}
		s.backend.Run(ctx, s.backend.Out, calls)
		missing := backend.Rights{}
		for _, c := range calls {
			if c.Err != nil {
				return c.Err
			}
			for n := c.Rest.Int(); n > 0 && !c.Rest.Broken; n-- {
				command, text := string(c.Rest.Bulk()), string(c.Rest.Bulk())
				if !backend.IsDenied(text) {
					return classifyProbe(ns.Name, command, text)
				}
				missing.Add(command, text)
			}
		}
		if len(missing) > 0 {
			return missing.Error(s.backend.Addrs(), s.prefix)
		}
	}
	s.permitted.Store(true)
	return nil
}

// classifyProbe is why the probe failed: a server state that passes, or a foreign value.
func classifyProbe(namespace, command, text string) error {
	err := backend.Classify(backend.AnsweredError(text))
	if errors.Is(err, ErrUnavailable) || strings.HasPrefix(text, "WRONGTYPE") {
		return err
	}
	return backend.Wrap(ErrIncompatible, fmt.Errorf("namespace %s: %s fails on its shards: %s", namespace, command, text))
}

// missingRights names all rights that the user lacks, once one of them has failed a
// Check. first is returned where none is found.
func (s *Store) missingRights(ctx context.Context, first error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), backend.ProbeTimeout)
	defer cancel()
	var mu sync.Mutex
	missing := backend.Rights{}
	note := func(command string, err error) {
		if backend.Denied(err) {
			mu.Lock()
			defer mu.Unlock()
			missing.Add(command, err.Error())
		}
	}
	note("ping", first) // only to see whether it is the keys
	delete(missing, "ping")
	_ = backend.EachMaster(ctx, s.backend.Out, func(ctx context.Context, c *redis.Client) error {
		note("time", c.Do(ctx, "time").Err())
		note("info", c.Do(ctx, "info", "server").Err())
		note("script|load", c.Do(ctx, "script", "load", lua.PermissionProbe.Source).Err())
		note("evalsha", c.Do(ctx, "evalsha", strings.Repeat("0", 40), 0).Err())
		note("eval", c.Do(ctx, "eval", "return 0", 0).Err())
		if s.backend.Replicas() > 0 {
			note("wait", c.Do(ctx, "wait", 0, 1).Err())
		}
		return nil
	})
	for _, ns := range s.Namespaces() {
		for i := range ns.shards {
			keys := probeKeys(&ns.shards[i])
			reply, err := s.backend.Out.Eval(ctx, lua.PermissionProbe.Source, keys, probePartition).Slice()
			if backend.Denied(err) && missing["eval"] && !missing["evalsha"] {
				reply, err = s.backend.Out.EvalSha(ctx, lua.PermissionProbe.SHA, keys, probePartition).Slice()
			}
			if !missing["eval"] || !missing["evalsha"] {
				note("eval", err)
			}
			for i := 2; i+1 < len(reply); i += 2 {
				if text := fmt.Sprint(reply[i+1]); backend.IsDenied(text) {
					missing.Add(fmt.Sprint(reply[i]), text)
				}
			}
		}
	}
	if len(missing) == 0 {
		return first
	}
	return missing.Error(s.backend.Addrs(), s.prefix)
}

// probeKeys are the KEYS of the probe. A list of its own stands in for the dead letters:
// what something else may have put there concerns few entries, see checkSharedKeys.
func probeKeys(sh *shard) []string {
	return []string{
		sh.list(probePartition), sh.ready, sh.meta(probePartition), sh.ledger, sh.list(probePartition), sh.produceResult(probePartition, "0"),
	}
}
