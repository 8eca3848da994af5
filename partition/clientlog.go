package partition

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"
)

// clientLog takes what go-redis would print to stderr in a form of its own: a
// line for each dial that failed, thousands in an outage. What an operator has
// to know the store's callers log once. go-redis has one log for the process,
// unguarded, so it is set before anything runs; the last Store's log takes it.
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
