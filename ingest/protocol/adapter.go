// Package protocol lets SDKs of other vendors send to Spillway unmodified. Each family
// of SDKs has an Adapter in a package below this one. An adapter knows bodies and
// answers; it knows neither HTTP nor the store.
//
//	key := adapter.HeaderKey(authorization)
//	batch, err := adapter.Open("batch", body)
//	for raw := range batch.Events() {
//		event, why := batch.Read(raw, adapter.Paths())
//		…
//	}
//	status, text := adapter.Answer(nil, answer)
//
// What it returns are views of the body: copy what must outlive it. DESIGN.md says how
// the three protocols map to ours.
package protocol

import (
	"errors"

	"github.com/spillway-io/spillway/ingest/wire"
)

// ErrBody: the body is not JSON, nests deeper than wire.MaxDepth, or is not of the form
// that the call takes.
var ErrBody = errors.New("not a body of this protocol")

// Adapter is the wire of one family of SDKs. It has no state.
type Adapter interface {
	// HeaderKey is the key in the value of an Authorization header; empty: the body has it.
	HeaderKey(authorization []byte) string
	// BodyKeys are what the key is called in a body.
	BodyKeys() []string
	// Open finds the key, the clock and the events of a decompressed body. call is the
	// end of the path, such as "batch". Open may decode the body in place. Its error is ErrBody.
	Open(call string, body []byte) (Batch, error)
	// Paths are where an event names its partition when its namespace does not say.
	Paths() Paths
	// Answer appends what the SDK expects once its events were judged, and returns the status.
	Answer(dst []byte, a Answer) (status int, text []byte)
	// Failure appends what the SDK expects when its request is rejected, and returns the status.
	Failure(dst []byte, f Failure) (status int, text []byte)
}

// Answer is what became of the events of a request.
type Answer struct {
	Accepted int
	Bytes    int           // size of the body after decompression
	Received int64         // Unix ms
	Results  []wire.Result // exceptions, by index
}

// Failure is why a request was rejected.
type Failure struct {
	Code    wire.Code
	Status  int // of our own routes
	Message string
}
