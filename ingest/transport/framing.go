package transport

import (
	"bytes"
	"strconv"
	"strings"
	"unsafe"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
)

// maxHeaders bounds how many headers a request has. fasthttp keeps 80 bytes
// beside each, so a header of 5 bytes takes 85 for as long as its body arrives.
const maxHeaders = 128

// TooManyHeaders reports whether a request has more than maxHeaders.
func TooManyHeaders(h *fasthttp.RequestHeader) bool {
	raw := h.RawHeaders()
	return len(raw) > maxHeaders*len("a:b\r\n") && bytes.Count(raw, []byte{'\n'}) > maxHeaders
}

// SingletonHeaders may be sent once. Of two, a proxy in front may have used the
// other one than this server would.
var SingletonHeaders = []string{
	"Authorization", "Content-Encoding", "Content-Type",
	"Idempotency-Key", "X-Client-Discards", "X-Event-Ts", "X-Sent-At",
}

// CheckFraming rejects what two HTTP implementations might read as different
// requests. fasthttp accepts these: both lengths at once (it serves the rest as
// a second request), an identity transfer coding, folded headers, bare line
// feeds, any version of the form HTTP/d.d, and repeated headers.
func CheckFraming(h *fasthttp.RequestHeader) *wire.Rejection {
	if TooManyHeaders(h) {
		return wire.Reject(wire.CodeHeadersTooLarge).Closing()
	}
	if p := h.Protocol(); string(p) != "HTTP/1.1" && string(p) != "HTTP/1.0" {
		return wire.Reject(wire.CodeVersionUnsupported).Closing()
	}
	bad := func(message string) *wire.Rejection {
		return wire.Rejectf(wire.CodeBadRequest, "%s", message).Closing()
	}
	hasLength, hasCoding := false, false
	seen, repeated := 0, -1 // one bit for each of SingletonHeaders, and the index of one sent twice
	for rest := h.RawHeaders(); len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		if end < 1 || rest[end-1] != '\r' {
			return bad("header lines end in CR LF")
		}
		line := rest[:end-1]
		rest = rest[end+1:]
		if len(line) == 0 {
			break
		}
		switch line[0] {
		case 'a', 'A', 'c', 'C', 'i', 'I', 'x', 'X':
			for i, header := range SingletonHeaders {
				if isHeader(line, header) {
					if seen&(1<<i) != 0 {
						repeated = i
					}
					seen |= 1 << i
				}
			}
		}
		switch line[0] {
		case ' ', '\t':
			return bad("a header must not continue on the next line")
		case 'c', 'C':
			hasLength = hasLength || isHeader(line, "Content-Length")
		case 't', 'T':
			if isHeader(line, "Transfer-Encoding") {
				hasCoding = true
				coding := bytes.Trim(line[len("Transfer-Encoding:"):], " \t")
				if !bytes.EqualFold(coding, []byte("chunked")) {
					return bad("the only Transfer-Encoding is chunked")
				}
			}
		}
	}
	if hasLength && hasCoding {
		return bad("send either Content-Length or Transfer-Encoding")
	}
	if repeated >= 0 {
		return wire.Rejectf(wire.CodeBadHeader, "%s is given twice: send it once", SingletonHeaders[repeated])
	}
	return nil
}

// isHeader reports whether a header line has that name.
func isHeader(line []byte, name string) bool {
	return len(line) > len(name) && line[len(name)] == ':' &&
		strings.EqualFold(unsafe.String(unsafe.SliceData(line), len(name)), name)
}

// headerSkippedBody holds the announced length of a body that is not read. No
// client can send it: a header name holds no space.
var headerSkippedBody = []byte(" unread")

// SkipBody tells fasthttp that a request has no body, and keeps the announced length.
func SkipBody(h *fasthttp.RequestHeader) {
	h.SetCanonical(headerSkippedBody, strconv.AppendInt(nil, int64(h.ContentLength()), 10))
	h.SetContentLength(0)
}

// BodyLength is the announced length of a body in bytes, and whether the body
// is skipped. A length below 0 means that the body comes in chunks, or that
// there is none.
func BodyLength(h *fasthttp.RequestHeader) (n int, skipped bool) {
	if n = h.ContentLength(); n != 0 {
		return n, false
	}
	value := h.PeekCanonical(headerSkippedBody)
	if len(value) == 0 {
		return 0, false
	}
	n, _ = strconv.Atoi(string(value))
	return n, true
}
