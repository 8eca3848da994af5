package cause

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestFailuresThatDifferInIDsNumbersAndTimesHaveOneCause(t *testing.T) {
	t.Parallel()
	for cause, texts := range map[string][]string{
		"":                                           {"", " \n\t"},
		"connection refused":                         {"connection refused", "connection\n  refused ", "connection\x1b\u202e\u200b\u00a0refused\x00"},
		"dial tcp #:#: connect: timeout":             {"dial tcp 10.0.0.1:5432: connect: timeout", "dial tcp 192.168.1.20:80: connect: timeout"},
		"order # of user-# is gone":                  {"order 42 of user-7 is gone", "order 550e8400-e29b-41d4-a716-446655440000 of user-1a is gone", "order 01HXZ9 of user-deadbeef7 is gone"},
		"took #, of #":                               {"took 1m30.5s, of 30s", "took 500ms, of 2h", "took 0, of 1,234.5"},
		"at #-#-#:#:#: no":                           {"at 2026-11-29T11:42:00Z: no", "at 2025-01-01T00:00:00.123Z: no"},
		`# Unprocessable: {"email":"***"}`:           {`422 Unprocessable: {"email":"***"}`},
		"größer als #":                               {"größer als 5", "größer als ٣"},
		"no such table orders":                       {"no such table orders", "no such\xff table orders"},
		strings.Repeat("ä", 100):                     {strings.Repeat("ä", 100), strings.Repeat("ä", 101), "\xff" + strings.Repeat("ä", 5000)},
		"x" + strings.Repeat("ä", 99):                {"x" + strings.Repeat("ä", 100)},
		strings.TrimSpace(strings.Repeat("a ", 100)): {strings.Repeat("a ", 100), strings.Repeat("a  ", 300)},
	} {
		for _, text := range texts {
			if got := Fold(text); got != cause {
				t.Errorf("%.80q: got %q, want %q", text, got, cause)
			}
		}
	}
	for _, other := range []string{"order 42 of user-7 is paid", "Order 42 of user-7 is gone"} {
		if Fold(other) == "order # of user-# is gone" {
			t.Errorf("%q is taken for another cause", other)
		}
	}
}

func FuzzFold(f *testing.F) {
	f.Add("dial tcp 10.0.0.1:5432: i/o timeout after 1.5s\xff")
	f.Add(strings.Repeat("550e8400-e29b-41d4-a716-446655440000 ä", 20))
	f.Fuzz(func(t *testing.T, text string) {
		got := Fold(text)
		if len(got) > Max || !utf8.ValidString(got) || Fold(got) != got || strings.ContainsAny(got, "0123456789") {
			t.Errorf("%q: got %q, and of that %q", text, got, Fold(got))
		}
	})
}
