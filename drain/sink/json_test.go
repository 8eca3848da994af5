package sink

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func nested(open, closing string, n int) string {
	return strings.Repeat(open, n) + strings.Repeat(closing, n)
}

func TestValidJSONBoundsTheNesting(t *testing.T) {
	t.Parallel()
	wide := "[" + strings.TrimSuffix(strings.Repeat("[{}],", 1000), ",") + "]"
	for _, row := range []struct {
		name, in string
		want     bool
	}{
		{"at the bound", nested("[", "]", MaxJSONDepth), true},
		{"beyond it", nested("[", "]", MaxJSONDepth+1), false},
		{"objects beyond it", nested(`{"a":`, "", MaxJSONDepth+1) + "1" + nested("", "}", MaxJSONDepth+1), false},
		{"mixed beyond it", nested(`[{"a":`, "", MaxJSONDepth) + "1" + nested("", "}]", MaxJSONDepth), false},
		{"wide and shallow", wide, true},
		{"brackets in a string", `"` + nested("[", "", 1000) + `"`, true},
		{"brackets after an escaped quote", `"\"` + nested("[", "", 1000) + `"`, true},
		{"brackets after an escaped backslash", `["\\",` + nested("[", "]", MaxJSONDepth) + `]`, false},
		{"open and never closed", nested("[", "", 1_000_000), false},
	} {
		if got := ValidJSON([]byte(row.in)); got != row.want {
			t.Errorf("%s: got %t, want %t", row.name, got, row.want)
		}
	}
}

func TestValidJSONDemandsUTF8(t *testing.T) {
	t.Parallel()
	if ValidJSON([]byte("\"\xff\"")) {
		t.Error("a string that is not UTF-8 was taken for JSON")
	}
}

// FuzzValidJSON compares with encoding/json, and the compacted form, too.
func FuzzValidJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,2.5e-3,true,false,null,"x\u00e9\n"]}`, "", " ", "[1,]", "01", "-", "1e", `"\x"`, "\"\t\"",
		"{\"a\" : 1 ,\n\"b\\\"\":\" \\\\\"}", nested("[", "]", MaxJSONDepth+1), "\xef\xbb\xbf{}", "[1 2]", `{"a":1,}`, "nul", "\"\xff\"",
	} {
		f.Add([]byte(s))
	}
	for _, seed := range jsonSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		got := ValidJSON(p)
		want := json.Valid(p) && utf8.Valid(p) && depth(p) <= MaxJSONDepth
		if got != want {
			t.Fatalf("%q: got %t, want %t", p, got, want)
		}
		if !got {
			return
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, p); err != nil {
			t.Fatal(err)
		}
		if c := appendCompact(nil, p); !bytes.Equal(c, compact.Bytes()) {
			t.Fatalf("%q: got %q, want %q", p, c, compact.Bytes())
		}
	})
}

// depth is how deep valid JSON nests.
func depth(p []byte) int {
	d := json.NewDecoder(bytes.NewReader(p))
	now, deepest := 0, 0
	for {
		token, err := d.Token()
		if err != nil {
			return deepest
		}
		switch token {
		case json.Delim('['), json.Delim('{'):
			now++
			deepest = max(deepest, now)
		case json.Delim(']'), json.Delim('}'):
			now--
		}
	}
}

func FuzzAppendString(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\/\b\f\n\r\t\x00\x1f\x7f", "<&>\u2028\u2029", "\xff\xe2\x82", "grüße 🎮", "\ufffd",
		"\u009b31m", "\x00\x1f\x7f\x1b", "</script><!--", "ÿâ\u0082", "\u2028\u2029",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted := appendString(nil, s)
		var got string
		if err := json.Unmarshal(quoted, &got); err != nil {
			t.Fatalf("%q became %q: %v", s, quoted, err)
		}
		// Byte by byte, as a string's runes are.
		if want := string([]rune(s)); got != want {
			t.Fatalf("got %q, want %q", got, want)
		}
		if !bytes.Equal(quoted, appendString(nil, []byte(s))) {
			t.Fatalf("%q differs between string and bytes", s)
		}
	})
}
