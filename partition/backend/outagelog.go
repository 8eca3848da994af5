package backend

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// An OutageLog logs one line when an outage begins and one when it ends, however
// many parts of the program notice it: shards, loops, requests. It is safe for
// concurrent use once its exported fields are set.
type OutageLog struct {
	Log          *zap.Logger
	Level        zapcore.Level // of the first line; the second is always info
	Began, Ended string        // the messages of the two lines

	mu      sync.Mutex
	failing int
	since   time.Time
}

// Begin records that one more part fails. The first part logs Began with fields.
func (o *OutageLog) Begin(fields ...zap.Field) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failing++; o.failing == 1 {
		o.since = time.Now()
		o.Log.Log(o.Level, o.Began, fields...)
	}
}

// End records that one part works again. The last part logs Ended with the field
// "after", which is how long the outage took.
func (o *OutageLog) End() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.failing--; o.failing == 0 {
		o.Log.Info(o.Ended, zap.Duration("after", time.Since(o.since)))
	}
}

// Failing is how many parts fail now.
func (o *OutageLog) Failing() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.failing
}

// clientLog receives the lines that go-redis would print to stderr in a format of its
// own: one for each failed dial, thousands in an outage. They go to the debug level,
// because the store logs an outage once. go-redis has one logger per process, so it is
// set in init, before anything runs, and writes to the log of the last Store.
type clientLog struct{ to atomic.Pointer[zap.Logger] }

var redisLog clientLog

func init() { redis.SetLogger(&redisLog) }

func (c *clientLog) Printf(_ context.Context, format string, args ...any) {
	log := c.to.Load()
	if log == nil {
		return
	}
	if e := log.Check(zap.DebugLevel, "redis client"); e != nil {
		e.Write(zap.String("detail", fmt.Sprintf(format, args...)))
	}
}
