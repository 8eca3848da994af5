package main

import (
	"strings"
	"time"
)

const (
	wireLimit  = 1 << 20 // --max-body
	entryLimit = 32 << 10
	tooLarge   = "413 body_too_large"
)

var bodies = []row{
	{"empty", post(one, "", ""), "400 empty_body", kept},
	{"empty, in chunks", request("POST "+one, "Transfer-Encoding: chunked\r\n", "0\r\n\r\n"), "400 empty_body", kept},
	{"no length", request("POST "+one, "", ""), "400 empty_body", kept},
	{"no length, and a body all the same", request("POST "+one, "", "x\r\n\r\n"), "400 empty_body | " + badRequest, closed},
	{"one byte over the entry", post(one, "", x(entryLimit+1)), "413 entry_too_large", kept},
	{"an entry to the byte", post(one, "", x(entryLimit)), ok, kept},
	{"the wire's limit to the byte", post(one, asNDJSON, strings.Repeat(x(entryLimit-1)+"\n", 32)), "200 accepted=32", kept},
	{"one byte over the wire", post(one, asNDJSON, x(wireLimit+1)), tooLarge, closed},
	{"one byte over the wire, in chunks", chunked(one, asNDJSON, x(wireLimit+1)), tooLarge, closed},
	{"over the wire in many chunks", request("POST "+one, "Transfer-Encoding: chunked\r\n", strings.Repeat("1000\r\n"+x(4096)+"\r\n", 257)+
		"0\r\n\r\n"), tooLarge, closed},
	{"5 MiB of length, nothing sent", request("POST "+one, "Content-Length: 5242880\r\n", ""), tooLarge, closed},
	{"a chunk of 5 MiB, part of it sent", request("POST "+one, "Transfer-Encoding: chunked\r\n", "500000\r\n"+x(wireLimit+2)), tooLarge, closed},
	{"a probe with a body of 100 KB", request("GET /livez", "Content-Length: 100000\r\n", x(100_000)), "200 status=ok", closed},
	{"a probe with a body of 20 KB", request("GET /livez", "Content-Length: 20000\r\n", x(20_000)), "200 status=ok", kept},
	{"5 MiB sent", post(one, "", x(5<<20)), tooLarge, closed},
	{"5 MiB to an unknown namespace", post("/v1/nobody/p", "", x(5<<20)), tooLarge, closed},
	{"5 MiB expected", request("POST "+one, "Expect: 100-continue\r\nContent-Length: 5242880\r\n", ""), tooLarge, closed},
	{"expected by an unknown namespace", request("POST /v1/nobody/p", "Expect: 100-continue\r\nContent-Length: 1\r\n", ""), "404 no_such_namespace", closed},
	{"expected with both lengths", request("POST "+one, "Expect: 100-continue\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n", ""), badRequest, closed},
	{"expected and sent at once", request("POST "+one, "Expect: 100-continue\r\nContent-Length: 1\r\n", "x"), "100 | " + ok, kept},
	{"another expectation", post(one, "Expect: a-miracle\r\n", "x"), ok, kept},
	{"a bogus multipart", post(one, "Content-Type: multipart/form-data; boundary=x\r\n", "--nothing of the kind"), ok, kept},
	{"a multipart without boundary", post(one, "Content-Type: multipart/form-data\r\n", "x"), ok, kept},
	{"a form", post(one, "Content-Type: application/x-www-form-urlencoded\r\n", "a=none&a[]=b"), ok, kept},
	{"a type of nonsense", post(one, "Content-Type: ;;=\x7f/\r\n", "x"), badRequest, closed},
	{"XML with an entity", post(one, "Content-Type: text/xml\r\n", `<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>`), ok, kept},
	{"a serialised object", post(one, "Content-Type: application/x-java-serialized-object\r\n", "\xac\xed\x00\x05sr\x00"), ok, kept},
	{"nothing but NULs", post(one, "", strings.Repeat("\x00", 100)), ok, kept},
	{"Lua", post(one, "", `redis.call('FLUSHALL') return {err='x'}`), ok, kept},
	{"RESP", post(one, "", "x\r\n*1\r\n$8\r\nFLUSHALL\r\n"), ok, kept},
	{"an entry that looks like a stored one", post(one, "", "9999999999999#id x"), ok, kept},
	{"text on the mixed route", post(mixed, "Content-Type: text/plain\r\n", "x"), "415 unsupported_type", kept},
	{"no type on the mixed route", post(mixed, "", "{}"), "415 unsupported_type", kept},
	{"1,000 lines", post(one, asNDJSON, strings.Repeat("x\n", 1000)), "200 accepted=1000", kept},
	{"1,001 lines", post(one, asNDJSON, strings.Repeat("x\n", 1001)), "413 too_many_entries", kept},
	{"500,000 lines", post(one, asNDJSON, strings.Repeat("x\n", 500_000)), "413 too_many_entries", kept},
	{"a million blank lines", post(one, asNDJSON, strings.Repeat("\n", 1_000_000)), "400 empty_batch", kept},
	{"lines of spaces, tabs and CR", post(one, asNDJSON, " \t\r\n\r\n \n"), "400 empty_batch", kept},
	{"a line too large among others", post(one, asNDJSON, "a\n"+x(entryLimit+1)+"\nb"), "200 accepted=2 1:drop/too_large", kept},
	{"lines cut by CR alone are one", post(one, asNDJSON, "a\rb\rc"), ok, kept},
}

