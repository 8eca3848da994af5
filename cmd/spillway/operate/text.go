package operate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// escape writes what does not print as \uXXXX, and bytes that are no UTF-8 as \xXX:
// control characters and escape sequences, which drive a terminal, and marks of
// direction, which reorder what is read. JSON stays the same value.
func escape(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[size:]
	}
	return b.String()
}

func quote(s string) string { return strconv.QuoteToGraphic(escape(s)) }

// printJSON prints an answer on one line. Control characters are escaped here, too.
func printJSON(w io.Writer, answer any) error {
	raw, ok := answer.(json.RawMessage)
	if !ok {
		var b bytes.Buffer
		e := json.NewEncoder(&b)
		e.SetEscapeHTML(false)
		if err := e.Encode(answer); err != nil {
			return err
		}
		raw = b.Bytes()
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return err
	}
	// A payload may be JSON with bytes that are no UTF-8, and \xXX would be no JSON:
	// as runes they are U+FFFD.
	_, err := fmt.Fprintln(w, escape(string([]rune(b.String()))))
	return err
}

// printParts prints some keys of an answer.
func printParts(w io.Writer, answer json.RawMessage, keys ...string) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(answer, &all); err != nil {
		return err
	}
	maps.DeleteFunc(all, func(key string, _ json.RawMessage) bool { return !slices.Contains(keys, key) })
	return printJSON(w, all)
}

func digits[N int | int64](n N) string { return strconv.FormatInt(int64(n), 10) }

// digitsOr is digits of a number that may be missing.
func digitsOr(n *int64, missing string) string {
	if n == nil {
		return missing
	}
	return digits(*n)
}

func rate(perSecond float64) string { return strconv.FormatFloat(perSecond, 'f', 1, 64) }

// clock is a time of the service in UTC, to the second; "-" if it is not known.
func clock(ms int64) string {
	if ms == 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05Z")
}

// table prints columns two spaces apart. A column whose title begins with > is
// aligned to the right. The last column is not padded.
type table struct {
	titles []string
	rows   [][]string
}

func newTable(titles ...string) *table { return &table{titles: titles} }

// details is a table of names and values, of which the first is the title. Empty values are
// left out.
func details(namesAndValues ...string) *table {
	t := newTable(namesAndValues[0], escape(namesAndValues[1]))
	for row := range slices.Chunk(namesAndValues[2:], 2) {
		if row[1] != "" {
			t.add(row...)
		}
	}
	return t
}

// add escapes the cells of one row.
func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = escape(cells[i])
	}
	t.rows = append(t.rows, cells)
}

func (t *table) lines() []string {
	titles := make([]string, len(t.titles))
	right := make([]bool, len(t.titles))
	width := make([]int, len(t.titles))
	for i, title := range t.titles {
		titles[i], right[i] = strings.CutPrefix(title, ">")
	}
	all := append([][]string{titles}, t.rows...)
	for _, row := range all {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	lines := make([]string, len(all))
	for n, row := range all {
		var b strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				b.WriteString("  ")
			}
			if right[i] {
				b.WriteString(pad)
			}
			b.WriteString(cell)
			if !right[i] {
				b.WriteString(pad)
			}
		}
		lines[n] = strings.TrimRight(b.String(), " ")
	}
	return lines
}

func (t *table) print(w io.Writer) error {
	_, err := io.WriteString(w, strings.Join(t.lines(), "\n")+"\n")
	return err
}
