package partition

// Names appear in URLs, Redis keys, file names and logs, so both kinds are a subset of
// ASCII that needs no escaping anywhere. They hold no brace, so the only hash tag of a
// key is that of its shard, and a caller cannot choose a cluster slot.
const (
	MaxNamespaceLen = 64  // bytes
	MaxPartitionLen = 128 // bytes
)

// ValidNamespace reports whether s matches ^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$.
func ValidNamespace[T string | []byte](s T) bool { return validName(s, MaxNamespaceLen) }

// ValidPartition reports whether s matches ^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$.
func ValidPartition[T string | []byte](s T) bool { return validName(s, MaxPartitionLen) }

func validName[T string | []byte](s T, maxLen int) bool {
	if len(s) == 0 || len(s) > maxLen || !alphanumeric(s[0]) {
		return false
	}
	for i := 1; i < len(s); i++ {
		if c := s[i]; !alphanumeric(c) && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}
