package operate

import (
	"cmp"
	"encoding/json"
	"os"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/cmd/spillway/human"
)

// names are what texts name beside parts of an answer.
type names map[string]string

// table has a line for each part of a list, in columns that begin with their titles.
func (n names) table(columns string, list []gjson.Result) *table {
	t := newTable()
	var texts []string
	for column := range strings.SplitSeq(columns, "|") {
		title, text, _ := strings.Cut(column, " $")
		t.titles, texts = append(t.titles, title), append(texts, "$"+text)
	}
	for _, part := range list {
		var cells []string
		for _, text := range texts {
			cells = append(cells, n.fill(text, part, "-", " "))
		}
		t.add(cells...)
	}
	return t
}

// fill puts parts of the answer into a text, and names of the path. A list has its parts apart.
func (n names) fill(text string, answer gjson.Result, missing, apart string) string {
	return os.Expand(text, func(name string) string {
		missing := missing
		name, other, or := strings.Cut(name, " or ")
		name, noun, counts := strings.Cut(name, " ")
		value := answer.Get(name)
		said := value.String()
		if or {
			missing = other
		}
		switch {
		case name == "of":
			said = scoped(answer, n)
		case name == "explained":
			return explained(answer)
		case derived[name] != nil:
			said = derived[name](answer)
		case or && value.Raw == "0":
			said = ""
		case strings.HasPrefix(name, "rates."), strings.HasSuffix(name, "_per_s"), strings.Contains(name, "+"):
			said = sum(answer, name)
		case !value.Exists() && n[name] != "":
			said = n[name]
		case counts:
			said = some(value.Int(), noun)
		case value.Type == gjson.Null:
		case strings.HasSuffix(name, "age_ms"):
			said = human.Since(value.Int())
		case value.IsObject():
			said = compact(json.RawMessage(value.Raw))
		case strings.HasSuffix(name, "_ms"):
			said = clock(value.Int())
		case value.IsArray():
			var parts []string
			for _, part := range value.Array() {
				parts = append(parts, escape(part.String()))
			}
			return strings.Join(parts, apart)
		}
		return cmp.Or(escape(said), missing)
	})
}

// sum adds figures of an answer, such as ledger.dead+ledger.lost. Of rates that are not known there is none.
func sum(answer gjson.Result, figures string) string {
	all := 0.0
	for name := range strings.SplitSeq(figures, "+") {
		figure := answer.Get(name)
		if !figure.Exists() && strings.HasPrefix(name, "rates.") {
			return "?"
		}
		all += figure.Float()
	}
	if strings.HasPrefix(figures, "ledger.") {
		return digits(int64(all))
	}
	return rate(all)
}

// some is 1 entry, or 2 entries.
func some(n int64, of string) string {
	many := of + "s"
	if stem, ends := strings.CutSuffix(of, "y"); ends {
		many = stem + "ies"
	}
	return human.Some(n, of, many)
}
