package backend

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// Clock follows the store's TIME on the process's monotonic clock. So ages are judged
// on one clock, whatever the wall clocks of this machine and of clients say.
type Clock struct {
	mu     sync.RWMutex
	base   time.Time
	offset int64 // store's µs minus µs since base
	known  bool
}

// Observe takes a reply that carried the store's time in ms, which the store read at
// some moment between sent and received. The offset moves only as far as it has to for
// that to be true, so slow replies do not disturb it.
func (c *Clock) Observe(sent, received time.Time, ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.known {
		c.base = sent
	}
	lowest := ms*1000 - received.Sub(c.base).Microseconds()
	highest := (ms+1)*1000 - sent.Sub(c.base).Microseconds()
	if !c.known {
		c.offset, c.known = lowest+(highest-lowest)/2, true
		return
	}
	c.offset = min(max(c.offset, lowest), highest)
}

func (c *Clock) Now() (ms int64, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return (time.Since(c.base).Microseconds() + c.offset) / 1000, c.known
}

// KnownTime is the store's time in ms. It asks the store where no answer has told it yet.
func (b *Backend) KnownTime(ctx context.Context) (int64, error) {
	if now, ok := b.clock.Now(); ok {
		return now, nil
	}
	return b.ReadTime(ctx)
}

// ReadTime asks the store for its time, in ms, and so sets the clock.
func (b *Backend) ReadTime(ctx context.Context) (int64, error) {
	ms, err := b.ReadTimeOf(ctx, b.Out)
	return ms, Classify(err)
}

// ReadTimeOf is ReadTime of one server, with the error of the client.
func (b *Backend) ReadTimeOf(ctx context.Context, client redis.Cmdable) (int64, error) {
	sent := time.Now()
	t, err := client.Time(ctx).Result()
	if err != nil {
		return 0, err
	}
	b.clock.Observe(sent, time.Now(), t.UnixMilli())
	return t.UnixMilli(), nil
}

// Now is the server's time in Unix ms. ok is false until it has answered once. The wall
// clock of the process is never used for ages.
func (b *Backend) Now() (ms int64, ok bool) { return b.clock.Now() }

// Clock is the clock that follows the server's time.
func (b *Backend) Clock() *Clock { return &b.clock }
