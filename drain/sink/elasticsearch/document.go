package elasticsearch

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/klauspost/compress/gzip"
	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/drain/sink"
)

// A position is where in the Write an action's entry is.
type position struct{ batch, entry int }

// body is the gzipped _bulk of all entries, the position of each action, and the size of
// the payloads. It is fresh memory: the transport may still read it after the round trip
// has failed.
func (s *Sink) body(batches []*sink.Batch) (body []byte, at []position, size int) {
	var out bytes.Buffer
	z, _ := s.zippers.Get().(*gzip.Writer)
	defer s.zippers.Put(z)
	z.Reset(&out)
	var lines []byte
	for i, b := range batches {
		for j := range b.Entries {
			lines = s.appendAction(lines[:0], b, &b.Entries[j])
			lines = appendDocument(lines, b, &b.Entries[j])
			_, _ = z.Write(lines) // a bytes.Buffer does not fail
			at = append(at, position{i, j})
			size += len(b.Entries[j].Payload)
		}
	}
	_ = z.Close()
	return out.Bytes(), at, size
}

// appendAction appends the line that creates a document under its _id, of at most 213
// bytes. Names of namespaces and partitions need no escaping, and hold no slash.
func (s *Sink) appendAction(dst []byte, b *sink.Batch, e *sink.Entry) []byte {
	dst = append(dst, `{"create":{`...)
	if s.index != "" {
		day := time.UnixMilli(e.Occurred).UTC().Format("2006.01.02")
		dst = append(dst, `"_index":"`...)
		dst = append(dst, strings.ReplaceAll(strings.ReplaceAll(s.index, "{namespace}",
			strings.ToLower(b.Namespace)), "{date}", day)...)
		dst = append(dst, `",`...)
	}
	dst = append(dst, `"_id":"`...)
	dst = append(dst, b.Namespace...)
	dst = append(dst, '/')
	dst = append(dst, b.Partition...)
	dst = append(dst, '/')
	dst = strconv.AppendInt(dst, e.Seq, 10)
	return append(dst, "\"}}\n"...)
}

func appendDocument(dst []byte, b *sink.Batch, e *sink.Entry) []byte {
	dst = append(dst, `{"@timestamp":"`...)
	dst = time.UnixMilli(e.Occurred).UTC().AppendFormat(dst, "2006-01-02T15:04:05.000Z")
	dst = append(dst, `","namespace":"`...)
	dst = append(dst, b.Namespace...)
	dst = append(dst, `","partition":"`...)
	dst = append(dst, b.Partition...)
	dst = append(dst, `","seq":`...)
	dst = strconv.AppendInt(dst, e.Seq, 10)
	if e.ID != nil {
		dst = append(dst, `,"id":`...)
		dst = gjson.AppendJSONString(dst, string(e.ID))
	}
	dst = appendPayload(dst, e.Payload)
	return append(dst, "}\n"...)
}

func appendPayload(dst, p []byte) []byte {
	if sink.ValidJSON(p) {
		if o := gjson.ParseBytes(p); o.IsObject() && !repeatsName(o) {
			return appendObject(append(dst, `,"data":`...), p)
		}
	}
	if utf8.Valid(p) {
		return gjson.AppendJSONString(append(dst, `,"text":`...), string(p))
	}
	dst = append(dst, `,"base64":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, p)
	return append(dst, '"')
}

// appendObject appends an object as one line: byte for byte, or without the white space
// between its tokens where it has line breaks.
func appendObject(dst, p []byte) []byte {
	if bytes.IndexByte(p, '\n') < 0 && bytes.IndexByte(p, '\r') < 0 {
		return append(dst, p...)
	}
	var line bytes.Buffer
	_ = json.Compact(&line, p) // it is valid
	return append(dst, line.Bytes()...)
}

// repeatsName reports whether an object, or one in it, has a name twice. The grammar
// allows that; the cluster rejects it whatever the mapping is.
func repeatsName(v gjson.Result) (repeats bool) {
	var names []string
	var many map[string]bool // beyond 16 names, searching them in turn gets slow
	object := v.IsObject()
	v.ForEach(func(name, value gjson.Result) bool {
		if object {
			n := name.String()
			repeats = many[n] || slices.Contains(names, n)
			switch {
			case many != nil:
				many[n] = true
			case len(names) < 16:
				names = append(names, n)
			default:
				many = map[string]bool{n: true}
			}
		}
		if !repeats && (value.IsObject() || value.IsArray()) {
			repeats = repeatsName(value)
		}
		return !repeats
	})
	return repeats
}
