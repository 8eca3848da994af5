package job

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestAnErrorIsOneLineOfPrintableText(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                "",
		" \n\t":                           "",
		"connection\nrefused\x00\x1b[31m": "connection refused  [31m",
		"a\u202eb\u2066c\u200fd\u2028":    "a b c d",
		"\xff\xfeno":                      "\ufffd\ufffdno",
		strings.Repeat("x", 1<<20):        strings.Repeat("x", MaxError),
		strings.Repeat("x", 1023) + "é":   strings.Repeat("x", 1023),
		strings.Repeat("\xff", 1<<20):     strings.Repeat("\ufffd", MaxError/3),
		strings.Repeat("\n", 1<<20) + "x": "",
	} {
		if got := keptText(text, MaxError); got != want {
			t.Errorf("%.40q: got %.60q, want %.60q", text, got, want)
		}
	}
}

func TestWhatSomethingElseWroteAsErrorsIsLeftOut(t *testing.T) {
	t.Parallel()
	got := failures([]byte("2 1763600000001 no \x1b disk\nx\n\n1 5\n9999999999 5 x\n1 1763600000000 no"))
	if want := []Failure{{2, 1763600000001, "no   disk"}, {1, 1763600000000, "no"}}; !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	for _, r := range []struct {
		expires int64
		tries   int
		caller  string
		m       Message
		want    string
	}{
		{0, 1, "", Message{Payload: []byte("x")}, "0000000000000 1 x"},
		{1_790_000_000_123, 65535, "", Message{}, "1790000000123 65535 "},
		{maxExpiry, 3, "order-1", Message{Payload: []byte("#1,@ ")}, "9999999999999 3@order-1 #1,@ "},
		{7, 3, "", Message{Payload: []byte(" y"), Attributes: []byte(`{"a":"b"}`)}, `0000000000007 3#9,{"a":"b"} y`},
		{7, 3, "a", Message{Attributes: []byte(`{}`)}, `0000000000007 3@a#2,{}`},
	} {
		record := appendRecord(nil, r.expires, r.tries, r.caller, r.m)
		if string(record) != r.want {
			t.Errorf("got %q, want %q", record, r.want)
		}
		if len(record) > recordSize(r.caller, r.m) {
			t.Errorf("%q is larger than %d", record, recordSize(r.caller, r.m))
		}
		var j Job
		if !parseRecord(record, &j) || j.Expires != r.expires || j.Tries != r.tries || j.CallerID != r.caller ||
			!bytes.Equal(j.Payload, r.m.Payload) || !bytes.Equal(j.Attributes, r.m.Attributes) {
			t.Errorf("%q is read as %+v", record, j)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(`0000000000007 3@a#2,{}x`))
	f.Add([]byte("0000000000000 1 x"))
	f.Add([]byte("0000000000000 1#999999999999999999,"))
	f.Fuzz(func(t *testing.T, record []byte) {
		var j Job
		if !parseRecord(record, &j) {
			return
		}
		var again Job
		if !parseRecord(appendRecord(nil, j.Expires, j.Tries, j.CallerID, Message{j.Payload, j.Attributes}), &again) ||
			again.CallerID != j.CallerID || !bytes.Equal(again.Payload, j.Payload) || !bytes.Equal(again.Attributes, j.Attributes) {
			t.Errorf("%q is read as %+v, and written as %+v", record, j, again)
		}
	})
}
