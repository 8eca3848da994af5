// Package loki is the wire of Grafana Loki's clients: push, as JSON or protobuf. An event is a
// line with the labels of its stream.
package loki

import (
	"bytes"
	"math"
	"net/http"
	"strconv"
	"strings"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/wire"
)

// Adapter is the protocol.Adapter of Loki's clients.
type Adapter struct{ protocol.HeaderKeyed }

// partitionLabels are the labels that name the partition, the first that a stream has.
var partitionLabels = protocol.Paths{{"app"}, {"job"}, {"service_name"}}

// Snappy is true of all bodies but JSON.
func (Adapter) Snappy(r protocol.Request) bool {
	return !bytes.HasPrefix(r.Header.Peek("Content-Type"), []byte("application/json"))
}

// Open takes streams of lines. The partition is the label app, job or service_name.
func (a Adapter) Open(r protocol.Request, body []byte) (protocol.Batch, error) {
	if a.Snappy(r) {
		return protocol.Make("", func(maxEntry int, yield func(protocol.Event, wire.Reason) bool) error {
			return (&push{maxEntry: maxEntry, yield: yield}).openBytes(body)
		}), nil
	}
	root, err := protocol.ParseJSON(body)
	streams := protocol.Member(root.Raw, "streams")
	if err != nil || !strings.HasPrefix(streams, "[") {
		return protocol.Batch{}, protocol.ErrBody
	}
	return protocol.Make("", func(maxEntry int, yield func(protocol.Event, wire.Reason) bool) error {
		(&push{maxEntry: maxEntry, yield: yield}).openJSON(streams)
		return nil
	}), nil
}

// push makes events. Those of a stream begin with its labels.
type push struct {
	maxEntry  int
	yield     func(protocol.Event, wire.Reason) bool
	ended     bool
	partition string
	labels    []byte // an object
	large     bool   // the labels, or the metadata of a line, are larger than an entry
	pairs     []byte // the metadata of a line, an object
	line      []byte // of protobuf, as a string of JSON
	text      []byte // of an event
}

// begin takes the labels of a stream, which are an object of JSON.
func (p *push) begin(labels []byte) {
	p.labels, p.partition = labels, partitionLabels.Of(labels)
}

// put yields a line of a stream, a string of JSON. metadata is an object; empty: none.
func (p *push) put(nanos uint64, line, metadata string) error {
	if p.large || len(p.labels)+len(line)+len(metadata) > p.maxEntry {
		return p.end(protocol.Event{}, wire.ReasonTooLarge)
	}
	p.text = append(append(p.text[:0], `{"stream":`...), p.labels...)
	p.text = append(strconv.AppendUint(append(p.text, `,"ts":"`...), nanos, 10), `","line":`...)
	p.text = append(p.text, line...)
	if metadata != "" {
		p.text = append(append(p.text, `,"metadata":`...), metadata...)
	}
	p.text = append(p.text, '}')
	return p.end(protocol.Event{Data: p.text, Partition: p.partition, TS: int64(nanos / 1e6), HasTS: nanos > 0}, "")
}

func (p *push) end(e protocol.Event, why wire.Reason) error {
	if p.ended = !p.yield(e, why); p.ended {
		return protocol.ErrEnd
	}
	return nil
}

// openJSON takes [{"stream":{label:value},"values":[[nanoseconds,line,metadata]]}].
func (p *push) openJSON(streams string) {
	for _, stream := range wire.Values(streams) {
		labels, values := "{}", ""
		for key, value := range wire.Values(stream) {
			switch name := wire.Text(key); {
			case name == "stream" && value[0] == '{':
				labels = value
			case name == "values":
				values = value
			}
		}
		p.begin(unsafe.Slice(unsafe.StringData(labels), len(labels)))
		for _, value := range wire.Values(values) {
			if p.putJSON(value); p.ended {
				return
			}
		}
	}
}

// putJSON yields a line of JSON, as it was sent.
func (p *push) putJSON(value string) {
	var parts [3]string
	n := 0
	for _, part := range wire.Values(value) {
		if parts[n] = part; n == len(parts)-1 {
			break
		}
		n++
	}
	at, line, metadata := parts[0], parts[1], parts[2]
	if value[0] != '[' || !strings.HasPrefix(at, `"`) || !strings.HasPrefix(line, `"`) || metadata != "" && metadata[0] != '{' {
		_ = p.end(protocol.Event{}, wire.ReasonBadItem)
		return
	}
	nanos, err := strconv.ParseUint(at[1:len(at)-1], 10, 63)
	if err != nil {
		_ = p.end(protocol.Event{}, wire.ReasonBadTS)
		return
	}
	_ = p.put(nanos, line, metadata)
}