// slow are clients that take their time. They meet a server that gives them
// readTimeout for a whole request: longer than a machine that stands still for 3 s
// holds up a client that is in time.
const readTimeout = 8 * time.Second

// Those that trickle do so for longer than readTimeout, 36 pieces in 10.8 s.
const (
	trickles = 36
	apart    = 300 * time.Millisecond
)

// trickle sends text byte by byte.
func trickle(text string, pause time.Duration) []piece {
	pieces := make([]piece, len(text))
	for i := range text {
		pieces[i] = piece{text[i : i+1], pause}
	}
	return pieces
}

func stall(text string) []piece { return []piece{{text, 0}} }

const timeout = "408 request_timeout"

var slow = func() []slowRow {
	half := func(text string) []piece { return stall(text[:len(text)/2]) }
	rows := []slowRow{
		{name: "nothing at all", pieces: stall(""), want: timeout},
		{name: "an empty line and nothing more", pieces: stall("\r\n"), want: "none"},
		{name: "bare LF before the body", pieces: stall("POST " + one + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\nx"), want: timeout},
		{name: "in the method", pieces: stall("PO"), want: timeout},
		{name: "in the path", pieces: stall("POST /v1/def"), want: timeout},
		{name: "after the request line", pieces: stall("POST " + one + " HTTP/1.1\r\n"), want: timeout},
		{name: "in a header", pieces: stall("POST " + one + " HTTP/1.1\r\nHost: x\r\nConte"), want: timeout},
		{name: "before the empty line", pieces: stall("POST " + one + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n"), want: timeout},
		{name: "bare LF only", pieces: stall("POST " + one + " HTTP/1.1\nHost: x\nContent-Length: 1\n\nx"), want: timeout},
		{name: "before the body", pieces: stall(request("POST "+one, "Content-Length: 10\r\n", "")), want: timeout},
		{name: "in the body", pieces: half(post(one, "", x(4000))), want: timeout},
		{name: "one byte short", pieces: stall(request("POST "+one, "Content-Length: 10\r\n", x(9))), want: timeout},
		{name: "in a chunk size", pieces: stall(request("POST "+one, "Transfer-Encoding: chunked\r\n", "5")), want: timeout},
		{name: "in a chunk", pieces: stall(request("POST "+one, "Transfer-Encoding: chunked\r\n", "5\r\nx")), want: timeout},
		{name: "in a chunk of 2 GiB", pieces: stall(request("POST "+one, "Transfer-Encoding: chunked\r\n", "80000000\r\nx\r\n0\r\n\r\n")), want: timeout},
		{name: "in a large body", pieces: half(post(one, "", x(1<<20))), want: timeout},
		{name: "before the next chunk", pieces: stall(request("POST "+one, "Transfer-Encoding: chunked\r\n", "1\r\nx\r\n")), want: timeout},
		{name: "before the trailer's end", pieces: stall(request("POST "+one, "Transfer-Encoding: chunked\r\n", "1\r\nx\r\n0\r\n")), want: timeout},
		{name: "after 100-continue", pieces: stall(request("POST "+one, "Expect: 100-continue\r\nContent-Length: 10\r\n", "")), want: "100 | " + timeout},
		{name: "in the compressed body", pieces: half(post(one, "Content-Encoding: gzip\r\n", gzipped(x(9000)+"y"))), want: timeout},
		{name: "a head byte by byte", pieces: trickle("POST "+one+" HTTP/1.1\r\nHost: x\r\n", apart), want: timeout},
		{name: "a body byte by byte", pieces: append(stall(request("POST "+one, "Content-Length: 100\r\n", "")),
			trickle(x(trickles), apart)...), want: timeout},
		{name: "one chunk after the other", pieces: append(stall(request("POST "+one, "Transfer-Encoding: chunked\r\n", "")),
			chunks(trickles, apart)...), want: timeout},
		{name: "one header after the other", pieces: lines(trickles, apart), want: timeout},
		{name: "a second request that stalls", pieces: stall(post(one, "", "x") + "POST /v1/"), want: ok + " | " + timeout},
		{name: "a TLS hello that waits", pieces: stall("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), want: timeout},
	}
	for i := range rows {
		rows[i].connEnd = closed
	}
	return append(rows,
		slowRow{name: "slow but in time", pieces: trickle(post(one, "", "x"), 5*time.Millisecond), want: ok, connEnd: kept},
		slowRow{name: "pauses between requests", pieces: []piece{{post(one, "", "x"), 2 * readTimeout}, {post(one, "", "x"), 0}},
			want: ok + " | " + ok, connEnd: kept})
}()

func chunks(n int, pause time.Duration) []piece {
	pieces := make([]piece, n)
	for i := range pieces {
		pieces[i] = piece{"1\r\nx\r\n", pause}
	}
	return pieces
}

func lines(n int, pause time.Duration) []piece {
	pieces := []piece{{"POST " + one + " HTTP/1.1\r\nHost: x\r\n", pause}}
	for range n {
		pieces = append(pieces, piece{"X-A: b\r\n", pause})
	}
	return pieces
}
