package backend

import (
	"fmt"
	"strconv"
	"strings"
)

// Slots is how many hash slots a Redis Cluster has.
const Slots = 16384

// Slot is the hash slot of a key with a hash tag: CRC-16/XMODEM of the tag.
func Slot(key string) int {
	_, tag, _ := strings.Cut(key, "{")
	tag, _, _ = strings.Cut(tag, "}")
	var crc uint16
	for i := range len(tag) {
		crc ^= uint16(tag[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % Slots
}

// ShardPrefix begins the keys of a shard of a namespace. Its hash tag keeps them in one slot:
// neither name may hold a brace.
func ShardPrefix(prefix, namespace string, shard int) string {
	return prefix + ":{" + namespace + "." + strconv.Itoa(shard) + "}:"
}

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
