package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spillway-io/spillway/lua"
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
		calls := make([]*call, 0, 2*len(ns.shards))
		for i := range ns.shards {
			sh := &ns.shards[i]
			for range 2 {
				// A list of its own stands in for the dead letters: what something else
				// may have put there concerns few entries, see checkSharedKeys.
				calls = append(calls, newCall(lua.PermissionProbe, nil, []string{
					sh.list(probePartition), sh.ready, sh.meta(probePartition), sh.ledger, sh.list(probePartition), sh.produceResult(probePartition, "0"),
				}, probePartition))
			}
			calls[len(calls)-1].withText()
		}
		s.run(ctx, s.backend.out, calls)
		for _, c := range calls {
			if c.err != nil {
				return c.err
			}
			if c.rest.whole() != 0 {
				return permissionError(ns.Name, string(c.rest.bulk()), string(c.rest.bulk()))
			}
		}
	}
	s.permitted.Store(true)
	return nil
}

// permissionError is why the probe failed: a server state that passes, a foreign
// value, or a missing right.
func permissionError(namespace, command, text string) error {
	err := classify(answeredError(text))
	if errors.Is(err, ErrUnavailable) || strings.HasPrefix(text, "WRONGTYPE") {
		return err
	}
	return &storeError{ErrIncompatible, fmt.Errorf(
		"namespace %s: the user may not run %s on its shards (%s): give it the rights that the README lists, with ACL SETUSER", namespace, command, text)}
}
