package lmstfy

import (
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
)

// AccessLog switches the log of requests on and off. The zero value is off.
type AccessLog struct{ on atomic.Bool }

// write logs a request. Its query is left out: it may hold a token.
func (l *AccessLog) write(log *zap.Logger, ctx *fasthttp.RequestCtx, status int, took time.Duration) {
	if !l.on.Load() {
		return
	}
	log.Info("request", zap.ByteString("method", ctx.Method()), zap.ByteString("path", ctx.Path()), zap.Int("status", status),
		zap.Duration("took", took), zap.Stringer("client", ctx.RemoteAddr()),
		zap.ByteString("request_id", ctx.Response.Header.Peek(headerRequestID)))
}
