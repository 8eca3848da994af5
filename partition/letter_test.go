package partition

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestALetterGivesBackItsEntry(t *testing.T) {
	t.Parallel()
	const head, tail = `{"namespace":"default","partition":"kart","seq":1763629675123456,"ts":1763629675100,"id":"order\"81","batch":"b","attempt":3,`, `,"reason":"rejected","error":"say \"no\"\n","detail":"<b>","dead_at":1763629675200}` + "\n"
	for field, payload := range map[string]string{
		`"data":{"score": 7}`:               `{"score": 7}`,
		`"data": [1, 2] `:                   `[1, 2]`,
		`"data":null`:                       `null`,
		`"data":"\ud800 <&>"`:               `"\ud800 <&>"`,
		`"data":1e400`:                      `1e400`,
		`"text":""`:                         ``,
		`"text":"a\"b\n\u0000<&>\u2028"`:    "a\"b\n\x00<&>\u2028",
		`"base64":"/wA="`:                   "\xff\x00",
		`"base64":"eyJhIjoi/yJ9"`:           "{\"a\":\"\xff\"}",
		`"data":{"partition":"x","text":1}`: `{"partition":"x","text":1}`,
	} {
		raw := []byte(head + field + tail)
		l := parseLetter(2, raw)
		want := Letter{
			ID: letterID(raw), Shard: 2, Partition: "kart", Seq: 1763629675123456, EntryID: `order"81`, Occurred: 1763629675100,
			DeadAt: 1763629675200, Reason: "rejected", Error: "say \"no\"\n", Detail: "<b>", Attempt: 3,
		}
		got := l
		got.Payload, got.Raw = nil, nil
		if string(l.Payload) != payload || string(l.Raw) != string(raw) || got.ID != want.ID || got.Partition != want.Partition ||
			got.Seq != want.Seq || got.EntryID != want.EntryID || got.Occurred != want.Occurred || got.DeadAt != want.DeadAt ||
			got.Reason != want.Reason || got.Error != want.Error || got.Detail != want.Detail || got.Attempt != want.Attempt || got.Shard != 2 {
			t.Errorf("%s: got %+v with the payload %q", field, got, l.Payload)
		}
	}
}

func TestWhatIsNoLetterIsUnreadable(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"", "x", "null", "[]", `"text"`, "{}", `{"partition":"kart"}`, `{"partition":"kart","data":}`,
		`{"partition":"no such/name","data":1}`, `{"partition":"kart","seq":1.5,"data":1}`, `{"partition":"kart","base64":"!"}`,
		`{"partition":"kart","id":"a b","data":1}`, `{"partition":"kart","data":1} {}`, strings.Repeat("[", 100_000),
	} {
		l := parseLetter(0, []byte(raw))
		if l.Reason != ReasonUnreadable || l.Partition != "" || l.Payload != nil || l.ID != letterID([]byte(raw)) || len(l.ID) != 16 {
			t.Errorf("%.40q: got %+v", raw, l)
		}
	}
}

func TestALetterGetsTheTimeOfItsCommit(t *testing.T) {
	t.Parallel()
	letter := []byte(`{"partition":"kart","data":{"a":{}}}` + "\n")
	for stored, want := range map[string]string{
		string(letter): `{"partition":"kart","data":{"a":{}},"dead_at":1763629675200}` + "\n",
		"no letter":    "no letter",
		"":             "",
	} {
		if got := stampLetter([]byte(stored), 1763629675200); string(got) != want {
			t.Errorf("%q: got %q, want %q", stored, got, want)
		}
	}
	roomy := append(make([]byte, 0, 1000), letter...)
	if stampLetter(roomy, 1); string(roomy[:len(letter)]) != string(letter) {
		t.Errorf("the caller's letter was changed to %q", roomy)
	}
}

