package wire

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

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

func BenchmarkSplitLines128(b *testing.B) {
	body := bytes.Repeat([]byte(`{"type":"purchase","time":88,"key":"magic_stick","charges":2}`+"\n"), 128)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		lines := SplitLines(body)
		for _, ok := lines.Next(); ok; _, ok = lines.Next() {
		}
	}
}
