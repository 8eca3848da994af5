// Package cloudevents is the HTTP binding of CloudEvents: one event, structured or in headers, or
// a batch.
package cloudevents

import (
	"encoding/base64"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/wire"
)

// Adapter is the protocol.Adapter of CloudEvents.
type Adapter struct{ protocol.HeaderKeyed }

var (
	names = protocol.Names{ID: "id", Time: "time"}
	paths = protocol.Paths{{"partitionkey"}, {"source"}}
)

// Paths are the key for partitions, then the source.
func (Adapter) Paths() protocol.Paths { return paths }

// TakesEmpty is true of a batch, and of an event whose attributes are all.
func (Adapter) TakesEmpty() {}

// Open takes an event or a batch as it is sent. Of an event whose attributes are in headers it
// makes one that is structured.
func (Adapter) Open(r protocol.Request, body []byte) (protocol.Batch, error) {
	kind, _, _ := mime.ParseMediaType(string(r.Header.Peek("Content-Type")))
	if !strings.HasPrefix(kind, "application/cloudevents") {
		return openBinary(r, kind, body)
	}
	root, err := protocol.ParseJSON(body)
	switch {
	case err != nil || root.IsArray() != strings.HasPrefix(kind, "application/cloudevents-batch"):
		return protocol.Batch{}, protocol.ErrBody
	case root.IsArray():
		return protocol.NewList(&names, root), nil
	}
	return protocol.NewBatch(&names, root, "")
}

// openBinary takes the attributes of ce- headers, in which some characters are %-escapes. Data
// that is not JSON becomes data_base64.
func openBinary(r protocol.Request, kind string, body []byte) (protocol.Batch, error) {
	isJSON := len(body) > 0 && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
	if len(r.Header.Peek("Ce-Specversion")) == 0 || isJSON && !wire.ValidJSON(body) {
		return protocol.Batch{}, protocol.ErrBody
	}
	return protocol.Make("", func(maxEntry int, yield func(protocol.Event, wire.Reason) bool) error {
		if len(body) > maxEntry {
			yield(protocol.Event{}, wire.ReasonTooLarge)
			return nil
		}
		event := []byte{'{'}
		put := func(name, value string) {
			if len(event) > 1 {
				event = append(event, ',')
			}
			event = append(gjson.AppendJSONString(event, name), ':')
			event = gjson.AppendJSONString(event, value)
		}
		if sent := r.Header.Peek("Content-Type"); len(sent) > 0 {
			put("datacontenttype", string(sent))
		}
		for header, value := range r.Header.All() {
			name, isAttribute := strings.CutPrefix(strings.ToLower(string(header)), "ce-")
			if !isAttribute || name == "" || strings.HasPrefix(name, "data") && name != "dataschema" {
				continue // data is the body's
			}
			text := string(value)
			if decoded, err := url.PathUnescape(text); err == nil {
				text = decoded
			}
			put(name, text)
		}
		switch {
		case len(body) == 0:
		case isJSON:
			event = append(append(event, `,"data":`...), body...)
		default:
			event = base64.StdEncoding.AppendEncode(append(event, `,"data_base64":"`...), body)
			event = append(event, '"')
		}
		event = append(event, '}')
		made := protocol.Batch{}
		if list, err := protocol.ParseJSON(event); err == nil {
			made, _ = protocol.NewBatch(&names, list, "")
		}
		return made.Each(paths, len(event), yield)
	}), nil
}

// Answer is 204, unless every event was dropped.
func (Adapter) Answer(a protocol.Answer) (int, []byte) {
	if !a.AllDropped() {
		return http.StatusNoContent, nil
	}
	f := wire.Failure{Code: wire.CodeBadRequest, Message: "all events were dropped: " + string(a.FirstReason())}
	return http.StatusBadRequest, f.Append(nil)
}

// Failure is that of our own routes.
func (Adapter) Failure(f protocol.Failure) (int, []byte) {
	failure := wire.Failure{Code: f.Code, Message: f.Message}
	return f.Status, failure.Append(nil)
}
