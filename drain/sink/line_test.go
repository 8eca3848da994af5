package sink

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/clocktest"
)

func batchOf(payloads ...string) *Batch {
	b := &Batch{Namespace: "default", Partition: "com.acme.kart", FirstSeq: 1763629675123456, Attempt: 1}
	for i, p := range payloads {
		b.Entries = append(b.Entries, Entry{Seq: b.FirstSeq + int64(i), Occurred: 1763629675100, Payload: []byte(p)})
	}
	return b
}

func TestALineHasTheFieldsInOrder(t *testing.T) {
	t.Parallel()
	b := batchOf(`{"score":7}`, `{"score":8}`)
	b.Attempt = 3
	b.Entries[1].ID = []byte(`order"81`)
	got := string(AppendBatch([]byte("before\n"), b))
	want := "before\n" +
		`{"namespace":"default","partition":"com.acme.kart","seq":1763629675123456,"ts":1763629675100,"batch":"` + b.ID() + `","attempt":3,"data":{"score":7}}` + "\n" +
		`{"namespace":"default","partition":"com.acme.kart","seq":1763629675123457,"ts":1763629675100,"id":"order\"81","batch":"` + b.ID() + `","attempt":3,"data":{"score":8}}` + "\n"
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestAPayloadTakesTheFormItFits(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ payload, want string }{
		{`{"a":1}`, `"data":{"a":1}`},
		{` [1, 2] `, `"data": [1, 2] `},
		{`null`, `"data":null`},
		{`1e400`, `"data":1e400`},
		{`"\ud800 <&>"`, `"data":"\ud800 <&>"`},
		{"\"\u2028\"", "\"data\":\"\u2028\""},
		{"{\n  \"a b\" : \"c \\\" d\",\r\n\t\"e\": [1, 2]\n}\n", `"data":{"a b":"c \" d","e":[1,2]}`},
		{``, `"text":""`},
		{"\n", `"text":"\n"`},
		{"a\"b\\c\n\r\t\x00<&>\u2028", `"text":"a\"b\\c\n\r\t\u0000<&>` + "\u2028" + `"`},
		{"\ufeff{}", "\"text\":\"\ufeff{}\""},
		{strings.Repeat("[", 101) + strings.Repeat("]", 101), `"text":"` + strings.Repeat("[", 101) + strings.Repeat("]", 101) + `"`},
		{"\xff\x00", `"base64":"/wA="`},
		{"{\"a\":\"\xff\"}", `"base64":"eyJhIjoi/yJ9"`},
	} {
		got := string(AppendLine(nil, batchOf(row.payload), 0))
		if !strings.HasSuffix(got, `"attempt":1,`+row.want+"}\n") {
			t.Errorf("%q: got %s want it to end with %s", row.payload, got, row.want)
		}
	}
}

