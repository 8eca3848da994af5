package admin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// A request is one HTTP request, what runs while it is answered, and who sends it.
type request struct {
	*http.Request
	server *Server
	view   View
	who    identity
	body   []byte          // of a write
	ctx    context.Context // bounds what is read or changed for it
	masks  []string        // the keys whose values the answer may not have
	act    Act             // what the audit trail says, beside the verb and what the path names
	err    error           // the first mistake in it
}

func (r *request) fail(err error) { r.err = cmp.Or(r.err, err) }

// A rejection is an answer other than 200 as an error.
type rejection struct {
	status  int
	code    wire.Code
	message string
}

func (e *rejection) Error() string { return e.message }

func badRequest(format string, args ...any) *rejection {
	return &rejection{http.StatusBadRequest, wire.CodeBadRequest, fmt.Sprintf(format, args...)}
}

// bad rejects a value of the request.
func (r *request) bad(format string, args ...any) { r.fail(badRequest(format, args...)) }

func notFound(code wire.Code, format string, args ...any) *rejection {
	return &rejection{http.StatusNotFound, code, fmt.Sprintf(format, args...)}
}

func conflict(format string, args ...any) *rejection {
	return &rejection{http.StatusConflict, codeConflict, fmt.Sprintf(format, args...)}
}

// isAny reports whether an error is one of some.
func isAny(err error, of ...error) bool {
	return slices.ContainsFunc(of, func(one error) bool { return errors.Is(err, one) })
}

func unavailable(message string) *rejection {
	return &rejection{http.StatusServiceUnavailable, wire.CodeStoreUnavailable, message}
}

// namespace is the one in the path.
func (r *request) namespace() *partition.Namespace { return r.buffer(r.PathValue("namespace")) }

// buffer is the namespace of partitions with the given name.
func (r *request) buffer(name string) *partition.Namespace {
	ns := r.view.Store.Namespace(name)
	if _, queues := r.view.jobSpace(name); ns == nil && queues {
		r.fail(otherKind(name, kindQueue))
	} else if ns == nil {
		r.fail(noNamespace(name))
	}
	return ns
}

func noNamespace(name string) error {
	return notFound(wire.CodeNoSuchNamespace, "there is no namespace %q", name)
}

// flag is a parameter of the query that is 1 or 0, or absent.
func (r *request) flag(key string) bool {
	text := r.URL.Query().Get(key)
	on, err := strconv.ParseBool(text)
	if text != "" && err != nil {
		r.bad("%s: want 1 or 0", key)
	}
	return on
}

// maxBody is the longest body of a write, in bytes.
const maxBody = 64 << 10

// readBody reads the body of a write, up to maxBody.
func (r *request) readBody(w http.ResponseWriter) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return &rejection{http.StatusRequestEntityTooLarge, wire.CodeBodyTooLarge,
			"the body is longer than 64 KiB"}
	case err != nil:
		return badRequest("the body ended early")
	}
	r.body = body
	return nil
}

// decode reads the JSON body of a write. Unknown keys are errors: a misspelt limit must not
// widen a purge.
func (r *request) decode(into any) {
	d := json.NewDecoder(bytes.NewReader(r.body))
	d.DisallowUnknownFields()
	switch err := d.Decode(into); {
	case errors.Is(err, io.EOF):
		r.bad("empty body: send {}")
	case err != nil:
		r.bad("body: %s", strings.TrimPrefix(err.Error(), "json: "))
	default:
		if _, err := d.Token(); !errors.Is(err, io.EOF) {
			r.bad("body: more than one JSON value")
		}
	}
}

// empty reads the body of a write that says nothing.
func (r *request) empty() { r.decode(&struct{}{}) }

// acting bounds a write. It goes on when the client leaves, so that the audit trail has its end.
func (s *Server) acting(r *request, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), most)
	end := context.AfterFunc(s.running, cancel)
	return ctx, func() { end(); cancel() }
}

// isJSON reports whether a request says that its body is JSON. Forms of other pages cannot
// say so without asking first.
func (r *request) isJSON() bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// answer writes the answer of a route: its error, or as JSON, unless it is a handler, which writes.
func (s *Server) answer(w http.ResponseWriter, r *request, body any, err error) {
	if err != nil {
		s.reject(w, r, err)
	} else if h, ok := body.(http.Handler); ok {
		h.ServeHTTP(w, r.Request)
	} else {
		w.Header().Set("Content-Type", "application/json")
		if put, ok := body.(interface{ Created() bool }); ok && put.Created() {
			w.WriteHeader(http.StatusCreated)
		}
		_ = json.NewEncoder(w).Encode(body) // an error means that the client is gone
	}
}

func (s *Server) reject(w http.ResponseWriter, r *request, err error) {
	var rejected *rejection
	var field *partition.FieldError
	switch {
	case errors.As(err, &rejected):
	case errors.As(err, &field):
		rejected = badRequest("%v", err)
	case errors.Is(err, partition.ErrNoPartition):
		rejected = notFound(wire.CodeNoSuchPartition, "the partition has no entries")
	case errors.Is(err, partition.ErrNoLetter):
		rejected = errNoLetter
	case jobRejection(err) != nil:
		rejected = jobRejection(err)
	case errors.Is(err, partition.ErrTooManyPauses):
		rejected = conflict("%v", err)
	default:
		// An outage is in the log already, by the watch; a console asks every second.
		level := zap.DebugLevel
		if errors.Is(err, partition.ErrBroken) {
			level = zap.WarnLevel
		}
		s.log.Log(level, "admin request failed", zap.String("route", r.Pattern), zap.Error(err))
		w.Header().Set("Retry-After", "1")
		rejected = unavailable("the store did not answer; see /readyz")
	}
	writeError(w, rejected)
}

func writeError(w http.ResponseWriter, e *rejection) {
	failure := wire.Failure{Code: e.code, Message: e.message}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	_, _ = w.Write(failure.Append(nil))
}
