package job

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

// An Owner is a service that registered its schedules. They fire while it sends heartbeats.
type Owner struct {
	Name    string
	Version int64     // of its code: the highest that was registered
	Until   time.Time // when its registration ends, or ended; zero: it ended it itself
	// Schedules is how many it has; set by CountOwned.
	Schedules int64
}

// An OwnedSchedule is one of an owner.
type OwnedSchedule struct {
	Queue, Name string
	Version     int64 // that put it
}

// MaxOwners is how many owners a namespace may have.
const MaxOwners = 10_000

// ownedOr is the hash of an owner; without one, a key that a script gets and does not read.
func (sh *shard) ownedOr(owner string) string {
	if owner == "" {
		return sh.owners
	}
	return sh.owned(owner)
}

var registerErrors = map[int64]error{0: ErrNoOwner, 4: ErrTooManySchedules, 7: ErrClosed,
	9: ErrOldVersion}

// owners has the services of a Store that registered schedules.
type owners struct{ scheduler }

// Register notes that an owner lives, for ttl from now; its schedules fire so long. It only
// ever prolongs. It is ErrOldVersion where a newer version is registered, ErrTooManySchedules
// beyond MaxOwners.
func (s *owners) Register(ctx context.Context, ns *Namespace, owner string, version int64,
	ttl time.Duration) (Owner, error) {
	return s.register(ctx, ns, owner, strconv.FormatInt(version, 10), ms(ttl))
}

// Heartbeat prolongs the registration of an owner, or is ErrNoOwner: it has none, or ended it.
func (s *owners) Heartbeat(ctx context.Context, ns *Namespace, owner string,
	ttl time.Duration) (Owner, error) {
	return s.register(ctx, ns, owner, "", ms(ttl))
}

// Deregister ends the registration of an owner, or is ErrNoOwner. Its schedules stay and do not
// fire, and its version stays.
func (s *owners) Deregister(ctx context.Context, ns *Namespace, owner string) error {
	_, err := s.register(ctx, ns, owner, "", 0)
	return err
}

// register runs the script on all shards, as each fires for itself.
func (s *owners) register(ctx context.Context, ns *Namespace, owner, version string,
	ttl int64) (Owner, error) {
	if !partition.ValidScheduleName(owner) || ttl < 0 {
		return Owner{}, ErrBadArgument
	}
	if err := s.mayRun(ns); err != nil {
		return Owner{}, err
	}
	shards := ns.all()
	calls := make([]*backend.Call, len(shards))
	for i, sh := range shards {
		calls[i] = backend.NewCall(luajob.Register, sh.Breaker, []string{sh.Ledger,
			sh.owners, sh.owned(owner)}, owner, version, ttl,
			MaxOwners)
	}
	s.backend.RunDurably(ctx, s.backend.In, calls)
	o := Owner{Name: owner}
	var failed error
	for i, c := range calls {
		if c.Err != nil {
			return o, c.Err
		}
		status := c.Rest.Int()
		until := c.Rest.Int()
		at := c.Rest.Int()
		if c.Rest.Broken {
			return o, c.Misread()
		}
		if failed == nil {
			failed = registerErrors[status]
		}
		if failed == nil {
			failed = c.Unconfirmed
		}
		if i == 0 || until < o.Until.UnixMilli() {
			o.Until = time.UnixMilli(until)
		}
		o.Version = max(o.Version, at)
	}
	return o, failed
}

// Owners returns the owners of a namespace by name, those that ended their registration, too.
func (s *owners) Owners(ctx context.Context, ns *Namespace) (list []Owner, err error) {
	sh := ns.shardAt(0) // each is in all
	err = s.reads.Do(ctx, func() error {
		found, err := s.backend.Background.ZRangeWithScores(ctx, sh.owners, 0, -1).Result()
		if err != nil {
			return backend.Classify(err)
		}
		pipe := s.backend.Background.Pipeline()
		versions := make([]*redis.StringCmd, len(found))
		for i, z := range found {
			versions[i] = pipe.HGet(ctx, sh.owned(z.Member.(string)), "version")
		}
		if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
			return backend.Classify(err)
		}
		for i, z := range found {
			o := Owner{Name: z.Member.(string)}
			o.Version, _ = versions[i].Int64()
			if z.Score > 0 {
				o.Until = time.UnixMilli(int64(z.Score))
			}
			list = append(list, o)
		}
		return nil
	})
	slices.SortFunc(list, func(a, b Owner) int { return strings.Compare(a.Name, b.Name) })
	return list, err
}

// ownedPage is how many hashes one pipeline of CountOwned asks.
const ownedPage = 1000

// CountOwned sets Owner.Schedules of owners. Each may have some in every shard: 10,000 owners and
// 1,024 shards are ten million commands, so it works at an operator's pace, until ctx ends.
func (s *owners) CountOwned(ctx context.Context, ns *Namespace, list []Owner) error {
	return s.reads.Do(ctx, func() error {
		all := ns.all()
		shards, sizes := len(all), make([]*redis.IntCmd, 0, ownedPage)
		for from := 0; from < len(list)*shards; from += ownedPage {
			pipe := s.backend.Background.Pipeline()
			sizes = sizes[:0]
			for i := from; i < min(from+ownedPage, len(list)*shards); i++ {
				sizes = append(sizes, pipe.HLen(ctx, all[i%shards].owned(list[i/shards].Name)))
			}
			var failed error
			err := s.pace.Do(ctx, func(ctx context.Context) { _, failed = pipe.Exec(ctx) })
			if err = errors.Join(err, backend.Classify(failed)); err != nil {
				return err
			}
			for i, size := range sizes {
				list[(from+i)/shards].Schedules += max(0, size.Val()-1) // one field is the version
			}
		}
		return nil
	})
}

// Owned returns the schedules of an owner, by queue and name.
func (s *owners) Owned(ctx context.Context, ns *Namespace,
	owner string) (list []OwnedSchedule, err error) {
	if !partition.ValidScheduleName(owner) {
		return nil, ErrBadArgument
	}
	err = s.reads.Do(ctx, func() error {
		for _, sh := range ns.all() {
			fields, err := s.backend.Background.HGetAll(ctx, sh.owned(owner)).Result()
			if err != nil {
				return backend.Classify(err)
			}
			for member, text := range fields {
				name, queue, is := strings.Cut(member, " ")
				version, err := strconv.ParseInt(text, 10, 64)
				if is && err == nil {
					list = append(list, OwnedSchedule{queue, name, version})
				}
			}
		}
		return nil
	})
	slices.SortFunc(list, func(a, b OwnedSchedule) int {
		return strings.Compare(a.Queue+"/"+a.Name, b.Queue+"/"+b.Name)
	})
	return list, err
}

// Forget removes an owner and its version, so that any version may register again. It is for
// one whose schedules are deleted: what it still has stays, and does not fire.
func (s *owners) Forget(ctx context.Context, ns *Namespace, owner string) error {
	for _, sh := range ns.all() {
		pipe := s.backend.ClientFor(ctx, sh.Ledger).Pipeline()
		pipe.Del(ctx, sh.owned(owner)) // first: what is left after a failure can be asked for again
		pipe.ZRem(ctx, sh.owners, owner)
		if _, err := pipe.Exec(ctx); err != nil {
			return backend.Classify(err)
		}
	}
	return nil
}
