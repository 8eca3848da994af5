package job

import (
	"context"
	"errors"
	"fmt"
	"strings"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition/backend"
)

// probeQueue is a name that no caller can use.
const probeQueue = "!permission-probe"

// checkPermissions tries on every shard of a namespace whether the server lets this user run
// all commands of the scripts: once by digest and once with its text, because the store uses
// both. What wakes need beside that shows when they subscribe.
func (s *Store) checkPermissions(ctx context.Context, ns *Namespace) error {
	if s.backend.Embedded() {
		return nil
	}
	calls := make([]*backend.Call, 0, 2*len(ns.shards))
	for _, sh := range ns.shards {
		keys := []string{sh.ready(probeQueue), sh.jobs(probeQueue), sh.dead(probeQueue), sh.prefix + "dd:" + probeQueue + ":0"}
		for range 2 {
			calls = append(calls, backend.NewCall(luajob.PermissionProbe, nil, keys, sh.channel+probeQueue, s.wake))
		}
		calls[len(calls)-1].WithText()
	}
	s.backend.Run(ctx, s.backend.Out, calls)
	missing, channels := backend.Rights{}, false
	for _, c := range calls {
		if backend.Denied(c.Err) {
			missing.Add("evalsha", c.Err.Error())
			continue
		}
		if c.Err != nil {
			return c.Err
		}
		for n := c.Rest.Int(); n > 0 && !c.Rest.Broken; n-- {
			command, text := string(c.Rest.Bulk()), string(c.Rest.Bulk())
			switch {
			case !backend.IsDenied(text):
				err := backend.Classify(backend.AnsweredError(text))
				if errors.Is(err, backend.ErrUnavailable) || strings.HasPrefix(text, "WRONGTYPE") {
					return err
				}
				return backend.Wrap(backend.ErrIncompatible, fmt.Errorf("namespace %s: %s fails on its shards: %s", ns.Name, command, text))
			case strings.Contains(text, "channel"):
				channels = true
			default:
				missing.Add(command, text)
			}
		}
	}
	switch {
	case len(missing) > 0:
		return missing.Error(s.backend.Addrs(), s.prefix)
	case channels:
		return backend.Wrap(backend.ErrIncompatible, fmt.Errorf(
			"redis at %s: the user may not use the channels %s:{*}:w:*: give it the right with ACL SETUSER its-name '&%[2]s:{*}:w:*'; deploy/OPERATING.md lists all that it needs",
			strings.Join(s.backend.Addrs(), ","), s.prefix))
	}
	return nil
}
