package php

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// Bounds of a payload. PHP's json_decode reads no deeper.
const (
	maxPayload = 1 << 20
	maxDepth   = 512
)

// A PayloadError is why a message of a publish is no job that PHP could run.
type PayloadError struct {
	Index int // of the message
	Why   string
}

func (e *PayloadError) Error() string { return fmt.Sprintf("job %d: %s", e.Index, e.Why) }

// request is what a publisher may say of a job that it does not give as a whole payload.
type request struct {
	Job, DisplayName, ID string
	Data                 string // JSON
	Tries, Timeout       string // JSON
}

// Payload is the flavor's payload of a message: built from {"job":…,"data":…}, or the message itself
// where that is a whole payload, with attempts as of one that was never delivered. now is in Unix ms.
func (f Flavor) Payload(message []byte, now int64) ([]byte, error) {
	if err := check(message); err != "" {
		return nil, &PayloadError{Why: err}
	}
	var r request
	var attempts gjson.Result
	whole, wrong := false, ""
	gjson.ParseBytes(message).ForEach(func(key, value gjson.Result) bool {
		text := value.Type == gjson.String
		null := value.Type == gjson.Null
		switch key.Str {
		case "job":
			r.Job = value.Str
		case "data":
			r.Data = value.Raw
		case "id":
			if r.ID = value.Str; !text && !null {
				wrong = "id is text"
			}
		case "displayName", "display_name":
			r.DisplayName = value.Str
		case "tries", "maxTries":
			if r.Tries = value.Raw; !isWhole(value) && !null {
				wrong = key.Str + " is a whole number, or null"
			}
		case "timeout":
			if r.Timeout = value.Raw; !isWhole(value) && !null {
				wrong = "timeout is a whole number of seconds, or null"
			}
		case "attempts":
			whole, attempts = true, value
		}
		return true
	})
	switch {
	case r.Job == "":
		return nil, &PayloadError{Why: `job is missing: it is the class that PHP runs, such as "App\\Jobs\\Mail@fire"`}
	case whole:
		return f.asNew(message, attempts), nil
	case wrong != "":
		return nil, &PayloadError{Why: wrong}
	case strings.HasPrefix(r.Job, `Illuminate\Queue\CallQueuedHandler`):
		return nil, &PayloadError{Why: "a job that is an object in PHP cannot be built outside of PHP: " +
			"push a job that is named by a string, and let it dispatch the other"}
	}
	p := f.build(r, now)
	if len(p) > maxPayload {
		return nil, &PayloadError{Why: tooLarge}
	}
	return p, nil
}

const tooLarge = "it is larger than 1 MiB"

// check is why a message is no JSON object that PHP could read; "": it is one.
func check(message []byte) string {
	depth, deepest, quoted, half := 0, 0, false, false
	for i := 0; i < len(message); i++ {
		switch c := message[i]; {
		case quoted && c == '\\':
			size, whole := escape(message[i:])
			half = half || !whole
			i += size - 1
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '{' || c == '['):
			depth++
			deepest = max(deepest, depth)
		case !quoted && (c == '}' || c == ']'):
			depth--
		}
	}
	switch trimmed := bytes.TrimLeft(message, " \t\r\n"); {
	case len(message) > maxPayload:
		return tooLarge
	case !utf8.Valid(message):
		return "it is no UTF-8"
	case deepest > maxDepth:
		return "it is deeper than 512"
	case half:
		return "it has half of a surrogate pair, such as \\ud83d alone, which PHP does not read"
	case !json.Valid(message) || trimmed[0] != '{':
		return `it is no JSON object such as {"job":"App\\Jobs\\Mail@fire","data":{}}`
	}
	return ""
}

// escape is how long an escape of a JSON string is, with both of a surrogate pair. false: one is alone.
func escape(text []byte) (size int, whole bool) {
	unit := func(at int) rune {
		if len(text) < at+6 || text[at] != '\\' || text[at+1] != 'u' {
			return -1
		}
		n, err := strconv.ParseUint(string(text[at+2:at+6]), 16, 16)
		if err != nil {
			return -1
		}
		return rune(n)
	}
	switch first := unit(0); {
	case first < 0:
		return 2, true
	case !utf16.IsSurrogate(first):
		return 6, true
	case utf16.DecodeRune(first, unit(6)) != utf8.RuneError:
		return 12, true
	}
	return 6, false
}

func isWhole(v gjson.Result) bool {
	n, err := strconv.ParseInt(v.Raw, 10, 64)
	return v.Type == gjson.Number && err == nil && n >= 0
}

// asNew is a payload with the attempts of one that was never delivered. No other byte changes.
func (f Flavor) asNew(payload []byte, attempts gjson.Result) []byte {
	first := strconv.FormatInt(f.first(), 10)
	if attempts.Raw == first {
		return payload
	}
	end := attempts.Index + len(attempts.Raw)
	return append(append(append(make([]byte, 0, len(payload)+1),
		payload[:attempts.Index]...), first...), payload[end:]...)
}

