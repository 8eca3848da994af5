package mask

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestMaskHidesValuesByTheirKeysAtAnyDepth(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"password":"a","x":1}`:                   `{"password":"***","x":1}`,
		`{"PassWord":{"deep":["a"]},"x":1e400}`:    `{"PassWord":"***","x":1e400}`,
		`[{"user":{"Email":"a@b","id":7}},null]`:   `[{"user":{"Email":"***","id":7}},null]`,
		`{"token":"a","token":"b"}`:                `{"token":"***","token":"***"}`,
		`{"b":1,"a":{"api_key":[]},"c":[],"d":{}}`: `{"b":1,"a":{"api_key":"***"},"c":[],"d":{}}`,
		`{"\u0070assword":"escaped"}`:              `{"password":"***"}`,
		`"password"`:                               `"password"`,
		`12345678901234567890`:                     `12345678901234567890`,
		`{"note":"my password is a"}`:              `{"note":"my password is a"}`,
	} {
		got, err := JSON([]byte(text), DefaultFields())
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, %v, want %s", text, got, err, want)
		}
	}
	if got, _ := JSON([]byte(`{"password":"a"}`), nil); string(got) != `{"password":"a"}` {
		t.Errorf("without fields: %s", got)
	}
}

// An error may quote what a payload hides, and be cut within it.
func TestQuoteHidesAValueThatIsCut(t *testing.T) {
	t.Parallel()
	payload := []byte(`{"email":"ada@example.org","n":7}`)
	for text, want := range map[string]string{
		"no such user ada@example.org, 404": "no such user ***, 404",
		"no such user ada@exam":             "no such user ***",
		"no such user ad":                   "no such user ad",
		"no email: ada":                     "no email: ***",
	} {
		if got := Quote(text, payload, []string{"email"}); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// FuzzMask checks that the value of a masked key never gets through, and that the rest is JSON.
func FuzzMask(f *testing.F) {
	for _, seed := range []string{`{"a":%s}`, `[%s,{}]`, `{"password":"x","b":%s}`, `[[[[%s]]]]`, `{"":%s}`, "{\"\xff\":%s}", `{"\ud800":%s}`, strings.Repeat("[", 5000) + "%s" + strings.Repeat("]", 5000)} {
		f.Add(seed, "password")
	}
	f.Fuzz(func(t *testing.T, form, key string) {
		name, _ := json.Marshal(key)
		text := strings.Replace(form, "%s", `{`+string(name)+`:"canary-value"}`, 1)
		if !json.Valid([]byte(text)) || strings.Contains(strings.Replace(text, "canary-value", "", 1), "canary-value") {
			return
		}
		_ = json.Unmarshal(name, &key) // with the replacement characters that JSON puts
		got, err := JSON([]byte(text), []string{strings.ToUpper(key), key})
		if err != nil || !json.Valid(got) {
			t.Fatalf("%s: %v, %s", text, err, got)
		}
		if strings.Contains(text, `"canary-value"`) && strings.Contains(string(got), "canary-value") {
			t.Fatalf("%s is shown as %s", text, got)
		}
	})
}
