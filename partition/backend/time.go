package backend

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"
)

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