// A letter in a long list takes 1 ms and more, so one goes alone before several go at once.
func TestDiscardTakesAsManyLettersAsTwoMillisecondsAllow(t *testing.T) {
	t.Parallel()
	for _, each := range []time.Duration{10 * time.Microsecond, 300 * time.Microsecond, time.Millisecond, 100 * time.Millisecond} {
		n := 1
		for range 20 {
			took := time.Duration(n) * each
			if took > discardTime && n > 1 {
				t.Errorf("%d letters of %v in one call", n, each)
			}
			n = nextDiscard(n, took)
		}
		if each == 10*time.Microsecond && n != maxCallLeases {
			t.Errorf("%d letters in a call while each takes %v, want %d", n, each, maxCallLeases)
		}
	}
	if n := nextDiscard(64, 10*time.Millisecond); n != 16 {
		t.Errorf("%d letters after a call of 64 that took 10 ms", n)
	}
}

func TestEntryReadsAsWritten(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		occurred    int64
		id, payload string
		want        string
	}{
		{1763629675100, "", `{"score":7}`, `1763629675100 {"score":7}`},
		{1763629675100, "order-81", `{"score":7}`, `1763629675100#order-81 {"score":7}`},
		{1763629675100, "", "", "1763629675100 "},
		{1763629675100, "#", " #x ", "1763629675100##  #x "},
		{0, "", "early", "1000000000000 early"},
		{-5, "", "before", "1000000000000 before"},
		{MaxTime + 1, "a", "late", "9999999999999#a late"},
	} {
		got := AppendEntry([]byte("before,"), row.occurred, []byte(row.id), []byte(row.payload))
		if string(got) != "before,"+row.want {
			t.Errorf("got %q, want %q", got, row.want)
		}
	}
}

func TestMalformedEntriesAreRejected(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"", "1", "1763629675100", "176362967510 x", "17636296751000 x", "1763629675100x", "1763629675100\x00x", "1763629675100#",
		"1763629675100#id", "1763629675100# x", "1763629675100#a\x01 x", "1763629675100#\xc3\xa9 x", "0763629675100 x", "+763629675100 x",
		"-763629675100 x", " 763629675100 x", "176362967510a x", "garbage",
		"1763629675100#" + string(bytes.Repeat([]byte("i"), MaxIDLen+1)) + " x",
	} {
		if e, err := ParseEntry([]byte(raw)); !errors.Is(err, ErrMalformedEntry) {
			t.Errorf("%q: got %+v %v, want ErrMalformedEntry", raw, e, err)
		}
	}
}

func FuzzParseEntry(f *testing.F) {
	f.Add([]byte(`1763629675100 {"score":7}`), int64(1763629675100), []byte("id"), []byte("x"))
	f.Add([]byte(`1763629675100#order-81 {"score":7}`), int64(-1), []byte(""), []byte(""))
	f.Add([]byte("9999999999999## "), int64(1<<62), []byte("a b"), []byte("\x00"))
	f.Add([]byte("9999999999999#id x"), int64(10_000_000_000_000), bytes.Repeat([]byte("x"), 64), []byte("1763629675100 x"))
	f.Add([]byte("0763629675100 x"), int64(math.MaxInt64), []byte("~"), []byte(""))
	f.Add([]byte("1763629675100# x"), int64(-1), []byte("#"), []byte("#"))
	f.Add([]byte(`1763629675100 {"score":7}`), int64(1763629675100), []byte(""), []byte(""))
	f.Add([]byte("1763629675100$x"), int64(0), []byte(""), []byte(" "))
	f.Add([]byte("176362967510"), int64(math.MinInt64), []byte("a b"), []byte("\x00"))
	f.Add([]byte("1763629675100#order-81 {}"), int64(1), []byte("id"), []byte("x"))
	f.Fuzz(func(t *testing.T, raw []byte, occurred int64, id, payload []byte) {
		// What parses is what these parts would be written as.
		if e, err := ParseEntry(raw); err == nil {
			if again := AppendEntry(nil, e.Occurred, e.ID, e.Payload); !bytes.Equal(again, raw) {
				t.Errorf("%q reads as %+v, which writes as %q", raw, e, again)
			}
		}
		if len(id) > 0 && !ValidID(id) {
			return
		}
		written := AppendEntry(nil, occurred, id, payload)
		e, err := ParseEntry(written)
		if err != nil || e.Occurred != min(max(occurred, MinTime), MaxTime) || !bytes.Equal(e.ID, id) || !bytes.Equal(e.Payload, payload) {
			t.Errorf("%d %q %q reads as %+v (%v)", occurred, id, payload, e, err)
		}
	})
}
