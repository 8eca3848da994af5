// Package posthog is the wire of PostHog's SDKs, as far as it carries events. Feature
// flags are no events and have no route.
package posthog

import (
	"bytes"
	"encoding/base64"
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
	paths = protocol.Paths{{"properties", "$app_namespace"}, {"properties", "game"}, {"properties", "$host"}}
)

// HeaderKey is empty: the body has the key.
func (Adapter) HeaderKey(protocol.Values) string { return "" }

// BodyKeys are the names that Open looks for.
func (Adapter) BodyKeys() []string { return names.Keys }

// Open takes, at each call, {"api_key", "batch": [event, …]}, an array of events, or one
// event; each also as the form data=, in base64, of older SDKs. An event without a key
// beside it has it in properties.token.
func (Adapter) Open(_ protocol.Request, body []byte) (protocol.Batch, error) {
	if form, found := bytes.CutPrefix(body, []byte("data=")); found {
		var ok bool
		if body, ok = decodeForm(form); !ok {
			return protocol.Batch{}, protocol.ErrBody
		}
	}
	root, err := protocol.ParseJSON(body)
	if err != nil {
		return protocol.Batch{}, err
	}
	if root.IsArray() {
		b := protocol.NewList(&names, root)
		b.Key = keyOf(root.Get("0"))
		return b, nil
	}
	list := ""
	if root.Get("batch").IsArray() {
		list = "batch"
	}
	b, err := protocol.NewBatch(&names, root, list)
	if b.Key == "" {
		b.Key = keyOf(root)
	}
	return b, err
}

// keyOf is the key that posthog-js puts into each event.
func keyOf(event gjson.Result) string {
	for _, path := range []string{"properties.token", "api_key", "token"} {
		if key := event.Get(path); key.Type == gjson.String {
			return key.Str
		}
	}
	return ""
}

// decodeForm decodes the value of data= in place: %-escapes, then base64.
func decodeForm(value []byte) ([]byte, bool) {
	value, _, _ = bytes.Cut(value, []byte{'&'})
	n := 0
	for i := 0; i < len(value); i++ {
		c := value[i]
		if c == '%' {
			if i+2 >= len(value) {
				return nil, false
			}
			high, low := hexDigit(value[i+1]), hexDigit(value[i+2])
			if high > 15 || low > 15 {
				return nil, false
			}
			c = high<<4 | low
			i += 2
		}
		value[n] = c
		n++
	}
	// In place: base64 writes fewer bytes than it has read.
	n, err := base64.StdEncoding.Decode(value, value[:n])
	return value[:n], err == nil
}

// hexDigit is the value of a digit, or more than 15.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

// Paths are the app's, the game's, then the page's.
func (Adapter) Paths() protocol.Paths { return paths }

// Answer is what PostHog answers whatever became of single events.
func (Adapter) Answer(dst []byte, _ protocol.Answer) (int, []byte) {
	return http.StatusOK, append(dst, `{"status":1}`...)
}

// Failure has the status that decides whether the SDKs try again.
func (Adapter) Failure(dst []byte, f protocol.Failure) (int, []byte) {
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
	dst = append(append(append(dst, `{"type":"`...), kind...), `","code":"`...)
	dst = gjson.AppendJSONString(append(append(dst, code...), `","detail":`...), f.Message)
	return f.Status, append(dst, `,"attr":null}`...)
}
