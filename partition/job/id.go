package job

import (
	"strconv"
	"strings"
)

// An id is 26 digits of Crockford's base 32, upper case, most significant first: 128 bits.
//
//	48 bits  ms since 1970 of the sequence
//	10 bits  µs of that ms
//	10 bits  shard
//	20 bits  hash of all these, namespace, queue and the caller's id
//	40 bits  mark: hash of the 88 bits before and the caller's id
//
// With a caller's id it is followed by '-' and that. Ids are in the order of their sequences.
// The hash tells an id of another queue or namespace from one of this queue without asking
// Redis. The mark tells an id that Spillway made, and so the name of a reply queue, from any
// other text of that form, such as a ULID: one in 10^12 of these has it. Neither is a secret.
const idLen = 26

// maxNumber is the highest number of a shard that an id has room for.
const maxNumber = 1023

const digits = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

const noDigit = 0xff

var digitValue = func() (values [256]byte) {
	for i := range values {
		values[i] = noDigit
	}
	for i := range len(digits) {
		values[digits[i]] = byte(i)
	}
	return values
}()

// Ref names a job of a queue.
type Ref struct {
	Shard    int
	Seq      int64  // µs since 1970, about; never used twice in a shard
	CallerID string // "": none
}

// text is how the scripts take it: the sequence, and behind a colon the caller's id.
func (r Ref) text() string {
	text := strconv.FormatInt(r.Seq, 10)
	if r.CallerID != "" {
		text += ":" + r.CallerID
	}
	return text
}

// AppendID appends the id of a job to dst.
func (n *Namespace) AppendID(dst []byte, shard int, queue string, seq int64,
	callerID string) []byte {
	high := uint64(seq/1000)<<16 | uint64(seq%1000)<<6 | uint64(shard)>>4                // #nosec G115 -- both are positive
	low := marked(high, uint64(shard)<<60|n.hash(shard, queue, seq, callerID), callerID) // #nosec G115 -- see above
	at := len(dst)
	dst = append(dst, "00000000000000000000000000"...)
	for i := at + idLen - 1; i >= at; i-- {
		dst[i] = digits[low&31]
		low = low>>5 | high<<59
		high >>= 5
	}
	if callerID != "" {
		dst = append(dst, '-')
		dst = append(dst, callerID...)
	}
	return dst
}

// ID is the id of a job.
func (n *Namespace) ID(shard int, queue string, seq int64, callerID string) string {
	var memory [idLen + 1 + MaxCallerIDLen]byte
	return string(n.AppendID(memory[:0], shard, queue, seq, callerID))
}

// ValidID reports whether id has the form of an id. It may be that of no job, of another
// queue, or of another namespace.
func ValidID(id string) bool {
	if len(id) < idLen || id[0] > '7' {
		return false
	}
	for i := range idLen {
		if digitValue[id[i]] == noDigit {
			return false
		}
	}
	return len(id) == idLen || id[idLen] == '-' && ValidCallerID(id[idLen+1:])
}

// ParseID reads an id that ID made for a job of this queue; the job may be gone. false: it
// is the id of no job of this queue.
func (n *Namespace) ParseID(queue, id string) (Ref, bool) {
	if !ValidID(id) {
		return Ref{}, false
	}
	high, low := bitsOf(id)
	r := Ref{Shard: int(high&63<<4 | low>>60), Seq: int64(high>>16)*1000 + int64(high>>6&1023)} // #nosec G115 -- 10 and 58 bits
	if len(id) > idLen {
		r.CallerID = strings.Clone(id[idLen+1:])
	}
	if high>>6&1023 > 999 || r.Seq < 1 || r.Seq >= 1<<53 {
		return Ref{}, false
	}
	return r, low == marked(high, low&^hashMask|n.hash(r.Shard, queue, r.Seq, r.CallerID), r.CallerID)
}

// IsReplyQueue reports whether a queue is named as the id of a job: its jobs live for at
// most Policy.ReplyTTL, and none of them becomes a dead letter.
func IsReplyQueue(queue string) bool {
	if !ValidID(queue) {
		return false
	}
	high, low := bitsOf(queue)
	return low == marked(high, low, strings.TrimPrefix(queue[idLen:], "-"))
}

// bitsOf are the 128 bits of an id that ValidID accepts.
func bitsOf(id string) (high, low uint64) {
	for i := range idLen {
		high = high<<5 | low>>59
		low = low<<5 | uint64(digitValue[id[i]])
	}
	return high, low
}

const (
	hashMask = 1<<60 - 1
	markMask = 1<<40 - 1
)

// marked puts the mark of an id into its low bits.
func marked(high, low uint64, callerID string) uint64 {
	low &^= markMask
	return low | mixed(hashed(seedOf(""), callerID)^high*0x9e3779b97f4a7c15^low)&markMask
}

// hash is FNV-1a of the parts, mixed so that each of them changes all bits. It is part of
// every id that clients keep. A name holds no zero byte.
func (n *Namespace) hash(shard int, queue string, seq int64, callerID string) uint64 {
	h := hashed(hashed(n.seed, queue)*fnvPrime, callerID)                      // a zero byte between them
	return mixed(h^uint64(seq<<10|int64(shard))*0x9e3779b97f4a7c15) & hashMask // #nosec G115 -- positive
}

// mixed is the finalizer of MurmurHash3.
func mixed(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// hashed is FNV-1a of text, behind what h has.
func hashed(h uint64, text string) uint64 {
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * fnvPrime
	}
	return h
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// seedOf is the state of hash after the namespace and a zero byte.
func seedOf(namespace string) uint64 { return hashed(fnvOffset, namespace) * fnvPrime }

// MaxCallerIDLen is the length of an id that a caller chooses, in bytes.
const MaxCallerIDLen = 64

// WithFollowUps is what jobs take of a token's rate: the follow-up that on_end asks for is one more job.
func WithFollowUps(jobs int, onEnd string) int {
	if onEnd != "" {
		return 2 * jobs
	}
	return jobs
}

// ValidCallerID reports whether s matches ^[A-Za-z0-9_-]{1,64}$.
func ValidCallerID[T string | []byte](s T) bool {
	if len(s) == 0 || len(s) > MaxCallerIDLen {
		return false
	}
	for i := range len(s) {
		if !idByte(s[i]) {
			return false
		}
	}
	return true
}

func idByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}