func TestADeadLineSaysWhy(t *testing.T) {
	t.Parallel()
	b := batchOf(`{"a":1}`)
	alive := strings.TrimSuffix(string(AppendLine(nil, b, 0)), "}\n")
	for _, row := range []struct {
		err  error
		want string
	}{
		{nil, `,"reason":"rejected"}`},
		{errors.New("say \"no\"\n"), `,"reason":"rejected","error":"say \"no\"\n"}`},
		{errors.New("bad \xff byte"), `,"reason":"rejected","error":"bad ` + "\ufffd" + ` byte"}`},
		{errors.New(strings.Repeat("x", 600)), `,"reason":"rejected","error":"` + strings.Repeat("x", 512) + `"}`},
		{errors.New(strings.Repeat("x", 511) + "é"), `,"reason":"rejected","error":"` + strings.Repeat("x", 511) + `"}`},
		{errors.New(strings.Repeat("x", 510) + "é"), `,"reason":"rejected","error":"` + strings.Repeat("x", 510) + `é"}`},
	} {
		got := string(AppendDeadLine(nil, b, 0, "rejected", row.err))
		if want := alive + row.want + "\n"; got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

// FuzzLine holds every line to one JSON object on one line that gives back the
// payload, the id and, of a dead letter, a bounded error.
func FuzzLine(f *testing.F) {
	for _, s := range []string{
		`{"a":1}`, "{\n\"a\": 1}", "text\n", "\xff\x00", "", "null", `"\ud800"`, nested("[", "]", 200), "1e400", "\"\x7f\"", " 1\r",
	} {
		f.Add("default", "com.acme.kart", "id-1", s, "rejected", "an error")
	}
	f.Add("\xff\"", "\n", "", "\xe2\x82", "\xff", strings.Repeat("\xff", 600))
	f.Add("default", "p", "i", "[{\n\"a\"\r:1}]", "r", "e")
	f.Add("default", "p", "id", "a\r\nb", "rejected", "a\nb")
	f.Add("default", "p", "i", "ÿþ", "ÿ", "Ã")
	f.Add("\"", "\\", "~", "x", "\"", "\"")
	f.Add("default", "p", "i", "\"a\u2028b\u2029c\u0085d\"", "r", "e")
	f.Add("d", "p", "#", `"\ud800"`, "r", "e")
	f.Add("default", "p", "", "\x1b[2J\x00\x7f", "x", "\x1b]0;owned\a")
	f.Fuzz(func(t *testing.T, namespace, name, id, payload, reason, errText string) {
		b := batchOf(payload)
		b.Namespace, b.Partition = namespace, name
		if partition.ValidID(id) {
			b.Entries[0].ID = []byte(id)
		}
		line := AppendLine(nil, b, 0)
		checkLine(t, line, b, payload)
		dead := AppendDeadLine(nil, b, 0, reason, errors.New(errText))
		checkLine(t, dead, b, payload)
		var why struct{ Reason, Error string }
		if err := json.Unmarshal(dead, &why); err != nil {
			t.Fatal(err)
		}
		if utf8.ValidString(reason) && why.Reason != reason {
			t.Fatalf("reason: got %q, want %q", why.Reason, reason)
		}
		if len(why.Error) > MaxErrorText || utf8.ValidString(errText) && !strings.HasPrefix(errText, why.Error) {
			t.Fatalf("error: got %q of %q", why.Error, errText)
		}
	})
}

func checkLine(t *testing.T, line []byte, b *Batch, payload string) {
	t.Helper()
	if bytes.IndexByte(line, '\n') != len(line)-1 || bytes.IndexByte(line, '\r') >= 0 || !utf8.Valid(line) {
		t.Fatalf("not one line of UTF-8: %q", line)
	}
	var l struct {
		Seq    int64
		ID     *string
		Batch  string
		Data   json.RawMessage
		Text   *string
		Base64 []byte
	}
	if err := json.Unmarshal(line, &l); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if l.Seq != b.Entries[0].Seq || l.Batch != b.ID() {
		t.Fatalf("seq %d batch %s in %q", l.Seq, l.Batch, line)
	}
	if want := b.Entries[0].ID; (l.ID == nil) != (want == nil) || l.ID != nil && *l.ID != string(want) {
		t.Fatalf("id: got %v, want %q", l.ID, want)
	}
	switch {
	case l.Data != nil:
		var want, got bytes.Buffer
		if err := errors.Join(json.Compact(&want, []byte(payload)), json.Compact(&got, l.Data)); err != nil {
			t.Fatal(err)
		}
		if got.String() != want.String() {
			t.Fatalf("data: got %q, want %q", l.Data, payload)
		}
		if !strings.ContainsAny(payload, "\r\n") && string(l.Data) != strings.Trim(payload, " \t") {
			t.Fatalf("data was changed: got %q, want %q", l.Data, payload)
		}
	case l.Text != nil:
		if *l.Text != payload {
			t.Fatalf("text: got %q, want %q", *l.Text, payload)
		}
	default:
		if string(l.Base64) != payload {
			t.Fatalf("base64: got %q, want %q", l.Base64, payload)
		}
	}
}

// One payload of each form, and the size of a common event.
var forms = []struct{ name, payload string }{
	{"json", `{"type":"obs","time":-817,"key":"[156, 90]","x":156,"y":90,"z":132,"entityleft":false,"ehandle":6701514}`},
	{"multiline", "{\n  \"type\": \"obs\",\n  \"time\": -817,\n  \"x\": 156,\n  \"y\": 90,\n  \"z\": 132,\n  \"ehandle\": 6701514\n}"},
	{"wide", "[" + strings.Repeat(`{"x":156,"y":90},`, 200) + "{}]"},
	{"text", strings.Repeat("obs at 156, 90 – \"gone\"\n", 4)},
	{"binary", strings.Repeat("\xff\x00\x01\x02", 25)},
}

func TestAllocsOfALineAreNone(t *testing.T) {
	for _, f := range forms {
		b := batchOf(f.payload)
		b.Entries[0].ID = []byte("order-81")
		dst := make([]byte, 0, 16<<10)
		if n := testing.AllocsPerRun(100, func() { dst = AppendLine(dst[:0], b, 0) }); n != 0 {
			t.Errorf("%s: %v allocations, want 0", f.name, n)
		}
	}
}

// The line of a job has what its batch cannot say: its own attempt, tries and attributes.
func TestALineOfAJobHasItsOwnAttemptTriesAndAttributes(t *testing.T) {
	t.Parallel()
	b := &Batch{Namespace: "mail", Partition: "mail-eu", Attempt: 3}
	for i, j := range []Job{{Attempt: 3, Tries: 5, Attributes: []byte(`{"kind":"welcome"}`)}, {Attempt: 1, Tries: 1}} {
		b.Entries = append(b.Entries, Entry{Seq: int64(i + 1), Occurred: 1763629675100, ID: []byte("A"), Payload: []byte("7")})
		b.Jobs = append(b.Jobs, j)
	}
	begin := func(seq string) string {
		return `{"namespace":"mail","partition":"mail-eu","seq":` + seq + `,"ts":1763629675100,"id":"A","batch":"` + b.ID() + `","attempt":`
	}
	want := begin("1") + `3,"tries":5,"attributes":{"kind":"welcome"},"data":7}` + "\n" + begin("2") + `1,"tries":1,"data":7}` + "\n"
	if got := string(AppendBatch(nil, b)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if b.Jobs[0].Last() || !b.Jobs[1].Last() {
		t.Error("the last delivery is the one whose attempt is the number of tries")
	}
}

var errPut = errors.New("put failed")

func TestLineWriterPutsAllBatchesAtOnce(t *testing.T) {
	t.Parallel()
	a, b := batchOf("1", "2"), batchOf("3")
	want := string(AppendBatch(AppendBatch(nil, a), b))
	w := NewLineWriter()
	for range 2 { // the second time from a pooled buffer
		var got []string
		err := w.Write(t.Context(), []*Batch{a, b}, func(lines []byte) error {
			got = append(got, string(lines))
			return errPut
		})
		if err != errPut || len(got) != 1 || got[0] != want {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

func TestLineWriterDoesNothingInAnEndedContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := NewLineWriter().Write(ctx, []*Batch{batchOf("1")}, func([]byte) error {
		t.Error("put was called")
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestLineWriterTakesTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := NewLineWriter()
		running := 0
		for range 10 {
			go w.Write(t.Context(), []*Batch{batchOf("1")}, func([]byte) error {
				if running++; running != 1 {
					t.Errorf("%d at once", running)
				}
				clocktest.Take(time.Second)
				running--
				return nil
			})
		}
		start := time.Now()
		clocktest.Pass(time.Millisecond)
		if err := w.Do(t.Context(), func() error { return nil }); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("10 puts of 1 s took %s", took)
		}
	})
}

func TestLineWriterReturnsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := NewLineWriter()
		start := time.Now()
		hang := make(chan struct{})
		after := func(d time.Duration, put func([]byte) error) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), d)
			defer cancel()
			err := w.Write(ctx, []*Batch{batchOf(strings.Repeat("x", 1000))}, put)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
		}
		var late string
		after(time.Second, func(lines []byte) error { <-hang; late = string(lines); return nil })
		after(time.Second, func([]byte) error { t.Error("put out of turn"); return nil })
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("took %s, want 2s", took)
		}
		// The one that hangs still has its own lines when it goes on.
		close(hang)
		if err := w.Write(t.Context(), []*Batch{batchOf("1")}, func([]byte) error { return nil }); err != nil {
			t.Error(err)
		}
		if !strings.Contains(late, "xxx") {
			t.Errorf("late lines were %q", late)
		}
	})
}

func TestLineWriterDoesWhatItCanInAnEndedContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		done := false
		_ = NewLineWriter().Do(ctx, func() error { done = true; return nil })
		synctest.Wait()
		if !done {
			t.Error("a Close whose time is up freed nothing")
		}
	})
}
