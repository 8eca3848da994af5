package wire

import "bytes"

// Lines iterates over the lines of an NDJSON body. It splits at '\n' and does not
// parse lines. It skips blank lines (only spaces, tabs and '\r') and does not change
// the others. It allocates nothing.
type Lines struct {
	rest []byte
	// Number of the line last returned, from 1, blank lines included, as editors
	// count.
	Number int
}

// SplitLines starts at the first line of body.
func SplitLines(body []byte) Lines { return Lines{rest: body} }

// Next returns the next line that is not blank, without its '\n'; ok is false
// at the end.
func (l *Lines) Next() (line []byte, ok bool) {
	for len(l.rest) > 0 {
		if end := bytes.IndexByte(l.rest, '\n'); end >= 0 {
			line, l.rest = l.rest[:end:end], l.rest[end+1:]
		} else {
			line, l.rest = l.rest, nil
		}
		l.Number++
		if !blank(line) {
			return line, true
		}
	}
	return nil, false
}

func blank(line []byte) bool {
	for _, c := range line {
		if c != ' ' && c != '\t' && c != '\r' {
			return false
		}
	}
	return true
}
