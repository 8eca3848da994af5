package main

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
)

const (
	asGzip      = "Content-Encoding: gzip\r\n"
	asZstd      = "Content-Encoding: zstd\r\n"
	corrupt     = "400 bad_encoding"
	unsupported = "415 unsupported_encoding Accept-Encoding=gzip,zstd"
	inflated    = 4 << 20 // --max-decompressed
)

func gzipped(text string) string {
	var b bytes.Buffer
	level := gzip.BestCompression
	if len(text) > 1<<20 { // as small, nearly, and ten times as quick
		level = gzip.BestSpeed
	}
	w, _ := gzip.NewWriterLevel(&b, level) // a valid level; a buffer does not fail
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

// bomb is 64 MiB in gzip: the most costly input, made once.
var bomb = gzipped(x(64 << 20))

func deflated(text string) string {
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

func zstded(text string) string {
	w, _ := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)) // valid options
	defer func() { _ = w.Close() }()
	return string(w.EncodeAll([]byte(text), nil))
}

// zstdFrame is the head of a frame that states a window of 2^(10+exponent)
// bytes and then one raw, last block.
func zstdFrame(exponent byte, text string) string {
	head := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, exponent << 3}
	block := make([]byte, 4)
	binary.LittleEndian.PutUint32(block, uint32(len(text))<<3|1)
	return string(head) + string(block[:3]) + text
}

// zstdSized is a frame with one segment that states the size of what it holds.
func zstdSized(size uint64, text string) string {
	head := binary.LittleEndian.AppendUint64([]byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0}, size)
	block := make([]byte, 4)
	binary.LittleEndian.PutUint32(block, uint32(len(text))<<3|1)
	return string(head) + string(block[:3]) + text
}

