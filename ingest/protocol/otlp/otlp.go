// Package otlp is the wire of OpenTelemetry: logs of OTLP/HTTP, as JSON or protobuf. An event is
// a log record as OTLP/JSON writes it, with its resource and its scope.
package otlp

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/tidwall/gjson"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/wire"
)

// Adapter is the protocol.Adapter of OpenTelemetry's exporters.
type Adapter struct{ protocol.HeaderKeyed }

const protobufType = "application/x-protobuf"

func isProtobuf(r protocol.Request) bool {
	return bytes.HasPrefix(r.Header.Peek("Content-Type"), []byte(protobufType))
}

// TakesEmpty is so because exporters may flush when there is nothing.
func (Adapter) TakesEmpty() {}

// Open takes an ExportLogsServiceRequest. The partition is the service.name of a resource.
func (Adapter) Open(r protocol.Request, body []byte) (protocol.Batch, error) {
	if isProtobuf(r) {
		return protocol.Make("", func(maxEntry int, yield func(protocol.Event, wire.Reason) bool) error {
			b := batch{maxEntry: maxEntry, yield: yield}
			return b.openBytes(body)
		}), nil
	}
	root, err := protocol.ParseJSON(body)
	if err != nil || !root.IsObject() {
		return protocol.Batch{}, protocol.ErrBody
	}
	return protocol.Make("", func(maxEntry int, yield func(protocol.Event, wire.Reason) bool) error {
		b := batch{maxEntry: maxEntry, yield: yield}
		b.openJSON(root.Raw)
		return nil
	}), nil
}

// batch makes events. Those of a scope begin with the same text.
type batch struct {
	maxEntry  int
	yield     func(protocol.Event, wire.Reason) bool
	ended     bool
	partition string
	text      []byte      // of the event: resource, scope, record
	resource  int         // where that of the resource ends,
	scope     int         // and that of the scope
	whyAll    wire.Reason // why the resource is part of no event
	why       wire.Reason // why what text has so far is none
}

// part appends a part of an event behind the first bytes of its text. Its error is ErrBytes.
func (b *batch) part(behind int, name string, add func(dst []byte) ([]byte, error)) (end int, err error) {
	if b.why != "" && behind > 0 {
		return behind, nil
	}
	b.why = ""
	b.text, err = add(append(b.text[:behind], name...))
	switch {
	case errors.Is(err, errTooDeep):
		b.why = wire.ReasonBadItem
	case errors.Is(err, errTooLarge) || len(b.text) >= b.maxEntry:
		b.why = wire.ReasonTooLarge
	default:
		return len(b.text), err
	}
	return len(b.text), nil
}

// schema appends the schemaUrl that is beside a resource or scope.
func (b *batch) schema(behind int, name, url string) int {
	if url == "" {
		return behind
	}
	end, _ := b.part(behind, name, func(dst []byte) ([]byte, error) {
		if len(dst)+len(url) > b.maxEntry {
			return dst, errTooLarge
		}
		return protocol.AppendText(dst, url), nil
	})
	return end
}

func (b *batch) setResource(url string, add func(dst []byte) ([]byte, error)) (err error) {
	const name = `{"resource":`
	b.resource, err = b.part(0, name, add)
	b.resource = b.schema(b.resource, `,"resourceSchemaUrl":`, url)
	b.partition, b.whyAll = "", b.why
	if err != nil || b.why != "" {
		return err
	}
	gjson.ParseBytes(b.text[len(name):]).Get("attributes").ForEach(func(_, attribute gjson.Result) bool {
		if attribute.Get("key").Str != "service.name" {
			return true
		}
		b.partition = protocol.PartitionName(attribute.Get("value.stringValue").Str)
		return false
	})
	return nil
}

func (b *batch) setScope(url string, add func(dst []byte) ([]byte, error)) (err error) {
	b.why = b.whyAll
	b.scope, err = b.part(b.resource, `,"scope":`, add)
	b.scope = b.schema(b.scope, `,"scopeSchemaUrl":`, url)
	return err
}

// put yields the event of a record, whose text has the fields and the end of an object.
func (b *batch) put(nanos uint64, add func(dst []byte) ([]byte, error)) error {
	before := b.why
	_, err := b.part(b.scope, "", add)
	e, why := protocol.Event{}, b.why
	if why == "" {
		e = protocol.Event{Data: b.text, Partition: b.partition, TS: int64(nanos / 1e6), HasTS: nanos > 0}
	}
	b.why = before
	if err != nil {
		return err
	}
	if b.ended = !b.yield(e, why); b.ended {
		return protocol.ErrEnd
	}
	return nil
}

// openJSON makes the events of a body that is valid JSON. What is not of the form of a list or
// of a record is no event.
func (b *batch) openJSON(root string) {
	for _, logs := range wire.Values(protocol.Member(root, "resourceLogs")) {
		of, list, url := members(logs, "resource", "scopeLogs")
		_ = b.setResource(url, b.object(of))
		for _, scoped := range wire.Values(list) {
			of, list, url := members(scoped, "scope", "logRecords")
			_ = b.setScope(url, b.object(of))
			for _, record := range wire.Values(list) {
				if record[0] != '{' {
					b.ended = !b.yield(protocol.Event{}, wire.ReasonBadItem)
				} else {
					_ = b.put(nanosOf(record), b.fields(record))
				}
				if b.ended {
					return
				}
			}
		}
	}
}

