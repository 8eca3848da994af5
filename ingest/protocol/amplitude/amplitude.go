// Package amplitude is the wire of Amplitude's SDKs: its HTTP V2 and batch APIs.
package amplitude

import (
	"encoding/json"
	"fmt"
	"net/http"

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

// indexes are those of the events that an answer blames, by field.
type indexes struct {
	Time       []int `json:"time,omitempty"`
	Properties []int `json:"event_properties,omitempty"`
	Type       []int `json:"event_type,omitempty"`
}

// Answer is 400 only if every event was dropped. The SDKs send again what a 400 does
// not list, so a 400 beside stored events would double these.
func (Adapter) Answer(a protocol.Answer) (int, []byte) {
	if !a.AllDropped() {
		return http.StatusOK, fmt.Appendf(nil, `{"code":200,"events_ingested":%d,"payload_size_bytes":%d,"server_upload_time":%d}`,
			a.Accepted, a.Bytes, a.Received)
	}
	var invalid, missing indexes
	for _, r := range a.Results {
		switch {
		case r.Disposition != wire.Drop:
		case r.Reason == wire.ReasonStale || r.Reason == wire.ReasonBadTS:
			invalid.Time = append(invalid.Time, r.Index)
		case r.Reason == wire.ReasonBadItem:
			missing.Type = append(missing.Type, r.Index)
		default: // too large
			invalid.Properties = append(invalid.Properties, r.Index)
		}
	}
	ofInvalid, _ := json.Marshal(invalid) // of numbers it cannot fail
	ofMissing, _ := json.Marshal(missing)
	return http.StatusBadRequest, fmt.Appendf(nil, `{"code":400,"error":"Invalid events: not JSON objects, too large, too old, or without a time in milliseconds",`+
		`"missing_field":null,"events_with_invalid_fields":%s,"events_with_missing_fields":%s,"silenced_events":[]}`, ofInvalid, ofMissing)
}

// Failure has its status in the body, because the SDKs read it there.
func (Adapter) Failure(f protocol.Failure) (int, []byte) {
	if f.Code == wire.CodeUnauthorized {
		f.Status, f.Message = http.StatusBadRequest, "Invalid API key" // these words end the SDK's attempts
	}
	dst := fmt.Appendf(nil, `{"code":%d,"error":%s`, f.Status, gjson.AppendJSONString(nil, f.Message))
	switch f.Status {
	case http.StatusBadRequest:
		dst = append(dst, `,"missing_field":null,"events_with_invalid_fields":{},"events_with_missing_fields":{},"silenced_events":[]`...)
	case http.StatusTooManyRequests:
		dst = append(dst, `,"eps_threshold":0,"throttled_devices":{},"throttled_users":{},"throttled_events":[]`...)
	}
	return f.Status, append(dst, '}')
}
