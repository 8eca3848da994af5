package main

import (
	"fmt"
	"strings"
)

const badHeader = "400 bad_header"

// headed is a POST of one byte with more header lines.
func headed(lines string) string { return post(one, lines, "x") }

var headers = []row{
	{"a space before a colon", headed("X-A : b\r\n"), badRequest, closed},
	{"no colon", headed("X-A\r\n"), badRequest, closed},
	{"no name", headed(": b\r\n"), badRequest, closed},
	{"a NUL in a value", headed("X-A: b\x00\r\n"), badRequest, closed},
	{"a NUL in a name", headed("X\x00A: b\r\n"), badRequest, closed},
	{"a control character in a name", headed("X\x01A: b\r\n"), badRequest, closed},
	{"a name in braces", headed("{X}: b\r\n"), badRequest, closed},
	{"a name that is no ASCII", headed("Ü: b\r\n"), badRequest, closed},
	{"no Host", "POST " + one + " HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", badRequest, closed},
	{"two Hosts", headed("Host: y\r\n"), badRequest, closed},
	{"a Host with a path", "POST " + one + " HTTP/1.1\r\nHost: x/../admin\r\nContent-Length: 1\r\n\r\nx", badRequest, closed},
	{"an empty Host", "POST " + one + " HTTP/1.1\r\nHost: \r\nContent-Length: 1\r\n\r\nx", badRequest, closed},
	{"a header of 8 KiB", headed("X-A: " + x(8<<10) + "\r\n"), "431 headers_too_large", closed},
	{"a name of 8 KiB", headed(x(8<<10) + ": a\r\n"), "431 headers_too_large", closed},
	{"5,000 headers", headed(strings.Repeat("A: b\r\n", 5000)), "431 headers_too_large", closed},
	{"a header of 2 MiB", headed("X-A: " + x(2<<20) + "\r\n"), "431 headers_too_large", closed},
	{"900 headers in 4 KiB", headed(strings.Repeat("A:b\r\n", 900)), "431 headers_too_large", closed},
	{"120 headers", headed(strings.Repeat("A:b\r\n", 120)), ok, kept},
	{"a header of 7 KiB", headed("Cookie: " + x(7<<10) + "\r\n"), ok, kept},
	{"terminal sequences in a value", headed("User-Agent: \x1b[2J\x1b]0;owned\a\r\n"), badRequest, closed},
	{"bytes above ASCII in a value", headed("User-Agent: \xff\xfe\xc3\xa9\r\n"), ok, kept},

	{"sent at: a word", headed("X-Sent-At: yesterday\r\n"), "400 bad_time", kept},
	{"sent at: seconds with a point", headed("X-Sent-At: 1763629675.1\r\n"), "400 bad_time", kept},
	{"sent at: negative", headed("X-Sent-At: -1\r\n"), "400 bad_time", kept},
	{"sent at: microseconds", headed("X-Sent-At: 1763629675100000\r\n"), "400 bad_time", kept},
	{"sent at: 400 digits", headed("X-Sent-At: " + strings.Repeat("9", 400) + "\r\n"), "400 bad_time", kept},
	{"sent at: Arabic digits", headed("X-Sent-At: ١٢٣\r\n"), "400 bad_time", kept},
	{"event time: hexadecimal", headed("X-Event-Ts: 0x19a9\r\n"), "400 bad_time", kept},
	{"event time: an exponent", headed("X-Event-Ts: 1e12\r\n"), "400 bad_time", kept},
	{"event time: the year 2286", headed("X-Event-Ts: 9999999999999\r\n"), "200 accepted=1 0:warning/unskewed", kept},
	{"event time: 1970", headed("X-Event-Ts: 0\r\n"), "200 accepted=1 0:warning/unskewed", kept},
	{"event time long before it was sent", headed("X-Event-Ts: 1\r\nX-Sent-At: 1763629675100\r\n"), "200 accepted=0 0:drop/stale", kept},
	{"event time long after it was sent", headed("X-Event-Ts: 9999999999999\r\nX-Sent-At: 1\r\n"), ok, kept},

	{"an idempotency key of 129", headed("Idempotency-Key: " + x(129) + "\r\n"), badHeader, kept},
	{"an idempotency key that is no ASCII", headed("Idempotency-Key: ключ\r\n"), badHeader, kept},
	{"an idempotency key with braces and stars", headed("Idempotency-Key: }{*?:sw\r\n"), ok, kept},
	{"the same key, another body: the first result", post(one, "Idempotency-Key: }{*?:sw\r\n", "yy"), ok, kept},

	{"two idempotency keys", headed("Idempotency-Key: a\r\nIdempotency-Key: b\r\n"), badHeader, kept},
	{"one idempotency key, twice", headed("Idempotency-Key: a\r\nidempotency-key: a\r\n"), badHeader, kept},
	{"an empty idempotency key and another", headed("Idempotency-Key:\r\nIdempotency-Key: a\r\n"), badHeader, kept},
	{"sent at two times", headed("X-Sent-At: 1763629675100\r\nX-Sent-At: 1\r\n"), badHeader, kept},
	{"two event times", headed("X-Event-Ts: 1763629675100\r\nX-Event-Ts: 1\r\n"), badHeader, kept},
	{"two types", post(one, asJSON+asNDJSON, "1\n2\n"), badHeader, kept},
	{"two tokens where none is asked for", headed("Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"), badHeader, kept},
	{"two reports of discards", headed("X-Client-Discards: stale=1\r\nX-Client-Discards: stale=2\r\n"), badHeader, kept},
	{"two preferences", headed("Prefer: wait=1\r\nPrefer: handling=lenient\r\n"), ok, kept},

	{"discards without a count", headed("X-Client-Discards: stale\r\n"), badHeader, kept},
	{"discards past a thousand million", headed("X-Client-Discards: stale=1000000000\r\n"), badHeader, kept},
	{"negative discards", headed("X-Client-Discards: stale=-5\r\n"), badHeader, kept},
	{"discards for a reason in capitals", headed("X-Client-Discards: STALE=5\r\n"), badHeader, kept},
	{"discards with a label of Prometheus", headed("X-Client-Discards: a\"}=5\r\n"), badHeader, kept},
	{"discards for 100 reasons nobody knows", headed("X-Client-Discards: " + manyReasons(100) + "\r\n"), ok, kept},
	{"discards for a reason of 33 letters", headed("X-Client-Discards: " + x(33) + "=1\r\n"), badHeader, kept},

	{"a preference of nonsense", headed("Prefer: return=nothing;;;=,,\r\n"), ok, kept},
	{"a preference for nothing to say", headed("Prefer: return=minimal\r\n"), "204", kept},
	{"a forwarded address", headed("X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: ::1\r\nForwarded: for=127.0.0.1\r\n"), ok, kept},
	{"headers that rewrite the path elsewhere", headed("X-Original-URL: /admin\r\nX-Rewrite-URL: /debug/pprof/\r\n"), ok, kept},
	{"Connection that names a length", headed("Connection: Content-Length\r\n"), ok, kept},
	{"a page under a name that was re-pointed", "POST " + one +
		" HTTP/1.1\r\nHost: evil.example\r\nOrigin: http://evil.example\r\nContent-Length: 1\r\n\r\nx", badHost, kept},
	{"a read under such a name", hosted("GET "+one, "evil.example:8080"), badHost, kept},
	{"an image of another site", request("GET "+one, "Sec-Fetch-Site: cross-site\r\n", ""), crossed, kept},
	{"a range", headed("Range: bytes=0-,0-,0-,0-\r\n"), ok, kept},
}

func manyReasons(n int) string {
	reasons := make([]string, n)
	for i := range reasons {
		reasons[i] = fmt.Sprintf("%c%c=1", 'a'+i/26, 'a'+i%26)
	}
	return strings.Join(reasons, ",")
}
