package backend

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

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
