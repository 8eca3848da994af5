// Package posthog is the wire of PostHog's SDKs, as far as it carries events. Feature
// flags are no events and have no route.
package posthog

import (
	"bytes"
	"fmt"
	"net/http"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/wire"
)

// Adapter is the protocol.Adapter of PostHog's SDKs.
type Adapter struct{}

var (
	names = protocol.Names{
		Keys:   []string{"api_key", "token"},
		SentAt: "sent_at",
		ID:     "uuid",
		Time:   "timestamp",
	}
	// keyPaths are where posthog-js puts the key of each event.
	keyPaths = []string{"properties.token", "api_key", "token"}
	paths    = protocol.Paths{{"properties", "$app_namespace"}, {"properties", "game"}, {"properties", "$host"}}
)

// HeaderKey is empty: the body has the key.
func (Adapter) HeaderKey(protocol.Values) string { return "" }

// BodyKeys are the names that Open looks for.
func (Adapter) BodyKeys() []string { return names.Keys }

// Open takes, at each call, {"api_key", "batch": [event, …]}, an array of events, or one
// event; each also as the form data=, in base64, of older SDKs. An event without a key
// beside it has it in properties.token.
func (Adapter) Open(_ protocol.Request, body []byte) (protocol.Batch, error) {
	if bytes.HasPrefix(body, []byte("data=")) {
		var ok bool
		if body, ok = protocol.FormData(body); !ok {
			return protocol.Batch{}, protocol.ErrBody
		}
	}
	root, err := protocol.ParseJSON(body)
	if err != nil {
		return protocol.Batch{}, err
	}
	if root.IsArray() {
		b := protocol.NewList(&names, root)
		b.Key = protocol.FirstText(root.Get("0"), keyPaths)
		return b, nil
	}
	list := ""
	if root.Get("batch").IsArray() {
		list = "batch"
	}
	b, err := protocol.NewBatch(&names, root, list)
	if b.Key == "" {
		b.Key = protocol.FirstText(root, keyPaths)
	}
	return b, err
}

// Paths are the app's, the game's, then the page's.
func (Adapter) Paths() protocol.Paths { return paths }

// Answer is what PostHog answers whatever became of single events.
func (Adapter) Answer(_ protocol.Answer) (int, []byte) {
	return http.StatusOK, []byte(`{"status":1}`)
}

// Failure has the status that decides whether the SDKs try again.
func (Adapter) Failure(f protocol.Failure) (int, []byte) {
	kind, code := "validation_error", string(f.Code)
	switch {
	case f.Code == wire.CodeUnauthorized:
		kind = "authentication_error"
		code = "invalid_api_key"
		f.Message = "Project API key invalid: no namespace lists it under write_keys."
	case f.Status == http.StatusTooManyRequests:
		kind = "throttled_error"
	case f.Status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	return f.Status, fmt.Appendf(nil, `{"type":"%s","code":"%s","detail":%s,"attr":null}`, kind, code,
		gjson.AppendJSONString(nil, f.Message))
}
