package ingest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/valyala/fasthttp"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// AnyOrigin, as the only origin of a namespace, lets every page read the answers.
const AnyOrigin = "*"

// What a page may send and read. Browsers let it read Content-Type and the body without
// being told. Chromium keeps the answer to a preflight for 2 h at most.
var (
	corsRequestHeaders = []byte("Authorization, Content-Encoding, Content-Type, Idempotency-Key, Prefer, X-Client-Discards, X-Event-Ts, X-Sent-At")
	corsSDKHeaders     = []byte("Authorization, *") // what SDKs add differs by version; * leaves out Authorization
	corsAnswerHeaders  = []byte("Accept-Encoding, Allow, Retry-After, WWW-Authenticate")
	corsMaxAge         = []byte("7200") // seconds
)

// Header names as fasthttp spells them.
var (
	headerAllowOrigin      = []byte(fasthttp.HeaderAccessControlAllowOrigin)
	headerAllowCredentials = []byte(fasthttp.HeaderAccessControlAllowCredentials)
	headerExposeHeaders    = []byte(fasthttp.HeaderAccessControlExposeHeaders)
	headerVary             = []byte(fasthttp.HeaderVary)
	valueOrigin            = []byte(fasthttp.HeaderOrigin)
	valueTrue              = []byte("true")
	valueAny               = []byte(AnyOrigin)
)

// originForm is an origin as browsers write it.
var originForm = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://([a-z0-9]([a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?$`)

// CheckOrigin returns an error for what no browser sends as Origin, and says what to
// write instead.
func CheckOrigin(text string) error {
	if text == AnyOrigin {
		return nil
	}
	if strings.Contains(text, "*") {
		return fmt.Errorf("%q: a part of an origin cannot be a *: list each origin, or write \"*\" alone to allow every page", text)
	}
	if text == "null" {
		return errors.New(`"null" is the origin of every local file and sandboxed frame: write "*" to allow every page`)
	}
	meant := text
	if u, err := url.Parse(text); err == nil && u.Host != "" {
		host := strings.ToLower(u.Host)
		switch u.Scheme { // browsers leave out the port that the scheme implies
		case "http":
			host = strings.TrimSuffix(host, ":80")
		case "https":
			host = strings.TrimSuffix(host, ":443")
		}
		meant = u.Scheme + "://" + host
	}
	switch {
	case !originForm.MatchString(meant):
		return fmt.Errorf("%q is not an origin: write scheme://host or scheme://host:port, such as https://game.example", text)
	case meant != text:
		return fmt.Errorf("%q is not an origin as browsers send it: write %q", text, meant)
	}
	return nil
}

// origins are those of one namespace whose pages may read its answers.
type origins struct {
	any    bool
	listed map[string]bool
}

// newOrigins are the origins by namespace; nil when no namespace lists any.
func newOrigins(cfg Config, known func(namespace string) bool) (map[string]*origins, error) {
	var all map[string]*origins
	for name, list := range cfg.CORSOrigins {
		if len(list) == 0 {
			continue
		}
		wrong := func(value any, want string) error {
			return partition.Wrong("cors_origins", value, want)
		}
		if !known(name) {
			return nil, wrong(name, "a namespace that the store has")
		}
		o := &origins{any: slices.Contains(list, AnyOrigin), listed: map[string]bool{}}
		if o.any && len(list) > 1 {
			return nil, wrong(list, `"*" alone, or origins without it`)
		}
		for _, origin := range list {
			if err := CheckOrigin(origin); err != nil {
				return nil, wrong(origin, err.Error())
			}
			o.listed[origin] = true
		}
		if all == nil {
			all = map[string]*origins{}
		}
		all[name] = o
	}
	return all, nil
}

// sdkOrigins are those of all namespaces that keys open; nil when none lists any. They
// hold for a request whose key is not known.
func sdkOrigins(keys *writeKeys) *origins {
	all := &origins{listed: map[string]bool{}}
	for _, byKey := range []map[string]*sdkNamespace{keys.byKey, keys.byName} {
		for _, of := range byKey {
			if of.origins != nil {
				all.any = all.any || of.origins.any
				maps.Copy(all.listed, of.origins.listed)
			}
		}
	}
	if !all.any && len(all.listed) == 0 {
		return nil
	}
	return all
}

