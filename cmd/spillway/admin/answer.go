package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

// A request is one HTTP request, what runs while it is answered, and who sends it.
type request struct {
	*http.Request
	view View
	who  identity
	body []byte // of a write
}

// A refusal is an answer other than 200 as an error.
type refusal struct {
	status  int
	code    wire.Code
	message string
}

func (e *refusal) Error() string { return e.message }

func badRequest(message string) error {
	return &refusal{http.StatusBadRequest, wire.CodeBadRequest, message}
}

// namespace is the one in the path.
func (r *request) namespace() (*partition.Namespace, error) {
	return r.buffer(r.PathValue("namespace"))
}

// buffer is the namespace of partitions with the given name.
func (r *request) buffer(name string) (*partition.Namespace, error) {
	if ns := r.view.Store.Namespace(name); ns != nil {
		return ns, nil
	}
	if _, ok := r.view.jobSpace(name); ok {
		return nil, otherKind(name, kindQueue)
	}
	return nil, noNamespace(name)
}

func noNamespace(name string) error {
	return &refusal{http.StatusNotFound, wire.CodeNoSuchNamespace, "there is no namespace " + strconv.Quote(name)}
}

// partition is the one in the path.
func (r *request) partition() (string, error) {
	name := r.PathValue("partition")
	if !partition.ValidPartition(name) {
		return "", &refusal{http.StatusNotFound, wire.CodeNoSuchPartition, "no name of a partition: " + strconv.Quote(name)}
	}
	return name, nil
}

// flag is a parameter of the query that is 1 or 0, or absent.
func (r *request) flag(key string) (bool, error) {
	text := r.URL.Query().Get(key)
	if text == "" {
		return false, nil
	}
	on, err := strconv.ParseBool(text)
	if err != nil {
		return false, badRequest(key + ": want 1 or 0")
	}
	return on, nil
}

// number is a whole number in the query from low to high, or standard where absent.
func (r *request) number(key string, standard, low, high int) (int, error) {
	text := r.URL.Query().Get(key)
	if text == "" {
		return standard, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < low || n > high {
		return 0, badRequest(key + ": want a number from " + strconv.Itoa(low) + " to " + strconv.Itoa(high))
	}
	return n, nil
}

// maxBody is the longest body of a write, in bytes.
const maxBody = 64 << 10

// readBody reads the body of a write, up to maxBody.
func (r *request) readBody(w http.ResponseWriter) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var tooLong *http.MaxBytesError
	switch {
	case errors.As(err, &tooLong):
		return &refusal{http.StatusRequestEntityTooLarge, wire.CodeBodyTooLarge, "the body is longer than 64 KiB"}
	case err != nil:
		return badRequest("the body ended early")
	}
	r.body = body
	return nil
}

// decode reads the JSON body of a write. Unknown keys are errors: a misspelt limit must not
// widen a purge.
func (r *request) decode(into any) error {
	d := json.NewDecoder(bytes.NewReader(r.body))
	d.DisallowUnknownFields()
	switch err := d.Decode(into); {
	case errors.Is(err, io.EOF):
		return badRequest("empty body: send {}")
	case err != nil:
		return badRequest("body: " + strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return badRequest("body: more than one JSON value")
	}
	return nil
}

// acting bounds a write. It goes on when the client leaves, so that the trail has its end.
func (s *Server) acting(r *request, most time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), most)
	end := context.AfterFunc(s.running, cancel)
	return ctx, func() { end(); cancel() }
}

// reading bounds a read of the store.
func (r *request) reading() (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), readTimeout)
}

// isJSON reports whether a request says that its body is JSON. Forms of other pages cannot
// say so without asking first.
func (r *request) isJSON() bool {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && kind == "application/json"
}

// answer writes the JSON answer of a route, or its error.
func (s *Server) answer(w http.ResponseWriter, r *request, body any, err error) {
	var refused *refusal
	switch {
	case err == nil:
		writeJSON(w, http.StatusOK, body)
	case errors.As(err, &refused):
		writeError(w, refused)
	case errors.Is(err, partition.ErrNoPartition):
		writeError(w, &refusal{http.StatusNotFound, wire.CodeNoSuchPartition, "the partition has no entries"})
	case errors.Is(err, job.ErrNoJob):
		writeError(w, &refusal{http.StatusNotFound, wire.CodeNoSuchJob, "there is no such job, or the queue has none"})
	case errors.Is(err, job.ErrTooManyDelayed):
		writeError(w, &refusal{http.StatusConflict, codeConflict, err.Error()})
	default:
		// An outage is in the log already, by the watch; a console asks every second.
		level := zap.DebugLevel
		if errors.Is(err, partition.ErrBroken) {
			level = zap.WarnLevel
		}
		s.log.Log(level, "admin request failed", zap.String("route", r.Pattern), zap.Error(err))
		w.Header().Set("Retry-After", "1")
		writeError(w, &refusal{http.StatusServiceUnavailable, wire.CodeStoreUnavailable, "the store did not answer; see /readyz"})
	}
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error means that the client is gone.
	_ = json.NewEncoder(w).Encode(body)
}

func writeError(w http.ResponseWriter, e *refusal) {
	failure := wire.Failure{Code: e.code, Message: e.message}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.status)
	_, _ = w.Write(failure.Append(nil))
}
