package operate

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strconv"
	"testing"
)

// Whatever an id, an error or a payload holds, what is printed drives no terminal,
// and JSON keeps its value.
func FuzzWhatIsPrintedIsHarmless(f *testing.F) {
	for _, seed := range []string{"", "kart-7", "\x1b[2J", "\u202egnp", "\xff\xfe", `{"a":"` + "\u2066\x7f" + `"}`, "[\"\U000e0041\xc3\"]", `"\ud800"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, r := range escape(text) {
			if !strconv.IsPrint(r) {
				t.Fatalf("%q: got %q", text, escape(text))
			}
		}
		var before, after any
		if json.Unmarshal([]byte(text), &before) != nil {
			return
		}
		var out bytes.Buffer
		if err := printJSON(&out, json.RawMessage(text)); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(out.Bytes(), &after); err != nil || !reflect.DeepEqual(before, after) {
			t.Fatalf("%q: %v, got %q", text, err, out.String())
		}
	})
}
