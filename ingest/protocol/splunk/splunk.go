// Package splunk is the wire of Splunk's HTTP Event Collector.
package splunk

import (
	"bytes"
	"cmp"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/wire"
)

// Adapter is the protocol.Adapter of Splunk's clients.
type Adapter struct{ protocol.HeaderKeyed }

// Open takes events, objects one after the other, or, of the call raw, lines. The partition is
// source, else index, of the event, else of the query.
func (Adapter) Open(r protocol.Request, body []byte) (protocol.Batch, error) {
	partition := protocol.PartitionName(cmp.Or(string(r.Query.Peek("source")), string(r.Query.Peek("index"))))
	if strings.Contains(r.Call, "/raw") {
		return protocol.Make("", func(_ int, yield func(protocol.Event, wire.Reason) bool) error {
			lines := wire.SplitLines(body)
			for line, ok := lines.Next(); ok; line, ok = lines.Next() {
				line = bytes.TrimSuffix(line, []byte{'\r'})
				if !yield(protocol.Event{Data: line, Partition: partition}, "") {
					break
				}
			}
			return nil
		}), nil
	}
	return protocol.Make("", func(maxEntry int, yield func(protocol.Event, wire.Reason) bool) error {
		for {
			body = bytes.TrimLeft(body, " \t\r\n")
			if len(body) == 0 {
				return nil
			}
			n := wire.EndOfObject(body)
			if n == 0 {
				return protocol.ErrBody
			}
			raw := body[:n]
			body = body[n:]
			e, why := protocol.Event{}, wire.ReasonTooLarge
			if len(raw) <= maxEntry {
				if !wire.ValidJSON(raw) {
					return protocol.ErrBody
				}
				e, why = readEvent(raw, partition)
			}
			if !yield(e, why) {
				return nil
			}
		}
	}), nil
}

// readEvent reads {"event":…,"time":1763629674.1,"source":"kart"}.
func readEvent(raw []byte, partition string) (e protocol.Event, why wire.Reason) {
	var source, index string
	hasEvent := false
	gjson.Parse(protocol.TextOf(raw)).ForEach(func(name, value gjson.Result) bool {
		switch name.Str {
		case "event":
			hasEvent = value.Type != gjson.Null && value.Raw != `""`
		case "source":
			source = value.Str
		case "index":
			index = value.Str
		case "time":
			e.TS, e.HasTS = protocol.ParseSeconds(value)
		}
		return true
	})
	if !hasEvent {
		return protocol.Event{}, wire.ReasonBadItem
	}
	e.Data = raw
	e.Partition = cmp.Or(protocol.PartitionName(source), protocol.PartitionName(index), partition)
	return e, ""
}

// Answer is what Splunk answers, unless every event was dropped.
func (Adapter) Answer(dst []byte, a protocol.Answer) (int, []byte) {
	if !a.AllDropped() {
		return http.StatusOK, append(dst, `{"text":"Success","code":0}`...)
	}
	dst = strconv.AppendInt(append(dst, `{"text":"Invalid data format","code":6,"invalid-event-number":`...), int64(a.Results[0].Index), 10)
	return http.StatusBadRequest, append(dst, '}')
}

// Codes of Splunk by status; of all others, 6: invalid data.
var codes = map[int]int64{
	http.StatusUnauthorized:        4, // invalid token
	http.StatusInternalServerError: 8,
	http.StatusTooManyRequests:     9, // busy
	http.StatusServiceUnavailable:  9,
}

// Failure has the status that decides whether clients try again.
func (Adapter) Failure(dst []byte, f protocol.Failure) (int, []byte) {
	dst = gjson.AppendJSONString(append(dst, `{"text":`...), f.Message)
	dst = strconv.AppendInt(append(dst, `,"code":`...), cmp.Or(codes[f.Status], 6), 10)
	return f.Status, append(dst, '}')
}

// Greet answers the health check of shippers.
func (Adapter) Greet(dst []byte, _ protocol.Request) (int, []byte) {
	return http.StatusOK, append(dst, `{"text":"HEC is healthy","code":17}`...)
}
