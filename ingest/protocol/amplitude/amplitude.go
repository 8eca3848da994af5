// Package amplitude is the wire of Amplitude's SDKs: its HTTP V2 and batch APIs.
package amplitude

import (
	"net/http"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/wire"
)

// Adapter is the protocol.Adapter of Amplitude's SDKs.
type Adapter struct{}

var (
	names = protocol.Names{
		Keys:       []string{"api_key"},
		SentAt:     "client_upload_time",
		ID:         "insert_id",
		Time:       "time",
		StrictTime: true,
	}
	paths = protocol.Paths{{"event_properties", "game"}, {"app_name"}, {"platform"}}
)

// HeaderKey is empty: the body has the key.
func (Adapter) HeaderKey(protocol.Values) string { return "" }

// BodyKeys are the names that Open looks for.
func (Adapter) BodyKeys() []string { return names.Keys }

// Open takes the events of a body.
func (Adapter) Open(_ protocol.Request, body []byte) (protocol.Batch, error) {
	root, err := protocol.ParseJSON(body)
	if err != nil {
		return protocol.Batch{}, err
	}
	return protocol.NewBatch(&names, root, "events")
}

// Paths are the game's, the app's, then the platform.
func (Adapter) Paths() protocol.Paths { return paths }

// blamed is the field of an event that an answer names for a reason.
func blamed(why wire.Reason) string {
	switch why {
	case wire.ReasonStale, wire.ReasonBadTS:
		return "time"
	case wire.ReasonBadItem:
		return "event_type"
	}
	return "event_properties" // too large
}

// Answer is 400 only if every event was dropped. The SDKs send again what a 400 does
// not list, so a 400 beside stored events would double these.
func (Adapter) Answer(dst []byte, a protocol.Answer) (int, []byte) {
	if !a.AllDropped() {
		dst = strconv.AppendInt(append(dst, `{"code":200,"events_ingested":`...), int64(a.Accepted), 10)
		dst = strconv.AppendInt(append(dst, `,"payload_size_bytes":`...), int64(a.Bytes), 10)
		dst = strconv.AppendInt(append(dst, `,"server_upload_time":`...), a.Received, 10)
		return http.StatusOK, append(dst, '}')
	}
	dst = append(dst, `{"code":400,"error":"Invalid events: not JSON objects, too large, too old, or without a time in milliseconds","missing_field":null`...)
	dst = append(dst, `,"events_with_invalid_fields":{`...)
	first := true
	for _, field := range []string{"time", "event_properties"} {
		dst, first = appendIndexes(dst, field, a.Results, first)
	}
	dst, _ = appendIndexes(append(dst, `},"events_with_missing_fields":{`...), "event_type", a.Results, true)
	return http.StatusBadRequest, append(dst, `},"silenced_events":[]}`...)
}

// appendIndexes appends "field":[indexes] of the results that blame a field, if any.
func appendIndexes(dst []byte, field string, results []wire.Result, first bool) ([]byte, bool) {
	none := true
	for _, r := range results {
		if r.Disposition != wire.Drop || blamed(r.Reason) != field {
			continue
		}
		switch {
		case !none:
			dst = append(dst, ',')
		case first:
			dst = append(append(append(dst, '"'), field...), `":[`...)
		default:
			dst = append(append(append(dst, `,"`...), field...), `":[`...)
		}
		dst, none = strconv.AppendInt(dst, int64(r.Index), 10), false
	}
	if none {
		return dst, first
	}
	return append(dst, ']'), false
}

// Failure has its status in the body, because the SDKs read it there.
func (Adapter) Failure(dst []byte, f protocol.Failure) (int, []byte) {
	if f.Code == wire.CodeUnauthorized {
		f.Status, f.Message = http.StatusBadRequest, "Invalid API key" // these words end the SDK's attempts
	}
	dst = strconv.AppendInt(append(dst, `{"code":`...), int64(f.Status), 10)
	dst = gjson.AppendJSONString(append(dst, `,"error":`...), f.Message)
	switch f.Status {
	case http.StatusBadRequest:
		dst = append(dst, `,"missing_field":null,"events_with_invalid_fields":{},"events_with_missing_fields":{},"silenced_events":[]`...)
	case http.StatusTooManyRequests:
		dst = append(dst, `,"eps_threshold":0,"throttled_devices":{},"throttled_users":{},"throttled_events":[]`...)
	}
	return f.Status, append(dst, '}')
}
