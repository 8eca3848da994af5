package sink

import (
	"bytes"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// MaxJSONDepth is how deep arrays and objects of a payload may nest for it to
// count as JSON. It stays below what common readers of our lines accept around
// it (serde_json 128, Jackson 1000, encoding/json 10,000) and bounds the
// recursion of the validator.
const MaxJSONDepth = 100

// ValidJSON reports whether p is one JSON text as RFC 8259 has it: the grammar,
// in UTF-8, nested no deeper than MaxJSONDepth.
func ValidJSON(p []byte) bool {
	return !deeperThan(p, MaxJSONDepth) && gjson.ValidBytes(p) && utf8.Valid(p)
}

// deeperThan reports whether the brackets of p nest deeper than limit. It reads
// strings as the validator does, so what it lets through cannot make the
// validator recurse further, whether or not p is JSON.
func deeperThan(p []byte, limit int) bool {
	// Few brackets cannot nest deep; counting a byte is vectorised.
	if bytes.Count(p, []byte("["))+bytes.Count(p, []byte("{")) <= limit {
		return false
	}
	depth := 0
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '"':
			for i++; i < len(p) && p[i] != '"'; i++ {
				if p[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			if depth++; depth > limit {
				return true
			}
		case ']', '}':
			depth--
		}
	}
	return false
}

// appendCompact appends valid JSON without the white space between its tokens.
func appendCompact(dst, p []byte) []byte {
	inString := false
	for i := 0; i < len(p); i++ {
		c := p[i]
		switch {
		case inString && c == '\\':
			dst = append(dst, c)
			i++
			c = p[i]
		case c == '"':
			inString = !inString
		case inString:
		case c == ' ' || c == '\t' || c == '\r' || c == '\n':
			continue
		}
		dst = append(dst, c)
	}
	return dst
}

// appendString appends s as a JSON string. Only what JSON demands is escaped;
// bytes that are not UTF-8 become U+FFFD, so the result is always valid.
func appendString[T string | []byte](dst []byte, s T) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	clean := 0 // s[clean:i] needs no escape
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			// At most four bytes are looked at: the conversion stays on the stack.
			r, n := utf8.DecodeRuneInString(string(s[i:min(i+utf8.UTFMax, len(s))]))
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[clean:i]...), "\ufffd"...)
				clean = i + 1
			}
			i += n
			continue
		}
		if c < ' ' || c == '"' || c == '\\' {
			dst = append(dst, s[clean:i]...)
			switch c {
			case '"', '\\':
				dst = append(dst, '\\', c)
			case '\n':
				dst = append(dst, '\\', 'n')
			case '\r':
				dst = append(dst, '\\', 'r')
			case '\t':
				dst = append(dst, '\\', 't')
			default:
				dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
			}
			clean = i + 1
		}
		i++
	}
	dst = append(dst, s[clean:]...)
	return append(dst, '"')
}
