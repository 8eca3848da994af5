package job

// Names appear in URLs, Redis keys and logs, so they are a subset of ASCII that needs no
// escaping. They hold no brace, colon or space, so no caller chooses a hash slot, and a
// member "<seq> <queue>" has one reading.
const (
	MaxQueueLen    = 255 // bytes
	MaxCallerIDLen = 64  // bytes
)

// ValidQueue reports whether s is a name that the store can keep jobs under:
// ^[A-Za-z0-9_-][A-Za-z0-9._-]{0,254}$. The native API also refuses a leading '_'.
func ValidQueue[T string | []byte](s T) bool {
	if len(s) == 0 || len(s) > MaxQueueLen || s[0] == '.' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !idByte(c) && c != '.' {
			return false
		}
	}
	return true
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