// build makes a payload with the fields of the library, in its order.
func (f Flavor) build(r request, now int64) []byte {
	class, _, _ := strings.Cut(r.Job, "@")
	id := cmp.Or(r.ID, randomText())
	text := func(s string) string {
		quoted, _ := json.Marshal(s) // which fails for no text
		return string(quoted)
	}
	data := cmp.Or(r.Data, "[]")
	switch f {
	case Laravel:
		return fmt.Appendf(
			nil,
			`{"uuid":%s,"displayName":%s,"job":%s,"maxTries":%s,"maxExceptions":null,"failOnTimeout":false,`+
				`"backoff":null,"timeout":%s,"data":%s,"createdAt":%d,"id":%s,"attempts":0}`,
			text(uuid()),
			text(cmp.Or(r.DisplayName, class)),
			text(r.Job),
			cmp.Or(r.Tries, "null"),
			cmp.Or(r.Timeout, "null"),
			data,
			now/1000,
			text(id),
		)
	case Think3:
		return fmt.Appendf(nil, `{"job":%s,"maxTries":%s,"timeout":%s,"data":%s,"id":%s,"attempts":0}`,
			text(r.Job), cmp.Or(r.Tries, "null"), cmp.Or(r.Timeout, "null"), data, text(id))
	}
	return fmt.Appendf(nil, `{"job":%s,"data":%s,"id":%s,"attempts":1}`, text(r.Job), data, text(id))
}

// randomText is an id as PHP's Str::random(32) makes them.
func randomText() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// uuid is a random one, version 4.
func uuid() string {
	h := []byte(randomText())
	h[12], h[16] = '4', "89ab"[h[16]&3]
	return string(h[:8]) + "-" + string(h[8:12]) + "-" + string(h[12:16]) + "-" + string(h[16:20]) + "-" + string(h[20:])
}

// Facts is what a payload says of itself.
type Facts struct {
	ID          string   `json:"id,omitempty"` // PHP's own, uuid or id
	Job         string   `json:"job"`
	DisplayName string   `json:"display_name,omitempty"`
	TimeoutMS   int64    `json:"timeout_ms,omitempty"`
	Backoff     string   `json:"backoff,omitempty"` // as it stands there
	Tags        []string `json:"tags,omitempty"`
	Unique      bool     `json:"unique,omitempty"` // a lock of PHP's is held until PHP's code runs it
	Batch       bool     `json:"batch,omitempty"`  // PHP's code counts it
	Chain       bool     `json:"chain,omitempty"`  // PHP's code starts the next

	Class   string `json:"-"` // that PHP runs
	Raw     bool   `json:"-"` // it holds what PHP unserializes
	tries   int64  // -1: it names none
	created int64  // Unix ms; 0: unknown
}

// handlers are the classes that run the object in data.command, and not themselves.
var handlers = map[string]bool{`Illuminate\Queue\CallQueuedHandler`: true, `think\queue\CallQueuedHandler`: true}

// Bounds of what is read: the tags that are shown, and the time of making, Unix ms, in the year 9999.
const (
	maxTags    = 32
	maxCreated = 253_402_300_799_000
)

// Read reads what a payload says of itself. It is bounded by the length of the payload, and never
// fails: what is missing, or of another type than PHP writes, is left out.
func Read(payload []byte) Facts {
	f := Facts{tries: -1}
	var command, named string
	gjson.ParseBytes(payload).ForEach(func(key, value gjson.Result) bool {
		switch key.Str {
		case "uuid":
			f.ID = value.Str
		case "id":
			if f.ID == "" {
				f.ID = value.Str
			}
		case "job":
			f.Job = value.Str
		case "displayName":
			f.DisplayName = value.Str
		case "maxTries":
			if isWhole(value) {
				f.tries = value.Int()
			}
		case "timeout":
			if isWhole(value) {
				f.TimeoutMS = min(value.Int(), 1<<40) * 1000
			}
		case "backoff":
			if len(value.Raw) <= 64 && value.Type != gjson.Null {
				f.Backoff = value.String()
			}
		case "createdAt", "pushedAt":
			if ms := value.Float() * 1000; ms > 0 && ms <= maxCreated { // no number is neither
				f.created = int64(ms)
			}
		case "tags":
			value.ForEach(func(_, tag gjson.Result) bool {
				f.Tags = append(f.Tags, tag.String())
				return len(f.Tags) < maxTags
			})
		case "data":
			// Of two fields of a name PHP reads the last: whatever it reads is seen here.
			value.ForEach(func(key, value gjson.Result) bool {
				switch key.Str {
				case "command":
					f.Raw = f.Raw || value.Str != ""
					command = value.Str
				case "commandName":
					named = value.Str
				}
				return true
			})
		}
		return true
	})
	f.Class, _, _ = strings.Cut(f.Job, "@")
	if f.Raw {
		if named != "" && handlers[f.Class] { // of any other job commandName is data, and says nothing
			f.Class = named
		}
		f.Unique = strings.Contains(command, `"uniqueId"`) || strings.Contains(command, `"uniqueFor"`)
		f.Batch = strings.Contains(command, `"batchId";s:`)
		f.Chain = strings.Contains(command, `"chained";a:`) && !strings.Contains(command, `"chained";a:0:`)
	}
	return f
}

// maxText bounds each text that is shown, in bytes: as JSON one may become six times as long, which no
// limit of a claim counts.
const maxText = 512

// shown is what a claim says of a payload.
func (f Facts) shown() Facts {
	texts := []*string{&f.ID, &f.Job, &f.DisplayName}
	for i := range f.Tags {
		texts = append(texts, &f.Tags[i])
	}
	for _, text := range texts {
		if len(*text) > maxText {
			*text = strings.ToValidUTF8((*text)[:maxText], "")
		}
	}
	return f
}
