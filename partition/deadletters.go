package partition

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/partition/backend"
)

// Bounds of a page of dead letters. A letter is at most about as large as the largest
// entry in base64.
const (
	maxPageLetters = 500
	pageBytes      = 1 << 20
)

// ErrNoLetter: no dead letter that is kept has this ID.
var ErrNoLetter = errors.New("no such dead letter")

// DeadPage is a page of dead letters.
type DeadPage struct {
	Letters []Letter
	Next    string // the cursor of the next page; empty after the last
}

// DeadLetters lists a page of the dead letters that are kept: up to limit of them, at most
// 500, and about 1 MiB. A page before the last may hold fewer, even none. They come shard by
// shard, the newest of each first. The cursor of the first page is empty. Letters that come
// meanwhile are left out; where letters go meanwhile, a page may repeat some, and misses none.
// Errors: *FieldError for a cursor that no page gave, ErrTooManyReads where no read slot is
// free within 1s, and those of the store.
func (verbs) DeadLetters(ctx context.Context, ns *Namespace, cursor string,
	limit int) (page DeadPage, err error) {
	s := ns.store
	if err := s.space.Resolve(ctx, ns.home); err != nil {
		return DeadPage{}, err
	}
	shard, end, err := parseCursor(ns, cursor)
	if err != nil {
		return DeadPage{}, err
	}
	limit = min(max(limit, 1), maxPageLetters)
	err = s.ledgerReads.Do(ctx, func() error {
		page, err = s.deadPage(ctx, ns, shard, end, limit)
		return err
	})
	return page, err
}

// parseCursor reads "shard.end": the shard, and how many of its oldest letters come yet.
func parseCursor(ns *Namespace, cursor string) (shard int, end int64, err error) {
	if cursor == "" {
		return 0, positionNewest, nil
	}
	left, right, _ := strings.Cut(cursor, ".")
	shard, err1 := strconv.Atoi(left)
	end, err2 := strconv.ParseInt(right, 10, 32)
	if err1 != nil || err2 != nil || shard < 0 || ns.shard(shard) == nil || end < 1 {
		return 0, 0, Wrong("cursor", strconv.Quote(cursor), "that of the page before, or none")
	}
	return shard, end, nil
}

// deadPage reads letters from one shard, or, where it passes shards without any, from
// the first that has some.
func (s *Store) deadPage(ctx context.Context, ns *Namespace, shard int, end int64,
	limit int) (page DeadPage, err error) {
	shards := ns.home.Shards()
	for ; shard < len(shards); shard, end = shard+1, positionNewest {
		sh := own(shards[shard])
		c := backend.NewCall(lua.Peek, sh.Breaker, []string{sh.dead}, 1, end-1, limit, pageBytes)
		if s.backend.Run(ctx, s.backend.Background, []*backend.Call{c}); c.Err != nil {
			return DeadPage{}, c.Err
		}
		c.Rest.Int() // how many there are
		c.Rest.Int()
		end = c.Rest.Int() + 1
		for range c.More - 3 {
			end--
			l := parseLetter(shard, c.Rest.Bulk())
			l.place = end
			page.Letters = append(page.Letters, l)
		}
		if c.Rest.Broken {
			return DeadPage{}, c.Misread()
		}
		if len(page.Letters) > 0 {
			break
		}
	}
	switch {
	case end > 0 && shard < len(shards):
		page.Next = fmt.Sprintf("%d.%d", shard, end)
	case shard+1 < len(shards):
		page.Next = fmt.Sprintf("%d.%d", shard+1, positionNewest)
	}
	return page, nil
}

// DeadLetter finds the dead letter of an ID. It reads letters until it finds that one, at most
// a fifth of Redis's time. Errors: ErrNoLetter, the error of ctx, and those of the store.
func (verbs) DeadLetter(ctx context.Context, ns *Namespace, id string) (Letter, error) {
	s := ns.store
	if err := s.space.Resolve(ctx, ns.home); err != nil {
		return Letter{}, err
	}
	shard, end := 0, int64(positionNewest)
	for {
		var page DeadPage
		var err error
		if ended := s.pace.Do(ctx, func(ctx context.Context) {
			page, err = s.deadPage(ctx, ns, shard, end, maxPageLetters)
		}); ended != nil {
			return Letter{}, ended
		}
		if err != nil {
			return Letter{}, err
		}
		for _, l := range page.Letters {
			if l.ID == id {
				return l, nil
			}
		}
		if page.Next == "" {
			return Letter{}, ErrNoLetter
		}
		if shard, end, err = parseCursor(ns, page.Next); err != nil {
			return Letter{}, err
		}
	}
}

// discardTime is how long a call of Discard should take. To find a letter Redis goes through
// the list from the nearer end: 0.3 ms for one in the middle of 10,000, and 3 ms in the middle
// of 100,000.
const discardTime = 2 * time.Millisecond

// nextDiscard is how many letters the next call of Discard takes, after one that took n.
func nextDiscard(n int, took time.Duration) int {
	switch {
	case took > discardTime:
		return max(1, n/4)
	case took > discardTime/2:
		return n
	}
	return min(2*n, maxCallLeases)
}

// Discard removes dead letters for good, those of a shard by calls of up to 64. removed is how
// many it removed, for certain; a letter that was gone before does not count. Ledger.Dead stays
// as it is. After an error it can be repeated. Errors: that of ctx, and those of the store.
func (verbs) Discard(ctx context.Context, ns *Namespace,
	letters []Letter) (removed int, err error) {
	s := ns.store
	if err := s.mayRun(ctx); err != nil {
		return 0, err
	}
	n := 1 // nothing is known of the list yet
	for len(letters) > 0 {
		some := sameShard(letters, n)
		var gone []bool
		took := time.Duration(0)
		if ended := s.pace.Do(ctx, func(ctx context.Context) {
			began := time.Now()
			gone, err = s.discard(ctx, ns.shard(some[0].Shard), some)
			took = time.Since(began)
		}); ended != nil {
			return removed, ended
		}
		for _, g := range gone {
			if g {
				removed++
			}
		}
		if err != nil {
			return removed, err
		}
		letters = letters[len(some):]
		n = nextDiscard(n, took)
	}
	return removed, nil
}

// sameShard returns the first letters that fit into one call: of one shard, up to n, and 1 MiB.
func sameShard(letters []Letter, n int) []Letter {
	bytes := 0
	for i, l := range letters {
		if bytes += len(l.Raw); i > 0 && (i == n || bytes > maxLetterBytes || l.Shard != letters[0].Shard) {
			return letters[:i]
		}
	}
	return letters
}

// discard is one call; it tells which letters it removed.
func (s *Store) discard(ctx context.Context, sh *shard, letters []Letter) (gone []bool, err error) {
	c := backend.NewCall(lua.Discard, sh.Breaker, []string{sh.dead, sh.Ledger})
	for _, l := range letters {
		c.Args = append(c.Args, l.place, l.Raw)
	}
	if s.backend.Run(ctx, s.backend.Background, []*backend.Call{c}); c.Err != nil {
		return nil, c.Err
	}
	for range letters {
		gone = append(gone, c.Rest.Int() == 1)
	}
	if c.Rest.Broken {
		return nil, c.Misread()
	}
	return gone, nil
}
