// Package elastic is the wire of Elasticsearch's clients, as far as it brings documents: _bulk,
// and what clients ask before.
package elastic

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

// Adapter is the protocol.Adapter of Elasticsearch's clients.
type Adapter struct{ protocol.HeaderKeyed }

// Names of the actions, in the order of their notes: 1 is index. Only the first two store.
var actions = [...]string{"", "index", "create", "update", "delete"}

const (
	create = 2
	remove = 4
)

// Open takes lines of an action and its document. The partition is the index, which the action
// or the path says, and the id is the action's.
func (Adapter) Open(r protocol.Request, body []byte) (protocol.Batch, error) {
	index, _, ofPath := strings.Cut(r.Call, "/")
	if !ofPath {
		index = ""
	}
	return protocol.Make("", func(maxEntry int, yield func(protocol.Event, wire.Reason) bool) error {
		lines := wire.SplitLines(body)
		for line, ok := lines.Next(); ok; line, ok = lines.Next() {
			e, ok := readAction(line, index)
			if !ok {
				return protocol.ErrBody
			}
			why := wire.Reason("")
			if e.Note != remove {
				document, _ := lines.Next() // none is a bad one
				why = readDocument(&e, bytes.TrimSpace(document), maxEntry)
			}
			if e.Note > create {
				why = wire.ReasonBadItem
			}
			if why != "" {
				e = protocol.Event{Note: e.Note}
			}
			if !yield(e, why) {
				return nil
			}
		}
		return nil
	}), nil
}

// readAction reads {"index":{"_index":"kart","_id":"7"}}.
func readAction(line []byte, index string) (e protocol.Event, ok bool) {
	if !wire.ValidJSON(line) {
		return e, false
	}
	gjson.Parse(protocol.TextOf(line)).ForEach(func(name, about gjson.Result) bool {
		for i, action := range actions {
			if name.Str == action && about.IsObject() {
				e.Note = byte(i)
			}
		}
		e.ID = []byte(about.Get("_id").String())
		index = cmp.Or(about.Get("_index").Str, index)
		return false
	})
	e.Partition = protocol.PartitionName(index)
	return e, e.Note > 0
}

func readDocument(e *protocol.Event, document []byte, maxEntry int) wire.Reason {
	switch {
	case len(document) > maxEntry:
		return wire.ReasonTooLarge
	case !wire.ValidJSON(document) || document[0] != '{':
		return wire.ReasonBadItem
	}
	e.Data = document
	e.TS, e.HasTS = protocol.ParseTime(gjson.GetBytes(document, "@timestamp"))
	return ""
}

// Itemizes is true: clients send again the items of status 429.
func (Adapter) Itemizes(protocol.Request) bool { return true }

// Answer has an item for each action.
func (Adapter) Answer(dst []byte, a protocol.Answer) (int, []byte) {
	dst = strconv.AppendBool(append(dst, `{"took":0,"errors":`...), a.Accepted < a.Count)
	dst = append(dst, `,"items":[`...)
	failed := a.Failed()
	for i := range a.Count {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(append(append(dst, `{"`...), actions[a.Notes[i]]...), `":{"status":`...)
		switch e := failed(i); {
		case e == nil:
			dst = append(dst, `201}}`...)
		case e.Disposition == wire.Retry:
			dst = appendError(append(dst, `429,"error":`...), "es_rejected_execution_exception", string(e.Reason))
			dst = append(dst, "}}"...)
		default:
			dst = appendError(append(dst, `400,"error":`...), "document_parsing_exception", string(e.Reason))
			dst = append(dst, "}}"...)
		}
	}
	return http.StatusOK, append(dst, "]}"...)
}

func appendError(dst []byte, kind, reason string) []byte {
	dst = append(append(append(dst, `{"type":"`...), kind...), `","reason":`...)
	return append(gjson.AppendJSONString(dst, reason), '}')
}

// Failure has the status that decides whether clients try again.
func (Adapter) Failure(dst []byte, f protocol.Failure) (int, []byte) {
	kind := "illegal_argument_exception"
	switch {
	case f.Status == http.StatusUnauthorized:
		kind = "security_exception"
	case f.Status == http.StatusTooManyRequests:
		kind = "es_rejected_execution_exception"
	case f.Status >= http.StatusInternalServerError:
		kind = "unavailable_shards_exception"
	}
	dst = appendError(append(dst, `{"error":`...), kind, f.Message)
	dst = strconv.AppendInt(append(dst, `,"status":`...), int64(f.Status), 10)
	return f.Status, append(dst, '}')
}

// greeting is of a version that today's clients and shippers accept.
const greeting = `{"name":"spillway","cluster_name":"spillway","cluster_uuid":"spillway","version":{"number":"9.2.0",` +
	`"build_flavor":"default","build_type":"docker","build_snapshot":false,"lucene_version":"10.3.0",` +
	`"minimum_wire_compatibility_version":"8.19.0","minimum_index_compatibility_version":"8.0.0"},` +
	`"tagline":"You Know, for Search"}`

// Greet answers the first question of clients, and that for the license.
func (Adapter) Greet(dst []byte, r protocol.Request) (int, []byte) {
	if r.Call == "_license" {
		return http.StatusOK, append(dst, `{"license":{"status":"active","type":"basic","mode":"basic"}}`...)
	}
	return http.StatusOK, append(dst, greeting...)
}

// Dress says what clients look for before they read an answer.
func (Adapter) Dress(_ protocol.Request, set func(name, value string)) {
	set("X-Elastic-Product", "Elasticsearch")
}
