package backend

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// Slots is how many hash slots a Redis Cluster has.
const Slots = 16384

// Slot is the hash slot of a key with a hash tag: CRC-16/XMODEM of the tag.
func Slot(key string) int {
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}")
	return int(crc16(0, tag)) % Slots
}

func crc16(crc uint16, text string) uint16 {
	for i := range len(text) {
		crc ^= uint16(text[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return crc
}

// ShardPrefix begins the keys of shard i of a namespace that has n. Its hash tag keeps them in one
// slot: neither name may hold a brace. The shards of a namespace are at equal distances around the
// slots of a cluster, so that masters that have equally many slots have equally many shards. Where
// shard 0 is does not depend on n: its ledger says what n is.
func ShardPrefix(prefix, namespace string, i, n int) string {
	first := namespace + ".0"
	if i == 0 {
		return prefix + ":{" + first + "}:"
	}
	slot := (int(crc16(0, first)) + i*Slots/n) % Slots
	start := namespace + "." + strconv.Itoa(i) + "-"
	return prefix + ":{" + start + tagEnd(crc16(0, start), slot) + "}:"
}

// tagEnd is the text behind which a hash tag that has crc so far hits a slot. CRCs are linear: what
// an end of four bytes adds to a CRC is the same behind every beginning.
func tagEnd(crc uint16, slot int) string {
	return tagEnds()[(int(crc16(crc, "\x00\x00\x00\x00"))^slot)%Slots]
}

// tagEnds are ends of four digits in base 36 by what they add to a slot.
var tagEnds = sync.OnceValue(func() (ends [Slots]string) {
	for n, left := int64(36*36*36), Slots; left > 0; n++ {
		end := strconv.FormatInt(n, 36)
		if at := crc16(0, end) % Slots; ends[at] == "" {
			ends[at] = end
			left--
		}
	}
	return ends
})

// KeptKeys is how many idempotency keys the field keys of a ledger counts, at a time in ms:
// pairs of when they end to count, in s, and their number.
func KeptKeys(text string, now int64) (kept int64) {
	var end, n int64
	for in := strings.NewReader(text); ; kept += n {
		if _, err := fmt.Fscan(in, &end, &n); err != nil {
			return kept
		} else if end*1000 <= now {
			n = 0
		}
	}
}

// ShardOf is the shard of a name: its FNV-1a, modulo the number of shards, 1 to 1024. It is
// part of the stored format.
func ShardOf(name string, shards int) int {
	if shards == 1 {
		return 0
	}
	h := uint32(2166136261)
	for i := 0; i < len(name); i++ {
		h = (h ^ uint32(name[i])) * 16777619
	}
	return int(h % uint32(shards)) // #nosec G115 -- shards are 1 to 1024
}
