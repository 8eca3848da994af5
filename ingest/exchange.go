package ingest

import (
	"crypto/sha256"
	"crypto/subtle"
	"syscall"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/memory"
	"github.com/spillway-io/spillway/ingest/transport"
	"github.com/spillway-io/spillway/ingest/wire"
)

// Exchange is a request of a Mount and its answer. It belongs to the handler until that
// returns.
type Exchange struct {
	// Ctx is the request and the answer. The body of the request comes from Body, and that
	// of an answer that may be large goes to Answer.
	Ctx *fasthttp.RequestCtx

	server    *Server
	mount     *mount
	target    *target
	memory    *memory.Body   // what it has reserved; nil: nothing
	tenant    *memory.Tenant // who pays; nil: not known yet
	namespace string         // that Authenticate admitted to
}

// Rejection says why a request is not served. Its code is counted.
type Rejection = rejection

// Reject rejects with the status and message of the code. A message, if given, takes the
// place of the code's; it must hold nothing that a client sent.
func Reject(code wire.Code, message string) *Rejection {
	return &rejection{Failure: wire.Failure{Code: code, Message: message}}
}

// RejectUnknown rejects because the store did not confirm: what was asked may have been
// done.
func RejectUnknown(message string) *Rejection {
	return &rejection{Failure: wire.Failure{Code: wire.CodeStoreUnavailable, Message: message, Unknown: true}}
}

// RejectMethod answers 405. allowed lists the methods of the path, with commas.
func RejectMethod(allowed string) *Rejection {
	rejected := Reject(wire.CodeMethodNotAllowed, "the path has "+allowed)
	rejected.Allow = allowed
	return rejected
}

// SetRoute says which route the request is in metrics. It must be one of few names.
func (x *Exchange) SetRoute(name string) { x.Ctx.SetUserValue(routeKey{}, name) }

type routeKey struct{}

// Key is a token in its namespace. A nil Key, of a namespace without tokens, has no limits.
type Key = key

// Name is what the operator calls the token; empty: there is none.
func (k *key) Name() string {
	if k == nil {
		return ""
	}
	return k.Token.Name
}

// Rights are those of the token. A nil Key may do everything.
func (k *key) Rights() Rights {
	if k == nil {
		return Rights{}
	}
	return k.Token.Rights
}

// Bearer is the token of the Authorization header; empty: none.
func (x *Exchange) Bearer() []byte { return bearer(&x.Ctx.Request.Header) }

// Authenticate finds the key that a token is in a namespace. Without tokens every request is
// admitted, except of web pages that the namespace does not list: the key is nil. The
// namespaces are those of the mount if it has Owns, else those of all mounts and of the store.
// One that neither Config.Tokens nor SetTokens names is new, and its tokens are on their way:
// nobody is admitted yet.
func (x *Exchange) Authenticate(namespace string, token []byte) (*Key, *Rejection) {
	exists := x.server.hasNamespace(namespace)
	if owns := x.mount.Owns; owns != nil {
		exists = owns(namespace)
	}
	k := x.server.keyring.Load()
	if _, known := k.protected[namespace]; exists && !known && x.server.store.Namespace(namespace) == nil {
		return nil, reject(wire.CodeUnauthorized)
	}
	found, rejected := k.authenticate(namespace, exists, token)
	if found == nil && rejected == nil {
		rejected = x.server.rejectPage(x.Ctx, namespace, x.server.origins[namespace], false)
	}
	if rejected == nil {
		transport.Keep(x.Ctx)
		x.tenant, x.namespace = x.server.tenantOf(namespace, found), namespace
		if x.memory != nil {
			rejected = x.memory.Charge(x.tenant)
		}
	}
	return found, rejected
}

// NamespaceOf is the namespace that a token is for, without admitting anything; empty: there is
// none, or more than one.
func (x *Exchange) NamespaceOf(token []byte) (namespace string) {
	sum := sha256.Sum256(token)
	for _, candidate := range x.server.keyring.Load().keys[hashPrefix(sum)] {
		switch {
		case subtle.ConstantTimeCompare(candidate.Hash[:], sum[:]) != 1:
		case namespace != "":
			return ""
		default:
			namespace = candidate.namespace
		}
	}
	return namespace
}

