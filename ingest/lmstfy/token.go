package lmstfy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/control"
)

const headerToken = "X-Token"

// authenticate finds the namespace and the key of a request. A token is written
// "[pool:]token". One without a pool is of the namespace's own.
func (c *call) authenticate() *rejection {
	pool, token, named := strings.Cut(c.sentToken(), ":")
	if !named {
		pool, token = "", pool
	}
	if pool != "" && !slices.ContainsFunc(c.Pools, func(p Pool) bool { return p.Name == pool }) {
		return reject(wire.CodeUnauthorized, fasthttp.StatusNotFound, "pool not found")
	}
	c.pool = pool
	if of := c.Pools.Of(c.namespaceName); of != nil && (pool == "" || pool == of.Name) {
		c.Pool = of
		c.pool = of.Name
		c.namespace = of.Store.Namespace(c.namespaceName)
	}
	c.token = token
	known := c.namespace != nil
	var rejected *ingest.Rejection
	if known {
		c.key, rejected = c.Authenticate(c.namespaceName, []byte(token))
	}
	switch {
	case rejected != nil && (rejected.Code == wire.CodeCrossOrigin || rejected.Code == wire.CodeBadHost):
		return reject(rejected.Code, fasthttp.StatusForbidden, rejected.Text())
	case known && rejected == nil:
		return nil
	case c.route.open:
		c.anonymous = true
		return nil
	case token == "":
		return reject(wire.CodeUnauthorized, fasthttp.StatusUnauthorized, "token not found")
	}
	return reject(wire.CodeUnauthorized, fasthttp.StatusUnauthorized, "invalid token")
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
func (c *call) takeRequest() (control.Taken, *rejection) {
	switch c.route.limit {
	case limitProduce:
		return c.take(c.key.Limiters().Write, 1, limitProduce)
	case limitConsume:
		return c.take(c.key.Limiters().Read, 1, limitConsume)
	}
	return control.Taken{}, nil
}

// take takes n of a limit, or rejects.
func (c *call) take(limiter *control.Limiter, n int, action string) (control.Taken, *rejection) {
	if limiter == nil {
		return control.Taken{}, nil
	}
	ctx, cancel := c.deadline()
	defer cancel()
	taken, rejected := c.key.Take(ctx, limiter, n)
	switch {
	case rejected == nil:
		return taken, nil
	case rejected.Code == wire.CodeStoreUnavailable:
		return taken, internalError()
	}
	c.Metrics.limited(c, action)
	return taken, &rejection{
		status: fasthttp.StatusTooManyRequests,
		field:  "msg",
		code:   wire.CodeRateLimited,
		text:   fmt.Sprintf("token(%s) %s reach the limit rate, please retry later", c.token, action),
	}
}

// takeIf takes n of a limit; false: the limit allows less, or cannot be read.
func (c *call) takeIf(limiter *control.Limiter, n int) (taken control.Taken, within bool) {
	if limiter == nil || n == 0 {
		return control.Taken{}, true
	}
	ctx, cancel := c.deadline()
	defer cancel()
	taken, rejected := c.key.Take(ctx, limiter, n)
	return taken, rejected == nil
}