// openBytes takes a PushRequest: streams of labels, as {name="value"}, and entries.
func (p *push) openBytes(body []byte) error {
	return protocol.EachMessage(body, 1, func(stream []byte) error {
		text, _ := protocol.FirstField(stream, 1, protowire.BytesType)
		large := len(text.Bytes) > p.maxEntry
		if !large {
			labels, ok := appendLabels(p.labels[:0], protocol.TextOf(text.Bytes))
			if !ok {
				return protocol.ErrBytes
			}
			p.begin(labels)
		}
		return protocol.EachMessage(stream, 2, func(entry []byte) error {
			at, _ := protocol.FirstField(entry, 1, protowire.BytesType)
			seconds, _ := protocol.FirstField(at.Bytes, 1, protowire.VarintType)
			nanos, _ := protocol.FirstField(at.Bytes, 2, protowire.VarintType)
			line, _ := protocol.FirstField(entry, 2, protowire.BytesType)
			metadata, err := p.metadata(entry)
			switch {
			case err != nil:
				return err
			case seconds.Bits >= math.MaxInt64/1_000_000_000 || nanos.Bits >= 1e9:
				return p.end(protocol.Event{}, wire.ReasonBadTS)
			}
			if p.large = p.large || large || len(line.Bytes) > p.maxEntry; !p.large {
				p.line = protocol.AppendText(p.line[:0], protocol.TextOf(line.Bytes))
			}
			return p.put(seconds.Bits*1e9+nanos.Bits, protocol.TextOf(p.line), metadata)
		})
	})
}

// metadata is the structured metadata of an entry. It is large where that takes more than maxEntry.
func (p *push) metadata(entry []byte) (string, error) {
	p.pairs, p.large = p.pairs[:0], false
	err := protocol.EachMessage(entry, 3, func(pair []byte) error {
		name, _ := protocol.FirstField(pair, 1, protowire.BytesType)
		value, _ := protocol.FirstField(pair, 2, protowire.BytesType)
		p.large = p.large || len(p.pairs)+len(name.Bytes)+len(value.Bytes) > p.maxEntry
		if !p.large {
			p.pairs = appendPair(p.pairs, protocol.TextOf(name.Bytes), protocol.TextOf(value.Bytes))
		}
		return nil
	})
	if len(p.pairs) > 0 {
		p.pairs = append(p.pairs, '}')
	}
	return protocol.TextOf(p.pairs), err
}

func appendPair(dst []byte, name, value string) []byte {
	separator := byte(',')
	if len(dst) == 0 {
		separator = '{'
	}
	dst = append(protocol.AppendText(append(dst, separator), name), ':')
	return protocol.AppendText(dst, value)
}

// appendLabels appends {name="value", name="value"} as an object.
func appendLabels(dst []byte, text string) (labels []byte, ok bool) {
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), "{")
	for ok {
		rest = strings.TrimLeft(rest, ", ")
		if rest == "}" {
			break
		}
		var name, quoted, value string
		name, rest, ok = strings.Cut(rest, "=")
		var err error
		if quoted, err = strconv.QuotedPrefix(rest); err != nil {
			return dst, false
		}
		value, err = strconv.Unquote(quoted)
		ok = ok && err == nil
		rest = rest[len(quoted):]
		dst = appendPair(dst, strings.TrimSpace(name), value)
	}
	if len(dst) == 0 {
		dst = append(dst, '{')
	}
	return append(dst, '}'), ok
}

// Answer is 204, unless every line was dropped: some clients send again what a 400 rejects.
func (Adapter) Answer(dst []byte, a protocol.Answer) (int, []byte) {
	if !a.AllDropped() {
		return http.StatusNoContent, dst
	}
	return http.StatusBadRequest, append(append(dst, "all lines were dropped: "...), a.FirstReason()...)
}

// Failure is a text. Clients send again after 429 and 5xx.
func (Adapter) Failure(dst []byte, f protocol.Failure) (int, []byte) {
	return f.Status, append(append(dst, f.Message...), '\n')
}

// Dress says that answers are texts.
func (Adapter) Dress(_ protocol.Request, set func(name, value string)) {
	set("Content-Type", "text/plain; charset=utf-8")
}