var encodings = []row{
	{"gzip", post(one, asGzip, gzipped("x")), ok, kept},
	{"zstd", post(one, asZstd, zstded("x")), ok, kept},
	{"GZIP in capitals", post(one, "Content-Encoding: GZIP\r\n", gzipped("x")), ok, kept},
	{"a gzip bomb of 64 MiB", post(one, asGzip+asNDJSON, bomb), tooLarge, kept},
	{"a zstd bomb of 64 MiB", post(one, asZstd+asNDJSON, zstded(x(64<<20))), tooLarge, kept},
	{"a gzip bomb of many members", post(one, asGzip+asNDJSON, strings.Repeat(gzipped(x(1<<20)), 8)), tooLarge, kept},
	{"a zstd bomb of many frames", post(one, asZstd+asNDJSON, strings.Repeat(zstded(x(1<<20)), 8)), tooLarge, kept},
	{"a zstd frame that claims 2^62 bytes", post(one, asZstd, zstdSized(1<<62, "x")), tooLarge, kept},
	{"a zstd frame that claims less than it holds", post(one, asZstd, zstdSized(1, "xyz")), corrupt, kept},
	{"gzip of the limit to the byte", post(one, asGzip+asNDJSON, gzipped(strings.Repeat(x(1023)+"\n", 4096))), "413 too_many_entries", kept},
	{"gzip one byte over the limit", post(one, asGzip+asNDJSON, gzipped(x(inflated+1))), tooLarge, kept},
	{"zstd one byte over the limit", post(one, asZstd+asNDJSON, zstded(x(inflated+1))), tooLarge, kept},
	{"gzip of gzip, said once", post(one, asGzip, gzipped(gzipped("x"))), ok + " 0:warning/looks_compressed", kept},
	{"gzip of gzip, said twice", post(one, "Content-Encoding: gzip, gzip\r\n", gzipped(gzipped("x"))), unsupported, kept},
	{"two lines of gzip", post(one, asGzip+asGzip, gzipped(gzipped("x"))), badHeader, kept},
	{"identity, then gzip", post(one, "Content-Encoding: identity\r\n"+asGzip, gzipped("x")), badHeader, kept},
	{"br", post(one, "Content-Encoding: br\r\n", "\x0b\x00\x80x\x03"), unsupported, kept},
	{"deflate", post(one, "Content-Encoding: deflate\r\n", deflated("x")), unsupported, kept},
	{"compress", post(one, "Content-Encoding: compress\r\n", "\x1f\x9d\x90x"), unsupported, kept},
	{"x-gzip", post(one, "Content-Encoding: x-gzip\r\n", gzipped("x")), unsupported, kept},
	{"a coding of 4 KiB", post(one, "Content-Encoding: "+x(4<<10)+"\r\n", "x"), unsupported, kept},
	{"an encoding of nothing", post(one, "Content-Encoding: \r\n", "x"), unsupported, kept},
	{"gzip cut in its head", post(one, asGzip, gzipped("x")[:5]), corrupt, kept},
	{"gzip cut in its middle", post(one, asGzip, gzipped(x(1000))[:15]), corrupt, kept},
	{"gzip without its checksum", post(one, asGzip, gzipped("x")[:len(gzipped("x"))-8]), corrupt, kept},
	{"gzip with a wrong checksum", post(one, asGzip, gzipped("x")[:len(gzipped("x"))-8]+"\x00\x00\x00\x00\x01\x00\x00\x00"), corrupt, kept},
	{"gzip with a wrong size", post(one, asGzip, gzipped("x")[:len(gzipped("x"))-1]+"\x7f"), corrupt, kept},
	{"gzip with junk behind", post(one, asGzip, gzipped("x")+"junk"), corrupt, kept},
	{"gzip with NULs behind", post(one, asGzip, gzipped("x")+"\x00\x00\x00\x00"), corrupt, kept},
	{"gzip of nothing", post(one, asGzip, gzipped("")), "400 empty_body", kept},
	{"gzip with an endless name", post(one, asGzip, "\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03"+x(10_000)), corrupt, kept},
	{"gzip with another method", post(one, asGzip, "\x1f\x8b\x07\x00\x00\x00\x00\x00\x00\x03xxxxxxxxxx"), corrupt, kept},
	{"gzip that is text", post(one, asGzip, "not gzip at all"), corrupt, kept},
	{"gzip that is zstd", post(one, asGzip, zstded("x")), corrupt, kept},
	{"zstd that is gzip", post(one, asZstd, gzipped("x")), corrupt, kept},
	{"zstd cut in its head", post(one, asZstd, zstded("x")[:5]), corrupt, kept},
	{"zstd cut in a block", post(one, asZstd, zstded(x(1000) + "y")[:9]), corrupt, kept},
	{"zstd with junk behind", post(one, asZstd, zstded("x")+"junk"), corrupt, kept},
	{"zstd of nothing", post(one, asZstd, zstded("")), "400 empty_body", kept},
	{"zstd with a window of 2 GiB", post(one, asZstd, zstdFrame(21, "x")), corrupt, kept},
	{"zstd with the widest window of all", post(one, asZstd, zstdFrame(31, "x")), corrupt, kept},
	{"zstd with only a skippable frame", post(one, asZstd, "\x50\x2a\x4d\x18\x04\x00\x00\x00xxxx"), "400 empty_body", kept},
	{"zstd with a skippable frame of 4 GiB", post(one, asZstd, "\x50\x2a\x4d\x18\xff\xff\xff\xff"), corrupt, kept},
	{"zstd with a dictionary nobody has", post(one, asZstd, "\x28\xb5\x2f\xfd\x01\x58\x07\x09\x00\x00x"), corrupt, kept},
	{"zstd with a reserved block", post(one, asZstd, "\x28\xb5\x2f\xfd\x00\x58\x0f\x00\x00x"), corrupt, kept},
	{"zstd that is text", post(one, asZstd, "not zstd at all"), corrupt, kept},
	{"compressed in chunks", chunked(one, asGzip, gzipped("x")), ok, kept},
	{"compressed JSON that is none", post(one, asGzip+asJSON, gzipped("{")), "400 bad_json", kept},
	{"a body that only says it is plain", post(one, "Content-Encoding: identity\r\n", gzipped("x")), ok + " 0:warning/looks_compressed", kept},
	{"lines of JSON as one entry", post(one, "Content-Type: text/plain\r\n", "{}\n{}\n"), ok + " 0:warning/looks_batched", kept},
}
