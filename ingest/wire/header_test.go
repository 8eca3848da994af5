package wire

import (
	"bytes"
	"encoding/json"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestParseMillisTakesPlainDigitsOnly(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{"0": 0, "7": 7, "1763629675100": 1763629675100, "9999999999999": 9999999999999} {
		if got, ok := ParseMillis(text); !ok || got != want {
			t.Errorf("%q: got %d, %v", text, got, ok)
		}
	}
	for _, text := range []string{
		"", " ", "-1", "+1", "00", "01", "1.0", "1e3", "0x1", "1 ", " 1", "1_0", "١", "10000000000000", "1763629675100123", strings.Repeat("9", 40),
	} {
		if got, ok := ParseMillis([]byte(text)); ok {
			t.Errorf("%q: got %d, want no value", text, got)
		}
	}
}

func TestParseDiscards(t *testing.T) {
	t.Parallel()
	got, ok := ParseDiscards([]byte("queue_overflow=23, stale=5 ,made_up=1,stale=0"))
	want := []Discard{{DiscardQueueOverflow, 23}, {DiscardStale, 5}, {DiscardOther, 1}, {DiscardStale, 0}}
	if !ok || !slices.Equal(got, want) {
		t.Errorf("got %v, %v", got, ok)
	}
	for _, header := range []string{
		"", ",", "stale", "stale=", "=5", "stale=5,", "stale=-5", "stale=5.0", "stale=5;x=1", "Stale=5", "sta le=5", "stale=1000000000",
		strings.Repeat("a", 33) + "=1", "stale=5=6", "stale= 5",
	} {
		if got, ok := ParseDiscards([]byte(header)); ok {
			t.Errorf("%q: got %v, want no value", header, got)
		}
	}
}

func TestValidIdempotencyKey(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"k": true, "a key: 7~": true, strings.Repeat("k", 128): true,
		"": false, strings.Repeat("k", 129): false, "a\tb": false, "é": false, "a\x7f": false,
	} {
		if got := ValidIdempotencyKey([]byte(key)); got != want {
			t.Errorf("%q: got %v, want %v", key, got, want)
		}
	}
}

func TestPrefers(t *testing.T) {
	t.Parallel()
	for prefer, want := range map[string]bool{
		"return=minimal": true, "wait=10, Return=Minimal; foo": true, "return=minimal,x": true,
		"": false, "return=representation": false, "xreturn=minimal": false,
	} {
		if got := Prefers([]byte(prefer), "return=minimal"); got != want {
			t.Errorf("%q: got %v, want %v", prefer, got, want)
		}
	}
}

func FuzzParseMillis(f *testing.F) {
	for _, seed := range []string{"0", "1763629675100", "00", "-1", "9999999999999", "10000000000000", "1e3", "", "١٢", strings.Repeat("9", 200), "01", "1\x00", "+1", " 1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := ParseMillis(text)
		want, isNumber := new(big.Int).SetString(text, 10)
		canonical := isNumber && want.Sign() >= 0 && want.String() == text && len(text) <= 13
		if ok != canonical || ok && got != want.Int64() {
			t.Fatalf("%q: got %d, %v", text, got, ok)
		}
	})
}

func FuzzParseDiscards(f *testing.F) {
	for _, seed := range []string{"stale=5", "queue_overflow=23,stale=5", "=", ",", "a=1,,b=2", "x=999999999",
		"STALE=5", ",,,", `a"}=5`, strings.Repeat("x", 33) + "=1", "stale=-5", "stale", " stale=5 ,\tshutdown=1", "stale=1000000000", "a=1=2",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, header []byte) {
		discards, ok := ParseDiscards(header)
		if ok != (len(discards) > 0) {
			t.Fatalf("%q: got %v, %v", header, discards, ok)
		}
		for _, d := range discards {
			if !slices.Contains(DiscardReasons(), d.Reason) || d.Count < 0 || d.Count > 999_999_999 {
				t.Fatalf("%q: got %v", header, d)
			}
		}
	})
}

var keyForm = regexp.MustCompile(`\A[ -~]{1,128}\z`)

func FuzzIdempotencyKey(f *testing.F) {
	for _, seed := range []string{"", " ", "a", strings.Repeat("k", 128), strings.Repeat("k", 129), "a\x00", "é", "\x7f", "}{*?:sw", "ключ"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		if got, want := ValidIdempotencyKey(key), keyForm.Match(key); got != want {
			t.Fatalf("%q: got %v, want %v", key, got, want)
		}
	})
}

func FuzzPrefers(f *testing.F) {
	for _, seed := range []string{"return=minimal", "wait=10, Return=Minimal; foo", "xreturn=minimal", ",;,", "return = minimal", ";;;=,,"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, prefer []byte) {
		got := Prefers(prefer, "return=minimal")
		if got && !bytes.Contains(bytes.ToLower(prefer), []byte("return=minimal")) {
			t.Fatalf("%q asks for nothing", prefer)
		}
		if list := append([]byte("return=minimal,"), prefer...); !Prefers(list, "return=minimal") {
			t.Fatalf("%q: what follows hides the preference", list)
		}
	})
}

func TestAnswerIsTheDocumentedJSON(t *testing.T) {
	t.Parallel()
	a := Answer{Accepted: 126, Evicted: 3, Rejected: 2, Depth: 4096, Capacity: 4096, Results: []Result{
		{5, Drop, ReasonTooLarge}, {77, Drop, ReasonStale},
	}}
	want := `{"accepted":126,"evicted":3,"rejected":2,"depth":4096,"capacity":4096,` +
		`"results":[{"i":5,"result":"drop","reason":"too_large"},{"i":77,"result":"drop","reason":"stale"}]}`
	if got := string(a.Append(nil)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	a = Answer{Accepted: 1, Depth: Absent, Capacity: Absent}
	if got, want := string(a.Append(nil)), `{"accepted":1,"evicted":0,"rejected":0,"results":[]}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestFailureEscapesItsText(t *testing.T) {
	t.Parallel()
	f := Failure{Code: CodeNotReady, Message: "dial \"x\"\r\n\x1b[31m\xff</script>", Scope: "namespace", Unknown: true}
	text := f.Append([]byte("before"))[len("before"):]
	var got map[string]string
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if got["error"] != "not_ready" || got["message"] != "dial \"x\"\r\n\x1b[31m\ufffd</script>" || got["scope"] != "namespace" || got["outcome"] != "unknown" {
		t.Errorf("got %v", got)
	}
	for _, c := range text {
		if c < ' ' {
			t.Errorf("%q holds a control character", text)
		}
	}
	if got, want := string((&Failure{Code: CodeInternal, Message: "m"}).Append(nil)), `{"error":"internal","message":"m"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestStatsIsTheDocumentedJSON(t *testing.T) {
	t.Parallel()
	s := Stats{Namespace: "kart", Partition: "p", Depth: 3, Capacity: 10, Leased: true, OldestAgeMillis: 1500, Accepted: 9, Evicted: 2, Expired: 4}
	want := `{"namespace":"kart","partition":"p","depth":3,"capacity":10,"leased":true,"oldest_age_ms":1500,"since_birth":{"accepted":9,"evicted":2,"expired":4}}`
	if got := string(s.Append(nil)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}