// Revoked reports whether a token was removed since Authenticate found its key, or the namespace
// got tokens since it needed none. Who waits asks before it serves.
func (x *Exchange) Revoked(k *Key) bool {
	now := x.server.keyring.Load()
	if k == nil {
		return now.protected[x.namespace]
	}
	return !now.holds(k.namespace, k.Hash)
}

// Path is the path of the request: of the mount of namespaces what follows /v1/, else the
// whole path as it was sent. It is fasthttp's memory.
func (x *Exchange) Path() []byte {
	if x.mount.Owns != nil {
		return x.target.path
	}
	return x.Ctx.URI().PathOriginal()
}

// Body is the body, decompressed, within the bounds of the mount and of the server's
// memory. An empty one is rejected with wire.CodeEmptyBody. It is valid until the end of the request.
func (x *Exchange) Body() ([]byte, *Rejection) {
	return x.reservation().Receive(x.Ctx, x.mount.MaxBody)
}

// RawBody is the body as it was sent, whatever its Content-Encoding, of at most max bytes
// and as the mount allows; it may be empty.
func (x *Exchange) RawBody(max int) ([]byte, *Rejection) {
	max = min(max, x.mount.MaxBody)
	if x.Ctx.Request.Header.ContentLength() > max {
		return nil, memory.TooLarge(max)
	}
	body, rejected := x.reservation().Read(x.Ctx, max)
	if rejected == nil && len(body) > max { // in chunks, all of which had arrived
		return nil, memory.TooLarge(max)
	}
	return body, rejected
}

// Reserve reserves n more bytes of the server's memory, until the end of the
// request, or rejects with wire.CodeOverloaded.
func (x *Exchange) Reserve(n int) *Rejection { return x.reservation().Reserve(n) }

// Wait is Reserve of a request that waits for what may come: of the connections that do, a
// namespace has at most share.Greed times those that it leaves to all others.
func (x *Exchange) Wait(n int) *Rejection { return x.reservation().Wait(n) }

func (x *Exchange) reservation() *memory.Body {
	if x.memory == nil {
		x.memory = x.server.memory.Get(x.tenant)
	}
	return x.memory
}

func (x *Exchange) release() {
	if x.memory != nil {
		x.server.memory.Put(x.memory)
		x.memory = nil
	}
}

// Answer sends a body that the caller does not use afterwards. A large one stays reserved
// until the client has taken it; the memory must have room for it.
func (x *Exchange) Answer(status int, contentType string, body []byte) *Rejection {
	if len(body) > transport.SmallAnswer {
		if rejected := x.Reserve(cap(body)); rejected != nil {
			return rejected
		}
	}
	x.Ctx.SetStatusCode(status)
	x.Ctx.Response.Header.SetContentType(contentType)
	transport.Send(x.Ctx, x.memory.Account(), body)
	return nil
}

// OnLost, after an Answer, has lost called once if the connection ends before the system has
// taken as many bytes as the body has: the client cannot have the whole answer. An answer that
// was taken and did not arrive is not seen. lost is called when the handler has returned, and
// does not use the Exchange.
func (x *Exchange) OnLost(lost func()) { transport.OnLost(x.Ctx, lost) }

// Stopping is closed when the server stops or retires: who waits for jobs answers then.
func (x *Exchange) Stopping() <-chan struct{} { return x.server.ending }

// Conn is the connection to the client, below TLS; nil: it is none of the system.
func (x *Exchange) Conn() syscall.RawConn { return transport.Raw(x.Ctx) }

// Preflight answers OPTIONS for a path that allows these methods, as the server does on its
// own routes: browsers may send what the namespace lists under cors_origins.
func (x *Exchange) Preflight(allowed string) *Rejection {
	x.target.methods = allowed
	return x.server.preflight(x.Ctx, x.target)
}
