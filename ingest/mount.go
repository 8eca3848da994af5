package ingest

import (
	"bytes"
	"regexp"
	"strings"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// Mount gives the requests of some paths to a handler of another package. The server
// accepts them, checks their framing, bounds their memory, counts them, recovers from
// panics, and waits for them when it stops. The handler authenticates.
type Mount struct {
	// Name is the route of its requests in metrics, unless the handler says another.
	Name string
	// Prefix begins the paths, such as /api/. Empty: /v1/{namespace} and what is below, of
	// the namespaces for which Owns is true.
	Prefix string
	// Root gives the handler also POST /; default false.
	Root bool
	// AnyPath gives the handler also paths with %-escapes, //, /./ and /../ behind the
	// prefix, as they were sent. Default: 400 bad_request.
	AnyPath bool
	// Owns says which namespaces are its own. Each request calls it, so it must be quick
	// and must not keep the name. The store has none of these namespaces.
	Owns func(namespace string) bool
	// MaxBody is the largest body as it is sent, in bytes; default Config.MaxBody. More
	// than a quarter of MaxInflightBytes has no effect.
	MaxBody int
	// Handler answers a request, or returns why it does not.
	Handler func(*Exchange) *Rejection
	// Failure answers a request that is rejected, by the handler or by the server, in the
	// form of the protocol; default nil, JSON. Status and headers are set when it is
	// called, and it may change them.
	Failure func(*Exchange, *Rejection)
}

// mount is a Mount with its own row for metrics. It is a door.
type mount struct {
	Mount
	row route
}

var mountForm = regexp.MustCompile(`^/([A-Za-z0-9_-]+/)+$`)

// newMounts needs a Config that is valid otherwise.
func newMounts(cfg Config) ([]*mount, error) {
	var all []*mount
	for _, m := range cfg.Mounts {
		wrong := func(want string) error {
			return partition.Wrong("mounts", m.Name+" "+m.Prefix, want)
		}
		taken := m.Prefix == "/v1/" || m.Prefix == "/beacon/"
		for i := range sdkProtocols {
			p := &sdkProtocols[i]
			taken = taken || overlap(m.Prefix, p.prefix) || p.native != "" && overlap(m.Prefix, "/"+p.native)
		}
		for _, other := range all {
			taken = taken || overlap(m.Prefix, other.Prefix)
		}
		switch {
		case m.Name == "" || m.Handler == nil || (m.Prefix == "") == (m.Owns == nil):
			return nil, wrong("a name, a handler, and either a prefix or namespaces")
		case m.Prefix != "" && !mountForm.MatchString(m.Prefix):
			return nil, wrong("a prefix such as /api/")
		case taken:
			return nil, wrong("a prefix that is not a part of another route")
		}
		if m.MaxBody <= 0 {
			m.MaxBody = cfg.MaxBody
		}
		m.MaxBody = int(min(int64(m.MaxBody), max(cfg.MaxInflightBytes/4, int64(cfg.MaxBody))))
		to := &mount{Mount: m, row: route{name: m.Name}}
		to.row.door = to
		all = append(all, to)
	}
	return all, nil
}

// overlap reports whether one of two prefixes begins the other.
func overlap(a, b string) bool {
	return a != "" && b != "" && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a))
}

// mountOf finds the mount of a path; nil: none. original is the path as it was sent. Of
// the path of a namespace, rest is what follows /v1/.
func (s *Server) mountOf(path, original []byte) (m *mount, rest []byte) {
	for _, m := range s.mounts {
		if m.Owns == nil {
			if m.Root && string(original) == "/" || bytes.HasPrefix(original, []byte(m.Prefix)) || !m.AnyPath && bytes.HasPrefix(path,
				[]byte(m.Prefix)) {
				return m, nil
			}
			continue
		}
		if rest, below := bytes.CutPrefix(path, []byte("/v1/")); below {
			name, _, _ := bytes.Cut(rest, []byte{'/'})
			if m.Owns(textOf(name)) {
				return m, rest
			}
		}
	}
	return nil, nil
}

// hasNamespace reports whether the store, or a mount, has a namespace.
func (s *Server) hasNamespace(name string) bool {
	if s.store.Namespace(name) != nil {
		return true
	}
	for _, m := range s.mounts {
		if m.Owns != nil && m.Owns(name) {
			return true
		}
	}
	return false
}

// matchMount is match for a path of a mount; false: it is of none. The handler
// distinguishes methods and what follows the prefix.
func (s *Server) matchMount(ctx *fasthttp.RequestCtx, t *target) (rejected *rejection, found bool) {
	uri := ctx.URI()
	m, rest := s.mountOf(uri.Path(), uri.PathOriginal())
	if m == nil || m.Root && len(uri.Path()) == 1 && !ctx.IsPost() {
		return nil, false
	}
	t.take(&m.row)
	t.maxBody, t.path = m.MaxBody, rest
	t.listed = s.origins[string(t.name())]
	switch {
	case !m.AnyPath && !bytes.Equal(uri.Path(), uri.PathOriginal()):
		return rejectf(wire.CodeBadRequest, "the path must not hold %%-escapes, //, /./ or /../"), true
	case !validTarget(ctx.RequestURI()):
		return rejectf(wire.CodeBadRequest, "the request target is a path that begins with one slash, and has no #fragment"), true
	}
	return nil, true
}

// admit leaves it to the handler to authenticate.
func (m *mount) admit(_ *Server, _ *fasthttp.RequestCtx, t *target) *rejection {
	if t.skipBody {
		return reject(wire.CodeOverloaded)
	}
	return nil
}

func (m *mount) serve(s *Server, ctx *fasthttp.RequestCtx, t *target) *rejection {
	x := &Exchange{Ctx: ctx, server: s, mount: m, target: t}
	defer x.release()
	return m.Handler(x)
}

// reject lets the mount write a rejection in its form.
func (m *mount) reject(s *Server, ctx *fasthttp.RequestCtx, t *target, r *rejection) {
	if r.Message == "" {
		r.Message = jobMessages[r.Code]
	}
	if writeRejection(ctx, r); m.Failure != nil {
		x := &Exchange{Ctx: ctx, server: s, mount: m, target: t}
		defer x.release()
		m.Failure(x, r)
	}
}

// maxBodyAt is the largest body that a request may have, in bytes as it is sent.
func (s *Server) maxBodyAt(h *fasthttp.RequestHeader) int {
	if len(s.mounts) > 0 {
		path := requestPath(h)
		if m, _ := s.mountOf(path, path); m != nil {
			return m.MaxBody
		}
	}
	return s.cfg.MaxBody
}
