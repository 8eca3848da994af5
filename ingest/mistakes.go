package ingest

import (
	"bytes"
	"slices"

	"github.com/spillway-io/spillway/ingest/wire"
)

// How compressed data begins: gzip with its only method, and zstd.
var (
	gzipMagic = []byte{0x1f, 0x8b, 8}
	zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
)

// warnOfMistake adds a warning to the first entry of a body that is stored but was
// probably meant otherwise. An entry has one result, so another one stays.
func (r *request) warnOfMistake(mediaType string, body []byte) {
	var why wire.Reason
	switch {
	case looksCompressed(body):
		why = wire.ReasonLooksCompressed
	case mediaType == "" && looksBatched(body):
		why = wire.ReasonLooksBatched
	default:
		return
	}
	if results := r.answer.Results; len(results) == 0 || results[0].Index > 0 {
		r.answer.Results = slices.Insert(results, 0, wire.Result{Disposition: wire.Warning, Reason: why})
	}
}

// looksCompressed reports whether a body lacks its Content-Encoding, or was compressed twice.
func looksCompressed(body []byte) bool {
	return bytes.HasPrefix(body, gzipMagic) || bytes.HasPrefix(body, zstdMagic)
}

// looksBatched reports whether a body begins with two lines that are a JSON object or
// array each. Lines that are numbers or strings are more likely text.
func looksBatched(body []byte) bool {
	lines := wire.SplitLines(body)
	first, _ := lines.Next()
	second, several := lines.Next()
	return several && opensJSON(first) && opensJSON(second) && wire.ValidJSON(first) && wire.ValidJSON(second)
}

func opensJSON(line []byte) bool { return line[0] == '{' || line[0] == '[' }