// allow is the value that lets a page of that origin read an answer; nil: it may not.
func (o *origins) allow(origin []byte) []byte {
	switch {
	case o == nil || len(origin) == 0:
		return nil
	case o.any:
		return valueAny
	case o.listed[string(origin)]:
		return origin
	}
	return nil
}

// originOf is the origin of the page that sends a request; empty: none, or not one.
func originOf(ctx *fasthttp.RequestCtx) []byte {
	if values := ctx.Request.Header.PeekAll(fasthttp.HeaderOrigin); len(values) == 1 {
		return values[0]
	}
	return nil
}

// allowOrigin lets a page of a listed origin read the answer. It comes last, because a
// rejection begins the answer anew. Vary is the same for all, so that it does not tell which
// namespaces exist.
func (s *Server) allowOrigin(ctx *fasthttp.RequestCtx, t *target) {
	if s.origins == nil || len(t.path) == 0 {
		return
	}
	h := &ctx.Response.Header
	h.SetCanonical(headerVary, valueOrigin)
	allowed := t.listed.allow(originOf(ctx))
	if allowed == nil {
		return
	}
	h.SetCanonical(headerAllowOrigin, allowed)
	h.SetCanonical(headerExposeHeaders, corsAnswerHeaders)
	// Without this a browser would not send a beacon whose type needs a preflight.
	if t.cookies && !bytes.Equal(allowed, valueAny) {
		h.SetCanonical(headerAllowCredentials, valueTrue)
	}
}

// rejectPage rejects what a web page sends to a namespace that needs no token, unless it lists
// the page's origin: whoever makes a person open a page could use the namespace otherwise.
// anyPage takes it from every origin.
func (s *Server) rejectPage(ctx *fasthttp.RequestCtx, namespace string, listed *origins,
	anyPage bool) *rejection {
	h := &ctx.Request.Header
	origin := h.Peek(fasthttp.HeaderOrigin)
	if listed.allow(origin) != nil {
		return nil
	}
	host := textOf(h.Host()) // not that of a whole URL as target, which browsers send to proxies only
	switch {
	case wire.Rebindable(host) && ctx.LocalIP().IsLoopback():
		return reject(wire.CodeBadHost)
	case anyPage || !wire.CrossSite(host, textOf(origin), textOf(h.Peek("Sec-Fetch-Site"))):
		return nil
	}
	s.logPage(namespace, origin)
	return reject(wire.CodeCrossOrigin)
}

// logPage says which origin to list.
func (s *Server) logPage(namespace string, origin []byte) {
	if len(origin) > 256 || !originForm.Match(origin) {
		origin = []byte("none, or not one that can be listed")
	}
	s.pages.Warn("page rejected, because cors_origins does not list its origin",
		zap.String("namespace", namespace), zap.String("origin", string(origin)),
		zap.String("hint", "to allow it, list the origin under cors_origins of the namespace"))
}

// fewLines bounds what pages make a log say: 5 lines a minute.
func fewLines(core zapcore.Core) zapcore.Core {
	return zapcore.NewSamplerWithOptions(core, time.Minute, 5, 0)
}

// textOf is a text that lives as long as the request.
func textOf(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// preflight tells a browser what a page of another origin may send; allowOrigin says
// whether it may. It asks for no token, because a browser sends none.
func (s *Server) preflight(ctx *fasthttp.RequestCtx, t *target) *rejection {
	h := &ctx.Response.Header
	ctx.SetStatusCode(fasthttp.StatusNoContent)
	h.Set(fasthttp.HeaderAllow, t.methods)
	if len(ctx.Request.Header.Peek(fasthttp.HeaderAccessControlRequestMethod)) == 0 {
		return nil
	}
	name := textOf(t.name())
	byKey := name == "" // of an SDK
	if t.listed.allow(originOf(ctx)) == nil {
		s.metrics.preflightsRejected.Inc()
		if byKey || s.hasNamespace(name) {
			s.logPage(strings.Clone(name), originOf(ctx))
		}
		return nil
	}
	h.Set(fasthttp.HeaderAccessControlAllowMethods, t.methods)
	allowed := corsRequestHeaders
	if byKey {
		allowed = corsSDKHeaders
	}
	h.SetBytesV(fasthttp.HeaderAccessControlAllowHeaders, allowed)
	h.SetBytesV(fasthttp.HeaderAccessControlMaxAge, corsMaxAge)
	return nil
}