// members are what a list of an object is about, the list, and the URL of their schema; empty where
// there is none.
func members(object, aboutName, listName string) (about, list, url string) {
	if object[0] != '{' {
		return "", "", ""
	}
	for key, value := range wire.Values(object) {
		switch wire.Text(key) {
		case aboutName:
			about = value
		case listName:
			list = value
		case "schemaUrl":
			url = gjson.Parse(value).Str
		}
	}
	return about, list, url
}

func nanosOf(record string) uint64 {
	nanos := gjson.Get(record, "timeUnixNano").Uint()
	if nanos == 0 {
		nanos = gjson.Get(record, "observedTimeUnixNano").Uint()
	}
	return nanos
}

// object appends a value as it was sent, or an empty object.
func (b *batch) object(value string) func(dst []byte) ([]byte, error) {
	return func(dst []byte) ([]byte, error) {
		switch {
		case !strings.HasPrefix(value, "{"):
			return append(dst, "{}"...), nil
		case len(dst)+len(value) > b.maxEntry:
			return dst, errTooLarge
		}
		return append(dst, value...), nil
	}
}

// fields appends those of an object behind others.
func (b *batch) fields(value string) func(dst []byte) ([]byte, error) {
	return func(dst []byte) ([]byte, error) {
		rest := strings.TrimLeft(value[1:], " \t\r\n")
		if len(dst)+len(rest) > b.maxEntry {
			return dst, errTooLarge
		}
		if rest[0] != '}' {
			dst = append(dst, ',')
		}
		return append(dst, rest...), nil
	}
}

// openBytes makes the events of a body in protobuf.
func (b *batch) openBytes(body []byte) error {
	w := writer{b.maxEntry}
	message := func(of []byte, m *message) func(dst []byte) ([]byte, error) {
		first, _ := firstField(of, 1, protowire.BytesType)
		return func(dst []byte) ([]byte, error) { return w.appendMessage(dst, first.bytes, m, 0) }
	}
	schema := func(of []byte) string {
		url, _ := firstField(of, 3, protowire.BytesType)
		return protocol.TextOf(url.bytes)
	}
	return eachMessage(body, 1, func(logs []byte) error {
		if err := b.setResource(schema(logs), message(logs, resource)); err != nil {
			return err
		}
		return eachMessage(logs, 2, func(scoped []byte) error {
			if err := b.setScope(schema(scoped), message(scoped, scope)); err != nil {
				return err
			}
			return eachMessage(scoped, 2, func(record []byte) error {
				nanos, _ := firstField(record, 1, protowire.Fixed64Type)
				if nanos.bits == 0 {
					nanos, _ = firstField(record, 11, protowire.Fixed64Type)
				}
				return b.put(nanos.bits, func(dst []byte) ([]byte, error) {
					return w.appendFields(dst, record, logRecord, 0)
				})
			})
		})
	})
}

// Answer says how many records were dropped; an exporter does not send them again.
func (Adapter) Answer(a protocol.Answer) (int, []byte) {
	dropped, text := a.Count-a.Accepted, []byte(nil)
	why := ""
	if dropped > 0 {
		why = "dropped: " + string(a.FirstReason())
	}
	switch {
	case isProtobuf(a.Request) && dropped > 0:
		partial := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(dropped))
		partial = protowire.AppendString(protowire.AppendTag(partial, 2, protowire.BytesType), why)
		text = protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), partial)
	case isProtobuf(a.Request):
	case dropped > 0:
		text = fmt.Appendf(nil, `{"partialSuccess":{"rejectedLogRecords":"%d","errorMessage":"%s"}}`, dropped, why)
	default:
		text = []byte("{}")
	}
	return http.StatusOK, text
}

// Codes of google.rpc.Code.
var rpcCodes = map[int]uint64{
	http.StatusBadRequest:         3,
	http.StatusUnauthorized:       16,
	http.StatusTooManyRequests:    8,
	http.StatusServiceUnavailable: 14,
}

// Failure is a google.rpc.Status. Exporters send again after 429 and 503.
func (Adapter) Failure(f protocol.Failure) (int, []byte) {
	code := rpcCodes[f.Status]
	if code == 0 {
		code = 2 // unknown
	}
	if isProtobuf(f.Request) {
		text := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), code)
		return f.Status, protowire.AppendString(protowire.AppendTag(text, 2, protowire.BytesType), f.Message)
	}
	return f.Status, fmt.Appendf(nil, `{"code":%d,"message":%s}`, code, protocol.AppendText(nil, f.Message))
}

// Dress gives an answer the type of its request.
func (Adapter) Dress(r protocol.Request, set func(name, value string)) {
	if isProtobuf(r) {
		set("Content-Type", protobufType)
	}
}
