package wire

import (
	"bytes"
	"errors"
	"iter"
	"strings"
	"unsafe"

	"github.com/tidwall/gjson"
)

// MaxDepth is how deep arrays and objects may nest. Real payloads nest less. The
// bound limits the stack that the validation of a hostile body needs.
const MaxDepth = 512

var (
	// ErrJSON: the text is not JSON, or nests deeper than MaxDepth.
	ErrJSON = errors.New("not valid JSON")
	// ErrSentAt: the envelope's sent_at is not integer Unix milliseconds.
	ErrSentAt = errors.New("sent_at is not integer Unix milliseconds")
)

// ValidJSON reports whether text is one JSON value within MaxDepth. It
// checks only the grammar: repeated keys, 1e400 and invalid UTF-8 are valid.
func ValidJSON(text []byte) bool { return withinMaxDepth(text) && gjson.ValidBytes(text) }

// withinMaxDepth runs before the validator, which recurses. It counts the brackets
// outside strings, and needs no stack of its own.
func withinMaxDepth(text []byte) bool {
	if bytes.Count(text, []byte{'['})+bytes.Count(text, []byte{'{'}) <= MaxDepth {
		return true // most bodies, at a tenth of the cost of the loop
	}
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '[', '{':
			if depth++; depth > MaxDepth {
				return false
			}
		case ']', '}':
			depth--
		case '"':
			i = endOfString(text, i)
		}
	}
	return true
}

// endOfString returns the index of the quote that closes the string opened at
// start, or the length of text.
func endOfString(text []byte, start int) int {
	for i := start + 1; i < len(text); i++ {
		skip := bytes.IndexByte(text[i:], '"')
		if skip < 0 {
			break
		}
		i += skip
		escapes := 0
		for text[i-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return i
		}
	}
	return len(text)
}

// Values yields the values of an array, or the keys and values of an object, as they were sent; of
// any other text nothing. The text is valid JSON.
func Values(text string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		raw := bytesOf(text)
		if len(text) == 0 || text[0] != '[' && text[0] != '{' {
			return
		}
		for i := endOfSpace(raw, 1); text[i] != ']' && text[i] != '}'; {
			var key string
			if text[0] == '{' {
				end := endOfString(raw, i) + 1
				key = text[i:end]
				i = endOfSpace(raw, endOfSpace(raw, end)+1) // behind the colon
			}
			end := endOfValue(raw, i)
			if !yield(key, text[i:end]) {
				return
			}
			if i = endOfSpace(raw, end); text[i] == ',' {
				i = endOfSpace(raw, i+1)
			}
		}
	}
}

// Text is what a string of JSON says, such as a key of Values.
func Text(raw string) string {
	if strings.IndexByte(raw, '\\') >= 0 {
		return gjson.Parse(raw).Str
	}
	return raw[1 : len(raw)-1]
}

func endOfSpace(text []byte, i int) int {
	for text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r' {
		i++
	}
	return i
}

// endOfValue returns the index behind the value that begins at i.
func endOfValue(text []byte, i int) int {
	for depth := 0; i < len(text); i++ {
		switch text[i] {
		case '[', '{':
			depth++
			continue
		case '"':
			i = endOfString(text, i)
		case ']', '}':
			depth--
		case ',', ' ', '\n', '\t', '\r', ':':
			continue
		default:
			if depth == 0 { // a number or a word
				for i+1 < len(text) && !bytes.ContainsRune([]byte(",]} \n\t\r"), rune(text[i+1])) {
					i++
				}
			}
		}
		if depth == 0 {
			return i + 1
		}
	}
	return len(text)
}

// Form is the form of a JSON body.
type Form int

const (
	Single   Form = iota // any other value: one opaque entry
	Array                // [value, …]
	Envelope             // {"sent_at"?, "batch": [item, …]}
)

// Batch is a JSON body whose form is known.
type Batch struct {
	Form      Form
	SentAt    int64 // Unix ms on the sender's clock, with HasSentAt
	HasSentAt bool
	items     gjson.Result
}

