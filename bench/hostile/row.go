package main

import (
	"fmt"
	"strings"
	"time"
)

// A row is one hostile input and what has to become of it.
type row struct {
	name string
	send string // the bytes, as they go over the socket
	// want is every answer to these bytes, in their order, " | " between them:
	//
	//	400 bad_request                            status and public code
	//	405 method_not_allowed Allow=POST          and headers that are due
	//	429 too_many_partitions scope=namespace Retry-After
	//	200 accepted=2 1:drop/bad_ts               what became of the entries
	//	100                                        an interim answer
	want    string
	connEnd connEnd
}

// connEnd says whether the connection stays open after the answers.
type connEnd int

const (
	kept   connEnd = iota // open: the server answers a second request on it
	closed                // the server closes it, without a reset
)

func (f connEnd) String() string { return [...]string{"kept", "closed"}[f] }

// A slow row sends its pieces with pauses between them.
type slowRow struct {
	name    string
	pieces  []piece
	want    string
	connEnd connEnd
}

type piece struct {
	text  string
	pause time.Duration // after it
}

// request is an HTTP/1.1 request with any head lines, each ending in CR LF.
func request(line, headers, body string) string {
	return line + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n" + body
}

// post sends a body of stated length.
func post(path, headers, body string) string {
	return request("POST "+path, fmt.Sprintf("%sContent-Length: %d\r\n", headers, len(body)), body)
}

// hide sends another request as the body of one, with its true length.
func hide(line, headers string) string {
	return request(line, fmt.Sprintf("%sContent-Length: %d\r\n", headers, len(smuggled)), smuggled)
}

// chunked sends a body in one chunk.
func chunked(path, headers, body string) string {
	return request("POST "+path, headers+"Transfer-Encoding: chunked\r\n", inChunks(body))
}

func inChunks(body string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) }

const (
	one        = "/v1/default/p" // the partition that most rows aim at
	mixed      = "/v1/default"
	asJSON     = "Content-Type: application/json\r\n"
	asNDJSON   = "Content-Type: application/x-ndjson\r\n"
	ok         = "200 accepted=1"
	badRequest = "400 bad_request"
)

// smuggled is a whole request that hides in another one's body. Nothing may
// ever answer it; its partition stays empty.
const smuggled = "POST /v1/default/smuggled HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx"

// x is n letters.
func x(n int) string { return strings.Repeat("x", n) }
