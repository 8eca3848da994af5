package lmstfy

import (
	"fmt"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
)

const headerToken = "X-Token"

// authenticate finds the namespace and the key of a request. A token is written
// "[pool:]token". One without a pool is of the namespace's own.
func (c *call) authenticate() *refusal {
	pool, token, named := strings.Cut(c.sentToken(), ":")
	if !named {
		pool, token = "", pool
	}
	if pool != "" && !c.Queues.HasPool(pool) {
		return refuse(wire.CodeUnauthorized, fasthttp.StatusNotFound, "pool not found")
	}
	c.namespace, c.pool = c.Queues.Namespace(c.namespaceName)
	if c.namespace != nil && pool != "" && pool != c.pool {
		c.namespace, c.pool = nil, pool
	}
	if c.route.open {
		return nil
	}
	c.token = token
	known := c.namespace != nil
	if known {
		var rejected *ingest.Rejection
		c.key, rejected = c.Authenticate(c.namespaceName, []byte(token))
		known = rejected == nil
	}
	switch {
	case known:
		if c.key != nil && c.Limits != nil {
			c.limits = c.Limits(c.namespaceName, c.key.Hash)
		}
		return nil
	case token == "":
		return refuse(wire.CodeUnauthorized, fasthttp.StatusUnauthorized, "token not found")
	}
	return refuse(wire.CodeUnauthorized, fasthttp.StatusUnauthorized, "invalid token")
}

// sentToken is the token of a request. It is empty when there are two headers: of two, a
// proxy in front may have checked the other.
func (c *call) sentToken() string {
	values := c.Ctx.Request.Header.PeekAll(headerToken)
	if len(values) > 1 {
		return ""
	}
	if len(values) == 1 && len(values[0]) > 0 {
		return string(values[0])
	}
	return string(c.Ctx.QueryArgs().Peek("token"))
}

// takeRequest counts a request against the limit of its token.
func (c *call) takeRequest() (refund func(int64), refused *refusal) {
	switch c.route.limit {
	case limitProduce:
		return c.take(c.limits.Write, 1, limitProduce)
	case limitConsume:
		return c.take(c.limits.Read, 1, limitConsume)
	}
	return noRefund, nil
}

func noRefund(int64) {}

// take takes n of a limit, or refuses. refund gives some of it back.
func (c *call) take(limiter Limiter, n int, action string) (refund func(int64), refused *refusal) {
	if limiter == nil {
		return noRefund, nil
	}
	ctx, cancel := c.deadline()
	defer cancel()
	refund, wait, err := limiter.Take(ctx, int64(n))
	if err != nil {
		return nil, c.failed("take from the limit of a token", err)
	}
	if wait == 0 {
		return refund, nil
	}
	c.Metrics.limited(c, action)
	return nil, &refusal{
		status: fasthttp.StatusTooManyRequests, field: "msg", code: wire.CodeRateLimited,
		text: fmt.Sprintf("token(%s) %s reach the limit rate, please retry later", c.token, action),
	}
}
