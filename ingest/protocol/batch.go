package protocol

import (
	"bytes"
	"cmp"
	"errors"
	"iter"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/ingest/wire"
)

// Names are the keys of a protocol's JSON that have a meaning here.
type Names struct {
	Keys   []string // of the API key, in the body; of several the last one counts
	SentAt string   // of the device's clock, in the body and in an event; empty: none
	ID     string   // of an event's id
	Time   string   // of an event's time
	// OtherTime counts for an event without Time; empty: none.
	OtherTime string
	// StrictTime drops an event whose time cannot be read. Else it is stamped on arrival.
	StrictTime bool
	// TextMillis reads Unix milliseconds from texts, too.
	TextMillis bool
}

// Batch is a body whose key, clock and events are known.
type Batch struct {
	Key       string // empty: none
	SentAt    int64  // Unix ms on the device's clock, with HasSentAt
	HasSentAt bool
	Notes     []byte // what Answer wants to know: of Open
	names     *Names
	events    gjson.Result // an array, or one event
	made      Maker        // instead of names and events; nil: none
}

// Maker makes the events of a body that is not a list of them. It yields until yield returns
// false. What it yields is valid until the next. Of what takes more than maxEntry bytes it
// makes no more than it must, and yields ReasonTooLarge. Its error is that of Open.
type Maker func(maxEntry int, yield func(e Event, why wire.Reason) bool) error

// Make is a batch of made events. An empty key: the query's.
func Make(key string, events Maker) Batch { return Batch{Key: key, made: events} }

// Event is one event of a batch.
type Event struct {
	Data      []byte // as sent
	ID        []byte // empty: none; any string
	TS        int64  // Unix ms on the device's clock, with HasTS
	HasTS     bool
	SentAt    int64 // the event's own, else the batch's; with HasSentAt
	HasSentAt bool
	Partition string // of PartitionName, or empty; Paths count first
}

// FindKey looks for the value of one of these names in a part of a body; empty: there is
// none. It knows nothing of where in the JSON it is: only Open says what the key is.
func FindKey(part []byte, names []string) string {
	for _, name := range names {
		_, rest, found := bytes.Cut(part, []byte(`"`+name+`"`))
		value, isString := bytes.CutPrefix(bytes.TrimLeft(rest, ": \t\r\n"), []byte{'"'})
		value, _, ends := bytes.Cut(value, []byte{'"'})
		if found && isString && ends {
			return string(value)
		}
	}
	return ""
}

// ParseJSON returns the value of a body without the space around it.
func ParseJSON(body []byte) (gjson.Result, error) {
	if !wire.ValidJSON(body) {
		return gjson.Result{}, ErrBody
	}
	body = bytes.Trim(body, " \t\r\n") // else the last of it would be part of Raw
	return gjson.Parse(TextOf(body)), nil
}

// Member is the value of a key of an object, as it was sent; empty: there is none. The text is valid
// JSON.
func Member(object, name string) string {
	if !strings.HasPrefix(object, "{") {
		return ""
	}
	for key, value := range wire.Values(object) {
		if wire.Text(key) == name {
			return value
		}
	}
	return ""
}

// AppendText appends a text as a string of JSON. Most have nothing to escape, and are copied.
func AppendText(dst []byte, text string) []byte {
	for i := range len(text) {
		if escaped[text[i]] {
			return gjson.AppendJSONString(dst, text)
		}
	}
	return append(append(append(dst, '"'), text...), '"')
}

// escaped are the bytes that gjson may write in another way.
var escaped = func() (table [256]bool) {
	for c := range table {
		table[c] = c < ' ' || c > '~' || strings.IndexByte(`"\<>&`, byte(c)) >= 0
	}
	return table
}()

// NewBatch reads key and clock of root, an object, and takes the array called list as
// its events. An empty list takes root itself as the only event.
func NewBatch(names *Names, root gjson.Result, list string) (Batch, error) {
	b := Batch{names: names, events: root}
	found := list == ""
	if !root.IsObject() {
		return b, ErrBody
	}
	root.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "":
		case list:
			b.events, found = value, value.IsArray()
		case names.SentAt:
			b.SentAt, b.HasSentAt = ParseTime(value)
		default:
			for _, name := range names.Keys {
				if key.Str == name && value.Type == gjson.String {
					b.Key = value.Str
				}
			}
		}
		return true
	})
	if !found {
		return b, ErrBody
	}
	return b, nil
}

// NewList takes the elements of an array as events. Its key and clock are unknown.
func NewList(names *Names, array gjson.Result) Batch { return Batch{names: names, events: array} }

