// Package segment is the wire of Segment's SDKs, which RudderStack's speak, too.
package segment

import (
	"fmt"
	"net/http"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/ingest/protocol"
)

// Adapter is the protocol.Adapter of Segment's SDKs.
type Adapter struct{}

var (
	// RudderStack's events have originalTimestamp and a sentAt of their own.
	names = protocol.Names{
		Keys:      []string{"writeKey"},
		SentAt:    "sentAt",
		ID:        "messageId",
		Time:      "timestamp",
		OtherTime: "originalTimestamp",
	}
	paths = protocol.Paths{{"context", "app", "namespace"}, {"context", "app", "name"},
		{"properties", "game"}, {"context", "page", "host"}}
)

// HeaderKey is the user of Basic; the password, which should be empty, does not count.
func (Adapter) HeaderKey(header protocol.Values) string {
	return protocol.BasicUser(header.Peek("Authorization"))
}

// BodyKeys are the names that Open looks for.
func (Adapter) BodyKeys() []string { return names.Keys }

// Open takes a batch, or at the other calls the body as the one event.
func (Adapter) Open(r protocol.Request, body []byte) (protocol.Batch, error) {
	root, err := protocol.ParseJSON(body)
	if err != nil {
		return protocol.Batch{}, err
	}
	if r.Call == "batch" || r.Call == "b" {
		return protocol.NewBatch(&names, root, "batch")
	}
	return protocol.NewBatch(&names, root, "")
}

// Paths are the app's, the game's, then the page's.
func (Adapter) Paths() protocol.Paths { return paths }

// Answer is what Segment answers whatever became of single events.
func (Adapter) Answer(_ protocol.Answer) (int, []byte) {
	return http.StatusOK, []byte(`{"success":true}`)
}

// Failure has the status that decides whether the SDKs try again.
func (Adapter) Failure(f protocol.Failure) (int, []byte) {
	return f.Status, fmt.Appendf(nil, `{"success":false,"code":"%s","message":%s}`, f.Code, gjson.AppendJSONString(nil, f.Message))
}
