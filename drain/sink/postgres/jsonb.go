package postgres

import "bytes"

// Of valid JSON, jsonb rejects some escapes, because its strings are texts of the database, and
// some numbers, because they are of the type numeric.

// goodEscapes reports whether the \u escapes of valid JSON are characters other than NUL.
func goodEscapes(p []byte) bool {
	for {
		i := bytes.IndexByte(p, '\\')
		if i < 0 {
			return true
		}
		if p[i+1] != 'u' {
			p = p[i+2:]
			continue
		}
		r := hex4(p[i+2:])
		p = p[i+6:]
		switch {
		case r == 0, r >= 0xdc00 && r < 0xe000:
			return false
		case r >= 0xd800 && r < 0xdc00:
			if len(p) < 6 || p[0] != '\\' || p[1] != 'u' {
				return false
			}
			if low := hex4(p[2:]); low < 0xdc00 || low >= 0xe000 {
				return false
			}
			p = p[6:]
		}
	}
}

// hex4 is the value of four hex digits.
func hex4(p []byte) (n rune) {
	for _, c := range p[:4] {
		switch {
		case c <= '9':
			c -= '0'
		default:
			c = c&^0x20 - 'A' + 10
		}
		n = n<<4 | rune(c)
	}
	return n
}

// Of the type numeric: most digits before and after the point, and the first exponent that it
// does not read. src/backend/utils/adt/numeric.c of PostgreSQL.
const (
	maxWhole, maxFraction = 131_072, 16_383
	exponentLimit         = 1<<30 - 1
)

// goodNumbers reports whether the numbers of valid JSON fit into numeric.
func goodNumbers(p []byte) bool {
	for i := 0; i < len(p); {
		switch c := p[i]; {
		case c == '"':
			for i++; p[i] != '"'; i++ {
				if p[i] == '\\' {
					i++
				}
			}
			i++
		case c >= '0' && c <= '9':
			n, ok := goodNumber(p[i:])
			if !ok {
				return false
			}
			i += n
		default:
			i++
		}
	}
	return true
}

// goodNumber measures the number that p begins with: n is its length.
func goodNumber(p []byte) (n int, ok bool) {
	whole, fraction := 0, 0 // digits before the point from the first that is not 0, and all behind it
	zero, point := true, false
	for ; n < len(p) && (p[n] >= '0' && p[n] <= '9' || p[n] == '.'); n++ {
		switch {
		case p[n] == '.':
			point = true
			continue
		case p[n] != '0':
			zero = false
		}
		switch {
		case point && zero:
			whole-- // 0.001 has its first digit two behind the point
			fraction++
		case point:
			fraction++
		case !zero:
			whole++
		}
	}
	exponent := 0
	if n < len(p) && p[n]|0x20 == 'e' {
		n++
		negative := p[n] == '-'
		if negative || p[n] == '+' {
			n++
		}
		for ; n < len(p) && p[n] >= '0' && p[n] <= '9'; n++ {
			exponent = min(exponent*10+int(p[n]-'0'), exponentLimit)
		}
		if exponent == exponentLimit {
			return n, false
		}
		if negative {
			exponent = -exponent
		}
	}
	return n, fraction-exponent <= maxFraction && (zero || whole+exponent <= maxWhole)
}