// Each reads the events one by one, until yield returns false. One of more than maxEntry bytes
// is dropped before it is read.
func (b *Batch) Each(paths Paths, maxEntry int, yield func(e Event, why wire.Reason) bool) error {
	if b.made == nil {
		for raw := range b.Events() {
			e, why := Event{}, wire.ReasonTooLarge
			if len(raw) <= maxEntry {
				e, why = b.Read(raw, paths)
			}
			if !yield(e, why) {
				break
			}
		}
		return nil
	}
	err := b.made(maxEntry, func(e Event, why wire.Reason) bool {
		if why == "" && len(paths) > 0 && len(e.Data) <= maxEntry && wire.ValidJSON(e.Data) {
			e.Partition = cmp.Or(paths.Of(e.Data), e.Partition)
		}
		return yield(e, why)
	})
	if errors.Is(err, ErrEnd) {
		return nil
	}
	return err
}

// Events yields the events as they were sent.
func (b *Batch) Events() iter.Seq[string] {
	return func(yield func(string) bool) {
		if !b.events.IsArray() {
			yield(b.events.Raw)
			return
		}
		b.events.ForEach(func(_, value gjson.Result) bool { return yield(value.Raw) })
	}
}

// Read reads one of Events. The reason is empty, or ReasonBadItem if raw is no object,
// or ReasonBadTS. The partition is what the first of paths that has one says.
func (b *Batch) Read(raw string, paths Paths) (e Event, why wire.Reason) {
	root := gjson.Parse(raw)
	if !root.IsObject() {
		return Event{}, wire.ReasonBadItem
	}
	e = Event{
		Data:      unsafe.Slice(unsafe.StringData(raw), len(raw)),
		SentAt:    b.SentAt,
		HasSentAt: b.HasSentAt,
	}
	var ts, other gjson.Result
	var tops [MaxPaths]gjson.Result
	n := b.names
	root.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "":
			return true
		case n.ID:
			if value.Type == gjson.String {
				e.ID = unsafe.Slice(unsafe.StringData(value.Str), len(value.Str))
			}
		case n.Time:
			ts = value
		case n.OtherTime:
			other = value
		case n.SentAt:
			if ms, ok := n.time(value); ok {
				e.SentAt, e.HasSentAt = ms, true
			}
		}
		for i, path := range paths {
			if key.Str == path[0] {
				tops[i] = value
			}
		}
		return true
	})
	if !ts.Exists() || ts.Type == gjson.Null {
		ts = other
	}
	if e.TS, e.HasTS = n.time(ts); !e.HasTS && n.StrictTime && ts.Exists() && ts.Type != gjson.Null {
		return Event{}, wire.ReasonBadTS
	}
	e.Partition = paths.find(tops[:len(paths)])
	return e, ""
}

func (n *Names) time(value gjson.Result) (ms int64, ok bool) {
	if n.TextMillis && value.Type == gjson.String {
		return wire.ParseMillis(value.Str)
	}
	return ParseTime(value)
}

// ParseSeconds reads Unix seconds, as a number or a text, with a fraction.
func ParseSeconds(value gjson.Result) (ms int64, ok bool) {
	seconds, err := strconv.ParseFloat(strings.Trim(value.Raw, `"`), 64)
	if err != nil || !(seconds >= 0 && seconds <= 1e11) { // NaN is neither
		return 0, false
	}
	return int64(seconds*1000 + 0.5), true
}

// FirstText is the text at the first of these paths of gjson that has one; empty: none has.
func FirstText(value gjson.Result, paths []string) string {
	for _, path := range paths {
		if text := value.Get(path); text.Type == gjson.String {
			return text.Str
		}
	}
	return ""
}

// TextOf is a view of text.
func TextOf(text []byte) string { return unsafe.String(unsafe.SliceData(text), len(text)) }

// maxTimeLen bounds the text of a time: a date, nine digits of a second, an offset.
const maxTimeLen = 40

// ParseTime reads Unix milliseconds, or ISO 8601 with a zone or, without one, in UTC.
func ParseTime(value gjson.Result) (ms int64, ok bool) {
	switch value.Type {
	case gjson.Number:
		return wire.ParseMillis(value.Raw)
	case gjson.String:
		if len(value.Str) > maxTimeLen {
			return 0, false
		}
		at, err := time.Parse(time.RFC3339, value.Str)
		if err != nil {
			at, err = time.Parse("2006-01-02T15:04:05", value.Str)
		}
		return at.UnixMilli(), err == nil
	}
	return 0, false
}
