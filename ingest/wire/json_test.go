package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

func TestValidJSONChecksGrammarAndDepthOnly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{}`: true, ` [1 , 2] `: true, `null`: true, `"x"`: true, `1e400`: true, `-0`: true,
		`{"a":1,"a":2}`: true, `"\ud800"`: true, "\"\xff\"": true, `"\\"`: true, `["]",{"a":"}\""}]`: true,
		nested(MaxDepth): true, nested(MaxDepth + 1): false,
		strings.Repeat(`{"a":`, MaxDepth) + "1" + strings.Repeat("}", MaxDepth): true,
		`"` + strings.Repeat("[", 2*MaxDepth) + `"`:                             true,

		``: false, ` `: false, `NaN`: false, `nan`: false, `Infinity`: false, `01`: false, `1.`: false, `+1`: false,
		`{"a":1}x`: false, `[1,]`: false, `{"a"}`: false, `{a:1}`: false, `"a`: false, "\"\n\"": false, "\"\x00\"": false,
		"\ufeff{}": false, `[1] [2]`: false, `]`: false, `{"a":1`: false, `"\x"`: false, `"\u12"`: false, `'a'`: false, `/**/1`: false,
	} {
		if got := ValidJSON([]byte(text)); got != want {
			t.Errorf("%.60q: got %v, want %v", text, got, want)
		}
	}
}

func TestDeepNestingIsRejectedWithAConstantStack(t *testing.T) {
	// Not parallel: the limit is the process's.
	defer debug.SetMaxStack(debug.SetMaxStack(256 << 10))
	for _, text := range []string{
		strings.Repeat("[", 1<<20), strings.Repeat(`{"a":`, 1<<18), nested(100_000),
		`{"batch":` + nested(100_000) + `}`,
	} {
		if ValidJSON([]byte(text)) {
			t.Errorf("%.20q… of %d bytes is taken as valid", text, len(text))
		}
	}
	if !ValidJSON([]byte(nested(MaxDepth))) {
		t.Error("the deepest legal value is rejected")
	}
}

func TestParseBatchFindsTheForm(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body   string
		form   Form
		sentAt int64
		items  []string
	}{
		{`[]`, Array, 0, nil},
		{` [ {"a":[1]} , "x,y" ,null, 1e400,[ ] ] `, Array, 0, []string{`{"a":[1]}`, `"x,y"`, `null`, `1e400`, `[ ]`}},
		{`{"batch":[]}`, Envelope, 0, nil},
		{`{"sent_at":1763629675100,"x":{"batch":1},"batch":[ 1 ,{"data":2}]}`, Envelope, 1763629675100, []string{`1`, `{"data":2}`}},
		{`{"\u0062atch":[true]}`, Envelope, 0, []string{`true`}},
		{`{"batch":{}}`, Single, 0, nil},
		{`{"sent_at":"x","batch":"y"}`, Single, 0, nil},
		{`{}`, Single, 0, nil},
		{`"batch"`, Single, 0, nil},
		{`null`, Single, 0, nil},
	} {
		b, err := ParseBatch([]byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", c.body, err)
			continue
		}
		var items []string
		if b.Form != Single {
			for raw := range b.Items() {
				items = append(items, string(raw))
			}
		}
		if b.Form != c.form || b.SentAt != c.sentAt || b.HasSentAt != (c.sentAt != 0) || !slices.Equal(items, c.items) {
			t.Errorf("%s: got %+v with %q", c.body, b, items)
		}
	}
}

func TestParseBatchRejectsMalformedTimesAndJSON(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]error{
		`{"batch":[],"sent_at":"1763629675100"}`:  ErrSentAt,
		`{"batch":[],"sent_at":null}`:             ErrSentAt,
		`{"batch":[],"sent_at":1.5}`:              ErrSentAt,
		`{"batch":[],"sent_at":-1}`:               ErrSentAt,
		`{"batch":[],"sent_at":1763629675100123}`: ErrSentAt,
		`{"batch":[1`:                             ErrJSON,
		`[NaN]`:                                   ErrJSON,
		`{"batch":` + nested(MaxDepth) + `}`:      ErrJSON,
		"{\"batch\":[]}\n{\"batch\":[]}":          ErrJSON,
	} {
		if _, err := ParseBatch([]byte(body)); !errors.Is(err, want) {
			t.Errorf("%.60s: got %v, want %v", body, err, want)
		}
	}
}

func TestParseItemReadsKnownKeysAndNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		raw  string
		want Item
		why  Reason
	}{
		{raw: `{"data":1}`, want: Item{Data: []byte("1")}},
		{raw: `{"data":null}`, want: Item{Data: []byte("null")}},
		{
			raw:  ` {"x":[{"data":0}],"partition":"p.1","id":"a b","ts":1763629675100,"data":{"k":"v"} }`,
			want: Item{Partition: "p.1", ID: []byte("a b"), HasID: true, TS: 1763629675100, HasTS: true, Data: []byte(`{"k":"v"}`)},
		},
		{raw: `{"partition":"\u0061","id":"\"","data":"\n\"[" }`, want: Item{Partition: "a", ID: []byte(`"`), HasID: true, Data: []byte(`"\n\"["`)}},
		{raw: `{"data":1,"data":2}`, want: Item{Data: []byte("2")}},
		{raw: `{"id":"","ts":0,"data":1}`, want: Item{ID: []byte{}, HasID: true, HasTS: true, Data: []byte("1")}},
		{raw: `{"partition":7,"data":1}`, want: Item{Data: []byte("1")}},

		{raw: `1`, why: ReasonBadItem},
		{raw: `[]`, why: ReasonBadItem},
		{raw: `"data"`, why: ReasonBadItem},
		{raw: `{}`, why: ReasonBadItem},
		{raw: `{"Data":1}`, why: ReasonBadItem},
		{raw: `{"id":7,"data":1}`, why: ReasonBadID},
		{raw: `{"id":null,"data":1}`, why: ReasonBadID},
		{raw: `{"ts":"1763629675100","data":1}`, why: ReasonBadTS},
		{raw: `{"ts":1e3,"data":1}`, why: ReasonBadTS},
		{raw: `{"ts":1.0,"data":1}`, why: ReasonBadTS},
		{raw: `{"ts":null,"data":1}`, why: ReasonBadTS},
		{raw: `{"ts":true,"data":1}`, why: ReasonBadTS},
	} {
		got, why := ParseItem([]byte(c.raw))
		if why != c.why || got.Partition != c.want.Partition || got.TS != c.want.TS || got.HasTS != c.want.HasTS ||
			got.HasID != c.want.HasID || !bytes.Equal(got.ID, c.want.ID) || !bytes.Equal(got.Data, c.want.Data) {
			t.Errorf("%s: got %+v, %q", c.raw, got, why)
		}
	}
}

func FuzzParseBatch(f *testing.F) {
	for _, seed := range []string{
		`[]`, `[1,"a",null,{"data":1}]`, `{"batch":[{"id":"a","ts":1,"data":{}}],"sent_at":1763629675100}`,
		`{"batch":1}`, `"x"`, `{"a":"\"[{"}`, nested(MaxDepth), nested(MaxDepth + 1), "\ufeff[]", `[1e400,NaN]`, `{"batch":[],"batch":2}`,
	} {
		f.Add([]byte(seed))
	}
	for _, seed := range batchSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		b, err := ParseBatch(body)
		if !bytes.Equal(body, before) {
			t.Fatal("the body was changed")
		}
		if err != nil {
			return
		}
		if !json.Valid(body) {
			t.Fatalf("%q is not JSON", body)
		}
		if b.Form == Single {
			return
		}
		var want []json.RawMessage
		if b.Form == Array {
			if err := json.Unmarshal(body, &want); err != nil {
				t.Fatal(err)
			}
		}
		n := 0
		for raw := range b.Items() {
			if !json.Valid(raw) {
				t.Fatalf("item %d %q of %q is not JSON", n, raw, body)
			}
			if b.Form == Array && !bytes.Equal(raw, want[n]) {
				t.Fatalf("item %d: got %q, want %q", n, raw, want[n])
			}
			n++
		}
		if b.Form == Array && n != len(want) {
			t.Fatalf("got %d items, want %d", n, len(want))
		}
	})
}

