package sinktest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spillway-io/spillway/drain/sink"
)

// payloads are what a client may send. JSON with line breaks may arrive
// compacted, everything else must arrive byte for byte.
var payloads = []string{
	`{"canary":"c4n4ry"}`, `[1,2]`, `"string"`, `42`, `null`, `true`,
	"", " ", "\n", "\r\n", `""`,
	"plain text", "two\nlines", "tab\tquote\"back\\slash/", "<script>&amp;</script>",
	"\u2028 and \u2029", "grüße 🎮", `{"g":"grüße 🎮 ` + "\u2028" + `"}`,
	"{\n  \"a\": [1,\r\n\t2],\n  \"b c\": \" \\\" \\\\\"\n}",
	`{"escapes":"\u0000 \ud800 \/"}`, `{"dup":1,"dup":2}`, `1e400`, `12345678901234567890`,
	"\x00\x01\x1f\x7f", "\xff\xfe\x00", "{\"not utf-8\":\"\xff\"}", "\ufeff{}", `{"torn":`, "{\"raw\":\"a\nb\"}",
	strings.Repeat("[", 5000) + strings.Repeat("]", 5000),
	strings.Repeat("[", 100_000),
	`{"large":"` + strings.Repeat("x", 32<<10-12) + `"}`,
	strings.Repeat("\xfe\x00\n", 32<<10/3),
	strings.Repeat("\x01", 32<<10),
}

// rule says how often an entry may have arrived.
type rule struct {
	max     int           // 0: any number, and in any order, as retries are
	besides []*sink.Batch // entries of these may, too
}

var (
	once        = rule{max: 1}
	atLeastOnce = rule{}
)

func someOf(batches []*sink.Batch) rule { return rule{besides: batches} }

// expect compares what arrived with the given batches: every entry of theirs,
// by the rule, unchanged, and nothing else.
func (f Fixture) expect(r rule, batches ...*sink.Batch) error {
	if f.Received == nil {
		return nil
	}
	got, err := f.Received()
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	type key struct {
		partition string
		seq       int64
	}
	arrived := map[key][]Record{}
	newest := map[string]int64{}
	for _, rec := range got {
		k := key{rec.Partition, rec.Seq}
		if len(arrived[k]) == 0 {
			if r.max > 0 && rec.Seq < newest[rec.Partition] {
				return fmt.Errorf("order: %s has %d after %d", rec.Partition, rec.Seq, newest[rec.Partition])
			}
			newest[rec.Partition] = rec.Seq
		}
		arrived[k] = append(arrived[k], rec)
	}
	for _, b := range batches {
		for i := range b.Entries {
			k := key{b.Partition, b.Entries[i].Seq}
			recs := arrived[k]
			delete(arrived, k)
			if len(recs) == 0 {
				return fmt.Errorf("lost: %s %d never arrived", k.partition, k.seq)
			}
			if r.max > 0 && len(recs) > r.max {
				return fmt.Errorf("repeated: %s %d arrived %d times", k.partition, k.seq, len(recs))
			}
			for _, rec := range recs {
				if err := same(rec, b, i); err != nil {
					return fmt.Errorf("changed: %s %d: %w", k.partition, k.seq, err)
				}
			}
		}
	}
	for _, b := range r.besides {
		for _, e := range b.Entries {
			delete(arrived, key{b.Partition, e.Seq})
		}
	}
	for k := range arrived {
		return fmt.Errorf("unexpected: %s %d arrived and should not", k.partition, k.seq)
	}
	return nil
}

// same compares a record with entry i of b.
func same(rec Record, b *sink.Batch, i int) error {
	e := b.Entries[i]
	switch {
	case rec.Namespace != b.Namespace:
		return fmt.Errorf("namespace %q, want %q", rec.Namespace, b.Namespace)
	case rec.Occurred != e.Occurred:
		return fmt.Errorf("time %d, want %d", rec.Occurred, e.Occurred)
	case string(rec.ID) != string(e.ID):
		return fmt.Errorf("id %q, want %q", rec.ID, e.ID)
	case !samePayload(rec.Payload, e.Payload):
		return fmt.Errorf("payload %.200q, want %.200q", rec.Payload, e.Payload)
	}
	return nil
}

// expectID compares the batch ids that arrived, where the target keeps them.
func (f Fixture) expectID(id string) error {
	if f.Received == nil {
		return nil
	}
	got, err := f.Received()
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	for _, rec := range got {
		if rec.Batch != "" && rec.Batch != id {
			return fmt.Errorf("batch id: %s, want %s in attempt %d", rec.Batch, id, rec.Attempt)
		}
	}
	return nil
}

func samePayload(got, want []byte) bool {
	if bytes.Equal(got, want) {
		return true
	}
	var g, w bytes.Buffer
	return json.Compact(&w, want) == nil && json.Compact(&g, got) == nil && bytes.Equal(g.Bytes(), w.Bytes())
}
