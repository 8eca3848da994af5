package clienttest

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
)

// Transport is a service without a network, for the tests of programs that report events:
// spillway.ReporterConfig{Transport: clienttest.NewTransport()}. It follows a script as Server does, and
// takes everything without one.
type Transport struct{ server *Server }

// NewTransport follows the script; see Step.
func NewTransport(script ...Step) *Transport { return &Transport{newServer(script)} }

// RoundTrip answers a request.
func (t *Transport) RoundTrip(r *http.Request) (response *http.Response, err error) {
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			response, err = nil, errors.Join(io.ErrUnexpectedEOF, r.Context().Err())
		default:
			panic(v)
		}
	}()
	w := httptest.NewRecorder()
	t.server.serve(w, r)
	return w.Result(), nil
}

// Stored is what was reported, in the order in which it came.
func (t *Transport) Stored() []Entry { return t.server.Stored() }

// Faults are the ways in which requests broke the contract: none, for a client of ours.
func (t *Transport) Faults() []string {
	t.server.mu.Lock()
	defer t.server.mu.Unlock()
	return append([]string(nil), t.server.faults...)
}
