package ingest

import (
	"strings"
	"testing"

	"github.com/valyala/fasthttp"
)

// FuzzBearer: whatever a client writes into its headers, a token is only what
// follows the scheme in exactly one of them.
func FuzzBearer(f *testing.F) {
	for _, value := range []string{"Bearer x", "bearer  x ", "Bearer", "Basic eDp5", "Bearer x, Bearer y", "Bearer\tx", "x", ""} {
		f.Add(value, "")
	}
	f.Add("Bearer x", "Bearer y")
	f.Fuzz(func(t *testing.T, value, second string) {
		if strings.ContainsAny(value, "\r\n") {
			return // no header that was read holds them; Add makes them spaces
		}
		var h fasthttp.RequestHeader
		h.Add(fasthttp.HeaderAuthorization, value)
		if second != "" {
			h.Add(fasthttp.HeaderAuthorization, second)
		}
		got := string(bearer(&h))
		if got == "" {
			return
		}
		if second != "" || len(value) < 8 || !strings.EqualFold(value[:7], "Bearer ") || strings.Trim(value[7:], " ") != got {
			t.Fatalf("%q and %q give token %q", value, second, got)
		}
	})
}

// FuzzQuota: what is read is spelled so that it reads the same.
func FuzzQuota(f *testing.F) {
	for _, text := range []string{"5000/s", "100/min", "20/h", "0/s", "-1/h", "1e3/s", "1/d", "/", "9223372036854775808/s", "٣/s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var q, again Quota
		if q.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(q.String())); err != nil || again != q || q.Count < 1 || q.Per <= 0 {
			t.Fatalf("%q reads as %+v, spelled %s, %v", text, q, q, err)
		}
	})
}