// ParseBatch finds the form of a JSON body. It returns ErrJSON, or
// ErrSentAt for an envelope with a malformed time.
func ParseBatch(body []byte) (Batch, error) {
	if !ValidJSON(body) {
		return Batch{}, ErrJSON
	}
	// The string shares the body's memory, as all views of this package do.
	root := gjson.Parse(unsafe.String(unsafe.SliceData(body), len(body)))
	if root.IsArray() {
		return Batch{Form: Array, items: root}, nil
	}
	var b Batch
	var sentAt gjson.Result
	if root.IsObject() {
		root.ForEach(func(key, value gjson.Result) bool {
			switch key.Str {
			case "sent_at":
				sentAt = value
			case "batch":
				b.items = value
			}
			return true
		})
	}
	if !b.items.IsArray() {
		return Batch{Form: Single}, nil
	}
	b.Form = Envelope
	if sentAt.Exists() {
		if b.SentAt, b.HasSentAt = number(sentAt); !b.HasSentAt {
			return Batch{}, ErrSentAt
		}
	}
	return b, nil
}

// Items yields the elements of the array or of the envelope's batch, as the
// bytes that were sent.
func (b Batch) Items() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		b.items.ForEach(func(_, value gjson.Result) bool { return yield(bytesOf(value.Raw)) })
	}
}

// Item is one element of an envelope or of a mixed body.
type Item struct {
	Partition string // empty when absent or not a string
	ID        []byte // with HasID
	HasID     bool
	TS        int64 // Unix ms, with HasTS
	HasTS     bool
	Data      []byte // any JSON value, as sent
}

// ParseItem reads {"partition"?, "id"?, "ts"?, "data"} from valid JSON. It
// ignores other keys, and takes the last of equal ones. The reason is empty, or
// ReasonBadItem if raw is no object or has no data, ReasonBadID if id is no string,
// ReasonBadTS if ts is not integer Unix milliseconds.
func ParseItem(raw []byte) (item Item, why Reason) {
	root := gjson.Parse(unsafe.String(unsafe.SliceData(raw), len(raw)))
	if !root.IsObject() {
		return Item{}, ReasonBadItem
	}
	var id, ts gjson.Result
	root.ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "partition":
			item.Partition = value.Str
		case "id":
			id = value
		case "ts":
			ts = value
		case "data":
			item.Data = bytesOf(value.Raw)
		}
		return true
	})
	if item.Data == nil {
		return Item{}, ReasonBadItem
	}
	if id.Exists() {
		if id.Type != gjson.String {
			return Item{}, ReasonBadID
		}
		item.ID, item.HasID = bytesOf(id.Str), true
	}
	if ts.Exists() {
		if item.TS, item.HasTS = number(ts); !item.HasTS {
			return Item{}, ReasonBadTS
		}
	}
	return item, ""
}

func number(value gjson.Result) (ms int64, ok bool) {
	if value.Type != gjson.Number {
		return 0, false
	}
	return ParseMillis(value.Raw)
}

// bytesOf returns the bytes of a string that shares the body's memory.
func bytesOf(s string) []byte { return unsafe.Slice(unsafe.StringData(s), len(s)) }

// maxMillisDigits is enough for Unix milliseconds until the year 2286. More digits
// are microseconds or nanoseconds sent by mistake. Rejecting them tells the client;
// accepting them would make every entry stale.
const maxMillisDigits = 13

// ParseMillis reads Unix milliseconds: 1 to 13 decimal digits and nothing else,
// no sign, no fraction, no leading zero.
func ParseMillis[T string | []byte](s T) (ms int64, ok bool) {
	if len(s) == 0 || len(s) > maxMillisDigits || s[0] == '0' && len(s) > 1 {
		return 0, false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		ms = ms*10 + int64(s[i]-'0')
	}
	return ms, true
}
