package spillway

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// appendItem appends an entry as the mixed route takes it.
func appendItem(dst []byte, e *entry) []byte {
	dst = append(append(dst, `{"partition":"`...), e.part.name...)
	dst = strconv.AppendInt(append(dst, `","ts":`...), e.occurred, 10)
	if e.id != "" {
		dst = append(dst, `,"id":"`...)
		for i := range len(e.id) {
			if e.id[i] == '"' || e.id[i] == '\\' {
				dst = append(dst, '\\')
			}
			dst = append(dst, e.id[i])
		}
		dst = append(dst, '"')
	}
	dst = append(append(dst, `,"data":`...), e.payload...)
	return append(dst, '}')
}

// appendItems appends a JSON array of entries.
func appendItems(dst []byte, list []*entry) []byte {
	dst = append(dst, '[')
	for i, e := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendItem(dst, e)
	}
	return append(dst, ']')
}

// maxDepth is how deep a payload in a shared body may nest. The service takes 512
// levels, and the array and the item are two of them.
const maxDepth = 510

// nextRun is how many of the first entries share a body: those that are JSON which the
// service parses, or one that is not.
func nextRun(list []*entry) (n int, isJSON bool) {
	for n < len(list) && json.Valid(list[n].payload) && !tooDeep(list[n].payload) {
		n++
	}
	if n == 0 {
		return 1, false
	}
	return n, true
}

// tooDeep reports whether JSON nests deeper than maxDepth.
func tooDeep(text []byte) bool {
	if bytes.Count(text, []byte{'['})+bytes.Count(text, []byte{'{'}) <= maxDepth {
		return false
	}
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '[' || c == '{':
			if depth++; depth > maxDepth {
				return true
			}
		case c == ']' || c == '}':
			depth--
		}
	}
	return false
}
