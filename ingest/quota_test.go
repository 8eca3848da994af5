package ingest

import (
	"strings"
	"testing"
)

func TestAQuotaIsParsedAndFormatted(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"5000/s", "100/min", "20/h", "1/s", "1000000000/h"} {
		var q Quota
		if err := q.UnmarshalText([]byte(text)); err != nil || q.String() != text {
			t.Errorf("%s: got %s, %v", text, q, err)
		}
	}
	for _, text := range []string{"", "5000", "5000/", "/s", "5k/s", "0/s", "-1/s", "1.5/s", "5000/m", "5000/S", "5000 / s", "5000/s ", "2000000000/s"} {
		var q Quota
		if err := q.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "5000/s") {
			t.Errorf("%q: got %s, %v, want an error that says how", text, q, err)
		}
	}
}

// FuzzQuota checks that String of a parsed quota parses to the same quota.
func FuzzQuota(f *testing.F) {
	for _, text := range []string{"5000/s", "100/min", "20/h", "0/s", "-1/h", "1e3/s", "1/d", "/", "9223372036854775808/s", "٣/s", "5", "+5/s", "1/s/s", "1_0/s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var q, again Quota
		if q.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(q.String())); err != nil || again != q || q.Count < 1 || q.Per <= 0 {
			t.Fatalf("%q parses as %+v, formatted %s, %v", text, q, q, err)
		}
	})
}
