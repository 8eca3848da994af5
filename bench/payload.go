package bench

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// A payload is a JSON object with the entry's number, so that no two are alike,
// and padding:
//
//	{"n":"0000000042","pad":"xxxx…"}
const (
	payloadHead = `{"n":"`
	payloadMid  = `","pad":"`
	payloadTail = `"}`
	numberWidth = 10

	// MinPayload is the smallest payload in bytes: one without padding.
	MinPayload = len(payloadHead) + numberWidth + len(payloadMid) + len(payloadTail)
)

// Padding is what AppendPayload needs for payloads of size bytes, MinPayload at least.
func Padding(size int) string { return strings.Repeat("x", size-MinPayload) }

// AppendPayload appends the payload of entry n to dst.
func AppendPayload(dst []byte, n int64, padding string) []byte {
	dst = append(dst, payloadHead...)
	dst = appendPadded(dst, n)
	dst = append(dst, payloadMid...)
	dst = append(dst, padding...)
	return append(dst, payloadTail...)
}

// Payload is the payload of entry n, of size bytes.
func Payload(n int64, size int) string { return string(AppendPayload(nil, n, Padding(size))) }

// PayloadNumber reads the number of the entry that a payload belongs to.
func PayloadNumber(payload []byte) (int64, error) {
	rest, found := bytes.CutPrefix(payload, []byte(payloadHead))
	if !found || len(rest) < numberWidth {
		return 0, fmt.Errorf("read payload: no number in %.40q", payload)
	}
	return strconv.ParseInt(string(rest[:numberWidth]), 10, 64)
}

func appendPadded(dst []byte, n int64) []byte {
	var digits [numberWidth]byte
	for i := numberWidth - 1; i >= 0; i-- {
		digits[i] = byte('0' + n%10)
		n /= 10
	}
	return append(dst, digits[:]...)
}

// SampleGames is how many games send the events of a demonstration.
const SampleGames = 4

// games create one event each, in the form of the mixed route.
var games = [SampleGames]func() string{
	func() string {
		return fmt.Sprintf(`{"partition":"kart.%s","data":{"type":"lap","player":"p%02d","track":"%s","lap":%d,"ms":%d}}`,
			choose("eu-1", "eu-2", "us-1"), rand.N(24), choose("sunset", "glacier", "harbour"), 1+rand.N(3),
			41_000+rand.N(9_000))
	},
	func() string {
		return fmt.Sprintf(`{"partition":"chess.%s","data":{"type":"move","game":"g%d","ply":%d,"san":"%s","clock_ms":%d}}`,
			choose("blitz", "rapid"), 4000+rand.N(40), 1+rand.N(80),
			choose("e4", "Nf3", "O-O", "Bxc6", "Qd2", "exd5"), rand.N(180_000))
	},
	func() string {
		return fmt.Sprintf(`{"partition":"arena.match-7","data":{"type":"hit","by":"p%d","on":"p%d","weapon":"%s","damage":%d,"zone":"%s"}}`,
			rand.N(5), 5+rand.N(5), choose("bow", "axe", "frost"), 5+rand.N(90), choose("north", "mid", "south"))
	},
	func() string {
		return fmt.Sprintf(`{"partition":"farm.island-%d","data":{"type":"harvest","player":"p%03d","crop":"%s","yield":%d}}`,
			1+rand.N(3), rand.N(200), choose("wheat", "pumpkin", "tea"), 1+rand.N(12))
	},
}

// SampleEvent is a line for the mixed route: an event of one of the games.
func SampleEvent() []byte { return append([]byte(games[rand.N(len(games))]()), '\n') }

func choose(of ...string) string { return of[rand.N(len(of))] }
