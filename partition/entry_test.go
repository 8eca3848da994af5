package partition

import (
	"bytes"
	"errors"
	"math"
	"testing"
)

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
