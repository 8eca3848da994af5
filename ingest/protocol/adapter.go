// Package protocol lets SDKs of other vendors send to Spillway unmodified. Each
// family has an Adapter in a package below this one. An adapter knows bodies and answers; it
// knows neither HTTP nor the store.
//
//	key := adapter.HeaderKey(headers)
//	batch, err := adapter.Open(request, body)
//	err = batch.Each(adapter.Paths(), maxEntry, func(event protocol.Event, why wire.Reason) bool {
//		…
//	})
//	status, text := adapter.Answer(answer)
//
// What it returns are views of the body, or of memory that the next event has: copy what must
// outlive it. DESIGN.md says how the protocols map to ours.
package protocol

import (
	"errors"
	"iter"

	"github.com/spillway-io/spillway/ingest/wire"
)

var (
	// ErrBody: the body is not JSON, nests deeper than wire.MaxDepth, or is not of the form
	// that the call takes.
	ErrBody = errors.New("not a body of this protocol")
	// ErrBytes is ErrBody of a protocol that is not JSON.
	ErrBytes = errors.New("not a body of this protocol: cut short, or malformed")
	// ErrEnd is what a Maker may return when yield returned false.
	ErrEnd = errors.New("no more events are wanted")
)

// Values are headers, or the parameters of a query. Peek returns the first of a name, or nil.
type Values interface {
	Peek(name string) []byte
	All() iter.Seq2[[]byte, []byte]
}

// Request is what an adapter knows of a request beside its body.
type Request struct {
	Call   string // what follows the prefix of the protocol, such as "batch"
	Header Values
	Query  Values
}

// Adapter is the wire of one family of SDKs. It has no state.
type Adapter interface {
	// HeaderKey is the key in a header; empty: body or query has it.
	HeaderKey(header Values) string
	// BodyKeys are its names in a body, where Open finds it, or a query; nil: a header has it.
	BodyKeys() []string
	// Open finds the key, the clock and the events of a decompressed body, of a GET of the
	// query. Open may decode the body in place. Its error is ErrBody or ErrBytes.
	Open(r Request, body []byte) (Batch, error)
	// Paths are where an event names its partition when its namespace does not say; nil:
	// Open knows the partition.
	Paths() Paths
	// Answer is what the SDK expects once its events were judged, and its status.
	Answer(a Answer) (status int, text []byte)
	// Failure is what the SDK expects when its request is rejected, and its status.
	Failure(f Failure) (status int, text []byte)
}

// HeaderKeyed is the part of an Adapter whose key is in a header, and whose events say their
// partition themselves.
type HeaderKeyed struct{}

// BodyKeys are none.
func (HeaderKeyed) BodyKeys() []string { return nil }

// Paths are none.
func (HeaderKeyed) Paths() Paths { return nil }

// HeaderKey is the key of Authorization: see authorizationKey.
func (HeaderKeyed) HeaderKey(header Values) string {
	return authorizationKey(header.Peek("Authorization"))
}

// Dresser is an Adapter whose answers are not JSON, or have headers.
type Dresser interface {
	// Dress sets the headers of an answer, and of a failure.
	Dress(r Request, set func(name, value string))
}

// Emptier is an Adapter that takes a request without events as one that is stored.
type Emptier interface{ TakesEmpty() }

// Answer is what became of the events of a request.
type Answer struct {
	Request  Request
	Notes    []byte // those of the batch
	Count    int    // of events
	Accepted int
	Bytes    int           // size of the body after decompression
	Received int64         // Unix ms
	Results  []wire.Result // exceptions, by index
}

// FirstReason is why the first event that was not stored was not.
func (a *Answer) FirstReason() wire.Reason {
	for _, r := range a.Results {
		if r.Disposition != wire.Warning {
			return r.Reason
		}
	}
	return ""
}

// AllDropped reports whether events were dropped, and none was stored.
func (a *Answer) AllDropped() bool { return a.Accepted == 0 && a.FirstReason() != "" }

// Failure is why a request was rejected.
type Failure struct {
	Request Request
	Code    wire.Code
	Status  int // of our own routes
	Message string
}
