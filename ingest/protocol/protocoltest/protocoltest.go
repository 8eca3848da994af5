// Package protocoltest reads bodies with an adapter, for the tests of adapters.
package protocoltest

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/protocol/lineartest"
	"github.com/spillway-io/spillway/ingest/wire"
)

// MaxEntry bounds an event, in bytes.
const MaxEntry = 1 << 10

type values map[string][]string

func (v values) Peek(name string) []byte { return []byte(url.Values(v).Get(name)) }

func (v values) All() iter.Seq2[[]byte, []byte] {
	return func(yield func([]byte, []byte) bool) {
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if !yield([]byte(name), []byte(v[name][0])) {
				return
			}
		}
	}
}

// Request is one for call?query, with headers such as "Content-Type: application/json".
func Request(call string, lines ...string) protocol.Request {
	call, text, _ := strings.Cut(call, "?")
	query, _ := url.ParseQuery(text)
	h := values{}
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		h[name] = []string{value}
	}
	return protocol.Request{Call: call, Header: h, Query: values(query)}
}

// Events are those of a body, as "partition id@ts data", or as "! reason"; or the error.
func Events(adapter protocol.Adapter, r protocol.Request, body string) (list []string) {
	batch, err := adapter.Open(r, []byte(body))
	if err == nil {
		err = batch.Each(adapter.Paths(), MaxEntry, func(e protocol.Event, why wire.Reason) bool {
			switch {
			case why == "" && len(e.Data) > MaxEntry:
				why = wire.ReasonTooLarge
				fallthrough
			case why != "":
				list = append(list, "! "+string(why))
			default:
				if !e.HasTS {
					e.TS = 0
				}
				list = append(list, fmt.Sprintf("%s %s@%d %s", e.Partition, e.ID, e.TS, e.Data))
			}
			return true
		})
	}
	if err != nil {
		return []string{err.Error()}
	}
	return list
}

// Row is a name, a call, headers with line ends between them, a body, and what Events makes of
// it, with line ends.
type Row [5]string

// Run tries rows.
func Run(t *testing.T, adapter protocol.Adapter, rows []Row) {
	t.Helper()
	for _, row := range rows {
		got := Events(adapter, Request(row[1], strings.Split(row[2], "\n")...), row[3])
		if text := strings.Join(got, "\n"); text != row[4] {
			t.Errorf("%s: got\n%s\nwant\n%s", row[0], text, row[4])
		}
	}
	isLinear(t, adapter, rows)
}

// isLinear checks that no body takes an adapter more than its bytes: of the calls of rows, with members that their
// objects have, and with some that repeat.
func isLinear(t *testing.T, adapter protocol.Adapter, rows []Row) {
	t.Helper()
	seen := map[string]bool{}
	for _, row := range rows {
		body := row[3]
		at := []int{strings.Index(body, "{"), strings.LastIndex(body, "{")}
		if at[0] < 0 || seen[row[1]+row[2]] {
			continue
		}
		seen[row[1]+row[2]] = true
		r := Request(row[1], strings.Split(row[2], "\n")...)
		own, _, _ := strings.Cut(body[at[1]+1:], ",")
		for _, member := range []string{`"a":1`, `"\u0061":{"a":[]}`, strings.TrimRight(own, "}] \n")} {
			for _, i := range at {
				lineartest.Check(t, fmt.Sprintf("%s, with %s again and again", row[0], member), func(members int) func() {
					text := body[:i+1] + strings.Repeat(member+",", members) + body[i+1:]
					return func() {
						if batch, err := adapter.Open(r, []byte(text)); err == nil {
							_ = batch.Each(adapter.Paths(), MaxEntry, func(protocol.Event, wire.Reason) bool { return true })
						}
					}
				})
			}
		}
	}
}

// Fuzz holds what an adapter makes of any body, beside those of rows, to what a server expects.
func Fuzz(f *testing.F, adapter protocol.Adapter, rows []Row) {
	for i, row := range rows {
		f.Add([]byte(row[3]), i)
	}
	f.Fuzz(func(t *testing.T, body []byte, i int) {
		row := rows[uint(i)%uint(len(rows))]
		check(t, adapter, Request(row[1], strings.Split(row[2], "\n")...), bytes.Clone(body))
	})
}

func check(t *testing.T, adapter protocol.Adapter, r protocol.Request, body []byte) {
	batch, err := adapter.Open(r, body)
	if err != nil {
		return
	}
	count, ended := 0, false
	_ = batch.Each(adapter.Paths(), MaxEntry, func(e protocol.Event, why wire.Reason) bool {
		if ended {
			t.Fatal("an event after the end")
		}
		count++
		ended = count == 100
		if why == "" && e.Partition != "" && protocol.PartitionName(e.Partition) != e.Partition {
			t.Errorf("%q is no partition", e.Partition)
		}
		if why != "" && e.Data != nil {
			t.Errorf("%q: dropped for %q, with data", e.Data, why)
		}
		return !ended
	})
	if count == 0 {
		return // a request without events is rejected
	}
	for _, a := range []protocol.Answer{
		{Accepted: count},
		{Accepted: count - 1, Results: []wire.Result{{Index: 0, Disposition: wire.Drop, Reason: wire.ReasonTooLarge}}},
		{Accepted: count - 1, Results: []wire.Result{{Index: count - 1, Disposition: wire.Retry, Reason: wire.ReasonUnknown}}},
	} {
		a.Request, a.Notes, a.Count = r, batch.Notes, count
		if status, _ := adapter.Answer(a); status < 200 || status > 499 {
			t.Errorf("%+v is answered %d", a, status)
		}
	}
}
