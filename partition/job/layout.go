package job

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
)

// What the ledger of each shard records, once. A program of before there were queues refuses
// format 2.
const (
	format = "2"
	kindOf = "queue"
)

var layoutFields = []string{"format", "kind", "shards", "epoch", "published"}

// A layout is what the ledger of a shard says.
type layout struct {
	sh     *shard
	fields map[string]string
	err    error
}

// checkNamespace compares what the ledgers record with the policy, and records it where the
// namespace is new. It keeps a conclusive result.
func (s *Store) checkNamespace(ctx context.Context, ns *Namespace) error {
	err := s.compareLayout(ctx, ns)
	if err == nil || errors.Is(err, backend.ErrIncompatible) {
		ns.checked.Store(&checkResult{err})
	}
	return err
}

func (s *Store) compareLayout(ctx context.Context, ns *Namespace) error {
	passed := ns.checked.Load()
	partly := s.backend.Cluster() && passed != nil && passed.err == nil
	if passed == nil || passed.err != nil {
		if err := s.checkPermissions(ctx, ns); err != nil {
			return err
		}
	}
	// Read first: a full store refuses to write even what it holds already, and nothing is
	// written into the ledger of a buffer.
	all := s.readLayouts(ctx, ns, "")
	missing, err := ns.judge(all, partly)
	if err != nil || !missing {
		return err
	}
	all = s.readLayouts(ctx, ns, rand.Text())
	missing, err = ns.judge(all, partly)
	if err == nil && missing {
		return backend.Wrap(backend.ErrUnavailable, errors.New("the ledger was removed meanwhile"))
	}
	return err
}

// judge compares. With partly, ledgers that cannot be read are left out while one can.
func (n *Namespace) judge(all []*layout, partly bool) (missing bool, err error) {
	read := 0
	for _, l := range all {
		if l.err != nil {
			if errors.Is(l.err, backend.ErrBroken) || !partly {
				return false, l.err
			}
			err = l.err
			continue
		}
		read++
		if wrong := n.compare(l.fields); wrong != nil {
			return false, backend.Wrap(backend.ErrIncompatible, wrong)
		}
		missing = missing || l.fields["format"] == "" || l.fields["epoch"] == "" || l.fields["kind"] == "" || l.fields["shards"] == ""
	}
	if read > 0 {
		err = nil
	}
	return missing, err
}

func (n *Namespace) compare(fields map[string]string) error {
	got, err := strconv.Atoi(fields["format"])
	switch {
	case fields["format"] == "" && fields["kind"] == "":
		return nil
	case fields["format"] == "1", fields["kind"] != "" && fields["kind"] != kindOf:
		return fmt.Errorf("namespace %s: the store holds a buffer under this name: configure kind: buffer, or use another namespace or prefix for the queues", n.Name)
	case fields["format"] != "" && err != nil:
		return fmt.Errorf("namespace %s: its ledger holds format=%q, which is no number; another program wrote there", n.Name, fields["format"])
	case got > 2:
		return fmt.Errorf("namespace %s: the store holds format %d, this program knows up to %s: upgrade the program", n.Name, got, format)
	case fields["shards"] != "" && fields["shards"] != strconv.Itoa(len(n.shards)):
		return fmt.Errorf("namespace %s: shards is %d, but the store was first used with %s: configure shards %[3]s, or use a new namespace or prefix", n.Name, len(n.shards), fields["shards"])
	}
	return nil
}

// readLayouts reads the ledgers of all shards, each server's in one pipeline. Where epoch is
// not empty, it first writes what is missing: of several programs the first one wins.
func (s *Store) readLayouts(ctx context.Context, ns *Namespace, epoch string) []*layout {
	all := make([]*layout, len(ns.shards))
	byServer := map[redis.Cmdable][]*layout{}
	for i, sh := range ns.shards {
		all[i] = &layout{sh: sh}
		server := s.backend.ClientFor(ctx, sh.ledger)
		byServer[server] = append(byServer[server], all[i])
	}
	var running sync.WaitGroup
	for server, part := range byServer {
		running.Go(func() { readLayout(ctx, server, part, len(ns.shards), epoch) })
	}
	running.Wait()
	for _, l := range all {
		if l.err != nil {
			s.backend.ReloadClusterMap(ctx)
			break
		}
	}
	return all
}

func readLayout(ctx context.Context, client redis.Cmdable, list []*layout, shards int, epoch string) {
	pipe := client.Pipeline()
	reads := make([]*redis.SliceCmd, len(list))
	writes := make([][]*redis.BoolCmd, len(list))
	for i, l := range list {
		if epoch != "" {
			for name, value := range map[string]any{"format": format, "kind": kindOf, "shards": shards, "epoch": epoch} {
				writes[i] = append(writes[i], pipe.HSetNX(ctx, l.sh.ledger, name, value))
			}
		}
		reads[i] = pipe.HMGet(ctx, l.sh.ledger, layoutFields...)
	}
	_, execErr := pipe.Exec(ctx)
	for i, l := range list {
		for _, w := range writes[i] {
			if l.err == nil {
				l.err = backend.Classify(w.Err())
			}
		}
		err := reads[i].Err()
		if err == nil && len(reads[i].Val()) != len(layoutFields) {
			err = execErr // no connection was made; the commands have no error of their own
		}
		if l.err == nil {
			l.err = backend.Classify(err)
		}
		l.sh.breaker.Done(l.err)
		if l.err != nil {
			continue
		}
		l.fields = map[string]string{}
		for k, v := range reads[i].Val() {
			if text, ok := v.(string); ok {
				l.fields[layoutFields[k]] = text
			}
		}
	}
}
