package backend

import "strings"

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
