package protocol

import (
	"errors"
	"strings"

	"github.com/tidwall/gjson"
)

const (
	// MaxPaths bounds Paths: each costs a look at every event.
	MaxPaths = 8
	// maxPathLen and maxPathKeys bound one path.
	maxPathLen  = 128
	maxPathKeys = 8
	// MaxPartitionLen is the longest name that PartitionName returns.
	MaxPartitionLen = 128
)

// ErrPath: a path is not one to eight keys with dots between them, 128 bytes at most.
var ErrPath = errors.New("not a path such as context.app.name")

// Paths are where an event may name its partition, the first that does counts. Each is
// the keys from the event down. They are plain keys: no wildcards, no indexes.
type Paths [][]string

// ParsePaths reads paths whose keys have dots between them, such as context.app.name.
func ParsePaths(list []string) (Paths, error) {
	if len(list) > MaxPaths {
		return nil, ErrPath
	}
	var paths Paths
	for _, text := range list {
		keys := strings.Split(text, ".")
		if len(text) > maxPathLen || len(keys) > maxPathKeys {
			return nil, ErrPath
		}
		for _, key := range keys {
			if key == "" {
				return nil, ErrPath
			}
		}
		paths = append(paths, keys)
	}
	return paths, nil
}

// Of returns the name at the first path that has one in an event, which is JSON.
func (p Paths) Of(event []byte) string {
	root := gjson.Parse(TextOf(event))
	var tops [MaxPaths]gjson.Result
	for i, path := range p {
		tops[i] = child(root, path[0])
	}
	return p.find(tops[:len(p)])
}

// find returns the name at the first path that has one. tops are the values of the
// first key of each path.
func (p Paths) find(tops []gjson.Result) string {
	for i, value := range tops {
		for _, key := range p[i][1:] {
			value = child(value, key)
		}
		name := ""
		switch value.Type {
		case gjson.String:
			name = PartitionName(value.Str)
		case gjson.Number:
			name = PartitionName(value.Raw)
		}
		if name != "" {
			return name
		}
	}
	return ""
}

// child is the value of a key of an object; of equal keys, the first one's.
func child(object gjson.Result, name string) (found gjson.Result) {
	if !object.IsObject() {
		return found
	}
	object.ForEach(func(key, value gjson.Result) bool {
		if key.Str == name {
			found = value
			return false
		}
		return true
	})
	return found
}

// PartitionName makes a partition's name of any text. What a name may not begin with is
// left out, each other character that it may not have becomes -, and it ends after 128
// bytes. It is empty when nothing is left.
func PartitionName(text string) string {
	start := 0
	for start < len(text) && !alphanumeric(text[start]) {
		start++
	}
	text = text[start:]
	valid := 0
	for valid < len(text) && valid < MaxPartitionLen && allowed(text[valid]) {
		valid++
	}
	if valid == len(text) || valid == MaxPartitionLen {
		return text[:valid]
	}
	name := make([]byte, 0, MaxPartitionLen)
	for _, c := range text {
		if len(name) == MaxPartitionLen {
			break
		}
		if c >= 0x80 || !allowed(byte(c)) {
			c = '-'
		}
		name = append(name, byte(c))
	}
	return string(name)
}

func alphanumeric(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

func allowed(c byte) bool { return alphanumeric(c) || c == '.' || c == '_' || c == '-' }
