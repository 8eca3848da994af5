package operate

import (
	"io"
	"strings"
	"unicode/utf8"
)

// table prints columns two spaces apart. A column whose title begins with > is
// aligned to the right. The last column is not padded.
type table struct {
	titles []string
	rows   [][]string
}

func newTable(titles ...string) *table { return &table{titles: titles} }

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
