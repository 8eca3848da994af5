package check

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"strconv"
)

// Payload is what an entry of a chaos run carries: who it is, where it belongs,
// and a checksum that tells whether these bytes were sent.
//
//	{"uid":42,"partition":"kart-3","pad":"xxxx","crc":"89abcdef"}
type Payload struct {
	UID       uint64
	Partition string
	Poison    bool // the sink rejects it for good
	Intact    bool // the checksum is that of the rest
}

const (
	uidHead       = `{"uid":`
	partitionHead = `,"partition":"`
	padHead       = `","pad":"`
	crcHead       = `","crc":"`
	crcTail       = `"}`
	poisonMark    = 'p'
)

// Append appends the payload's bytes, with pad bytes of filling that differ
// from entry to entry.
func (p Payload) Append(dst []byte, pad int) []byte {
	start := len(dst)
	dst = strconv.AppendUint(append(dst, uidHead...), p.UID, 10)
	dst = append(append(append(dst, partitionHead...), p.Partition...), padHead...)
	if p.Poison {
		dst = append(dst, poisonMark)
	}
	fill := byte('A' + p.UID%26)
	for range pad {
		dst = append(dst, fill)
	}
	sum := crc32.ChecksumIEEE(dst[start:])
	return append(fmt.Appendf(append(dst, crcHead...), "%08x", sum), crcTail...)
}

// ParsePayload reads what Append made. What it cannot read is not intact.
func ParsePayload(raw []byte) Payload {
	var p Payload
	body, sum, ok := bytes.Cut(raw, []byte(crcHead))
	if !ok || string(sum) != fmt.Sprintf("%08x", crc32.ChecksumIEEE(body))+crcTail {
		return p
	}
	rest, ok := bytes.CutPrefix(body, []byte(uidHead))
	uid, rest, ok2 := bytes.Cut(rest, []byte(partitionHead))
	name, pad, ok3 := bytes.Cut(rest, []byte(padHead))
	n, err := strconv.ParseUint(string(uid), 10, 64)
	if !ok || !ok2 || !ok3 || err != nil {
		return p
	}
	return Payload{UID: n, Partition: string(name), Poison: len(pad) > 0 && pad[0] == poisonMark, Intact: true}
}
