// Package mixpanel is the wire of Mixpanel's SDKs: track, engage, groups and import.
package mixpanel

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"unsafe"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/wire"
)

// Adapter is the protocol.Adapter of Mixpanel's SDKs.
type Adapter struct{}

var (
	keys     = []string{"token", "$token"}
	keyPaths = []string{"properties.token", "$token"}
)

// HeaderKey is the user of Basic, which import has.
func (Adapter) HeaderKey(header protocol.Values) string {
	return protocol.BasicUser(header.Peek("Authorization"))
}

// BodyKeys are the names of a project's token in properties, and in an update of a profile.
func (Adapter) BodyKeys() []string { return keys }

// Paths are none: the partition is the distinct_id.
func (Adapter) Paths() protocol.Paths { return nil }

// Open takes an event, an array of events, lines of them, or one of the first two as the form
// data=, in JSON or base64.
func (Adapter) Open(_ protocol.Request, body []byte) (batch protocol.Batch, err error) {
	if first := bytes.TrimLeft(body, " \t\r\n"); len(first) > 0 && first[0] != '[' && first[0] != '{' {
		how := byte(form)
		for pair := range bytes.SplitSeq(body, []byte{'&'}) {
			if string(pair) == "verbose=1" {
				how = verboseForm
			}
		}
		data, ok := protocol.FormData(body)
		if !ok {
			return batch, protocol.ErrBody
		}
		batch, err = openData(data)
		batch.Notes = []byte{how}
		return batch, err
	}
	return openData(body)
}

func openData(body []byte) (protocol.Batch, error) {
	root, err := protocol.ParseJSON(body)
	if err != nil {
		return openLines(body)
	}
	first := root
	if root.IsArray() {
		first = root.Get("0")
	}
	return protocol.Make(protocol.FirstText(first, keyPaths), func(maxEntry int, yield func(protocol.Event, wire.Reason) bool) error {
		if !root.IsArray() {
			yield(readEvent(root, maxEntry))
			return nil
		}
		root.ForEach(func(_, event gjson.Result) bool { return yield(readEvent(event, maxEntry)) })
		return nil
	}), nil
}

func openLines(body []byte) (protocol.Batch, error) {
	lines := wire.SplitLines(body)
	line, _ := lines.Next()
	first, err := protocol.ParseJSON(line)
	if err != nil {
		return protocol.Batch{}, err
	}
	return protocol.Make(protocol.FirstText(first, keyPaths), func(maxEntry int, yield func(protocol.Event, wire.Reason) bool) error {
		lines := wire.SplitLines(body)
		for line, ok := lines.Next(); ok; line, ok = lines.Next() {
			event, err := protocol.ParseJSON(line)
			if err != nil {
				return protocol.ErrBody
			}
			if !yield(readEvent(event, maxEntry)) {
				break
			}
		}
		return nil
	}), nil
}

// readEvent reads an event, or an update of a profile.
func readEvent(event gjson.Result, maxEntry int) (e protocol.Event, why wire.Reason) {
	switch {
	case len(event.Raw) > maxEntry:
		return e, wire.ReasonTooLarge
	case !event.IsObject():
		return e, wire.ReasonBadItem
	}
	e.Data = unsafe.Slice(unsafe.StringData(event.Raw), len(event.Raw))
	of := event.Get("properties")
	e.ID = []byte(of.Get("$insert_id").Str)
	at := of.Get("time")
	if e.TS, e.HasTS = protocol.ParseTime(at); e.TS < 1e11 { // seconds, until the year 5138
		e.TS, e.HasTS = protocol.ParseSeconds(at)
	}
	for _, id := range []gjson.Result{of.Get("distinct_id"), event.Get("$distinct_id"), of.Get("$device_id")} {
		if e.Partition = protocol.PartitionName(id.String()); e.Partition != "" {
			break
		}
	}
	return e, ""
}

// Notes on how a body came; none: not as a form.
const (
	form = iota + 1
	verboseForm
)

// Answer is 1, of import and with verbose=1 an object. import names the events that were dropped,
// unless it was a form: of these Python's SDK knows the answer of track only.
func (Adapter) Answer(a protocol.Answer) (int, []byte) {
	switch {
	case a.Request.Call != "import" || len(a.Notes) > 0:
		isVerbose := isVerbose(a.Request) || len(a.Notes) > 0 && a.Notes[0] == verboseForm
		return answer(isVerbose, http.StatusOK, "")
	case a.Accepted == a.Count:
		return http.StatusOK, fmt.Appendf(nil, `{"code":200,"status":"OK","num_records_imported":%d}`, a.Accepted)
	}
	type record struct {
		Index   int         `json:"index"`
		Message wire.Reason `json:"message"`
	}
	failed := []record{}
	for _, r := range a.Results {
		if r.Disposition != wire.Warning {
			failed = append(failed, record{r.Index, r.Reason})
		}
	}
	text, _ := json.Marshal(failed) // of texts and numbers it cannot fail
	return http.StatusBadRequest, fmt.Appendf(nil, `{"code":400,"status":"Bad Request","error":"some data points in the request failed validation",`+
		`"num_records_imported":%d,"failed_records":%s}`, a.Accepted, text)
}

func isVerbose(r protocol.Request) bool { return string(r.Query.Peek("verbose")) == "1" }

// answer is what track and engage say; an empty why: stored.
func answer(verbose bool, status int, why string) (int, []byte) {
	digit := "1"
	if why != "" {
		digit = "0"
	}
	if !verbose {
		return status, []byte(digit)
	}
	return status, fmt.Appendf(nil, `{"status":%s,"error":%s}`, digit, gjson.AppendJSONString(nil, why))
}

// Failure has the status that decides whether SDKs try again. To a form it is an object: what the
// form says may not have been read.
func (Adapter) Failure(f protocol.Failure) (int, []byte) {
	isForm := bytes.HasPrefix(f.Request.Header.Peek("Content-Type"), []byte("application/x-www-form-urlencoded"))
	if isForm || f.Request.Call != "import" {
		return answer(isForm || isVerbose(f.Request), f.Status, f.Message)
	}
	return f.Status, fmt.Appendf(nil, `{"code":%d,"error":%s}`, f.Status, gjson.AppendJSONString(nil, f.Message))
}