func FuzzParseItem(f *testing.F) {
	for _, seed := range []string{
		`{"data":1}`, `{"partition":"p","id":"i","ts":1763629675100,"data":{"a":[1,2]}}`, `{"id":1,"data":1}`,
		`{"ts":"1","data":1}`, `[]`, `{}`, `{"\u0064ata":"\ud800"}`, `{"data":1,"data":2}`,
		`{"partition":"p","id":"i","ts":1763629675100,"data":{"a":[1,2]}}`, `{"id":"a\u0000b","data":1}`, `{"data":` + nested(200) + `}`,
		`{"\u0064ata":1,"\u0069d":"a"}`, `{"ts":1e12,"data":1}`, `{"partition":null,"id":null,"ts":null,"data":null}`,
		`{"partition":"\ud800","data":"\udfff"}`, `{"data":1,"data":2,"id":"a","id":7}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if !ValidJSON(raw) {
			return
		}
		item, why := ParseItem(raw)
		if why != "" {
			return
		}
		if !json.Valid(item.Data) || !bytes.Contains(raw, item.Data) {
			t.Fatalf("data %q of %q", item.Data, raw)
		}
		if item.HasTS && (item.TS < 0 || item.TS > 9_999_999_999_999) {
			t.Fatalf("ts %d of %q", item.TS, raw)
		}
	})
}

func collectLines(body []byte) (lines []string, numbers []int) {
	split := SplitLines(body)
	for line, ok := split.Next(); ok; line, ok = split.Next() {
		lines = append(lines, string(line))
		numbers = append(numbers, split.Number)
	}
	return lines, numbers
}

func TestLinesAreSplitOnLineFeedAndOtherwiseUntouched(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		body    string
		lines   []string
		numbers []int
	}{
		{"", nil, nil},
		{"\n\n \t\r\n", nil, nil},
		{"a", []string{"a"}, []int{1}},
		{"a\n", []string{"a"}, []int{1}},
		{"a\nb", []string{"a", "b"}, []int{1, 2}},
		{"\n\n a \n\r\n\tb\r\n", []string{" a ", "\tb\r"}, []int{3, 5}},
		{"\x00\n\xff\xfe\n\u2028", []string{"\x00", "\xff\xfe", "\u2028"}, []int{1, 2, 3}},
	} {
		lines, numbers := collectLines([]byte(c.body))
		if !slices.Equal(lines, c.lines) || !slices.Equal(numbers, c.numbers) {
			t.Errorf("%q: got %q at %v, want %q at %v", c.body, lines, numbers, c.lines, c.numbers)
		}
	}
}

func TestAllocsOfSplittingLinesAreNone(t *testing.T) {
	body := bytes.Repeat([]byte("{\"score\":7}\n\n"), 1000)
	total := 0
	allocs := testing.AllocsPerRun(100, func() {
		lines := SplitLines(body)
		for line, ok := lines.Next(); ok; line, ok = lines.Next() {
			total += len(line)
		}
	})
	if allocs != 0 {
		t.Errorf("got %v allocations a body, want 0", allocs)
	}
}

func FuzzSplitLines(f *testing.F) {
	for _, seed := range []string{"", "\n", "a\nb\n", "a\r\n\r\nb", " \t\n{\"a\":1}\n\n", "\x00\n\xff",
		"\n\r\n \t\n", "a\rb", "{\"a\":1}\r\n{\"b\":2}\r\n", "a\nb", "\x00\n\x00", "a\u2028b\u0085c\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var want []string
		for line := range strings.SplitSeq(string(body), "\n") {
			if strings.Trim(line, " \t\r") != "" {
				want = append(want, line)
			}
		}
		if got, _ := collectLines(body); !slices.Equal(got, want) {
			t.Fatalf("%q: got %q, want %q", body, got, want)
		}
	})
}

// Values is what gjson's ForEach yields of arrays and objects, only faster.
func TestValuesOfArraysAndObjectsAreThoseThatWereSent(t *testing.T) {
	t.Parallel()
	for _, text := range valuesSeeds {
		checkValues(t, text)
	}
}

var valuesSeeds = []string{
	`[]`, `{}`, `[ ]`, "{\n}", `[1]`, `[1 , -2.5e3,true , null,"",[],{}]`, "[\t\"a\\\"]\" ,\"\\\\\" ]", `[[1,[2,"]"]],{"a":{"b":"}"}}]`,
	`{"a":1,"b" : [1,2] , "c":{"d":"e,f"},"a":2}`, `{"":"","\u0061":"x","\"":{"q":"\\\""}}`, `{"a":"b"}`, `7`, `"text"`, `null`, "[1\r\n,\r\n2]",
}

func FuzzValues(f *testing.F) {
	for _, text := range valuesSeeds {
		f.Add(text)
	}
	f.Fuzz(checkValues)
}

func checkValues(t *testing.T, text string) {
	text = strings.TrimSpace(text)
	if !ValidJSON([]byte(text)) {
		return
	}
	type pair struct{ key, value string }
	var got, want []pair
	for key, value := range Values(text) {
		got = append(got, pair{key, value})
	}
	if root := gjson.Parse(text); root.IsArray() || root.IsObject() {
		root.ForEach(func(key, value gjson.Result) bool {
			if root.IsArray() {
				key.Raw = ""
			} else if Text(key.Raw) != key.Str {
				t.Errorf("%s: got %q, want %q", key.Raw, Text(key.Raw), key.Str)
			}
			want = append(want, pair{key.Raw, value.Raw})
			return true
		})
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q: got %q, want %q", text, got, want)
	}
}
