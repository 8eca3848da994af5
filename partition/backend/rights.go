package backend

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// IsDenied reports whether an answer says that the user lacks a right. Redis 7.0 says it
// in other words inside of a script.
func IsDenied(text string) bool {
	return strings.HasPrefix(text, "NOPERM") ||
		strings.HasPrefix(text, "ERR The user executing the script can't")
}

// Denied reports whether an error says that the user lacks a right.
func Denied(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && IsDenied(answer.Error())
}

// Rights are the rights that the user lacks, as ACL SETUSER takes them; keysRight and
// channelsRight stand for the keys and the channels of wakes.
type Rights map[string]bool

const (
	keysRight     = "~"
	channelsRight = "&"
)

// Add notes that a command was rejected, and why: the user may not run it, or not on
// Spillway's keys or channels.
func (r Rights) Add(command, text string) {
	switch {
	case strings.Contains(text, "channel"):
		command = channelsRight
	case strings.Contains(text, " key"):
		command = keysRight
	}
	r[strings.ToLower(command)] = true
}

// Read adds what the answer of a permission probe of a namespace says is missing. where is on what it
// was tried, such as its shards. An error
// is another reason why a command failed: the server is in a state that passes, or holds a foreign
// value.
func (r Rights) Read(c *Call, namespace, where string) error {
	if c.Err != nil {
		return c.Err
	}
	for n := c.Rest.Int(); n > 0 && !c.Rest.Broken; n-- {
		command, text := string(c.Rest.Bulk()), string(c.Rest.Bulk())
		if !IsDenied(text) {
			err := Classify(AnsweredError(text))
			if errors.Is(err, ErrUnavailable) || strings.HasPrefix(text, "WRONGTYPE") {
				return err
			}
			return Wrap(ErrIncompatible, fmt.Errorf("namespace %s: %s fails on its %s: %s",
				namespace, command, where, text))
		}
		r.Add(command, text)
	}
	return nil
}

// Error names all of them, and what gives them on the servers at addrs, with the prefix of
// the keys. It Is ErrIncompatible.
func (r Rights) Error(addrs []string, prefix string) error {
	var names, grants []string
	for _, name := range slices.Sorted(maps.Keys(r)) {
		switch name {
		case keysRight:
			names, grants = append(names, "on the keys "+prefix+":{*}*"), append(grants, "'~"+prefix+":{*}*'")
		case channelsRight:
			names, grants = append(names, "on the channels "+prefix+":{*}:w:*"),
				append(grants, "'&"+prefix+":{*}:w:*'")
		default:
			names, grants = append(names, strings.ToUpper(name)), append(grants, "'+"+name+"'")
		}
	}
	return Wrap(ErrIncompatible, fmt.Errorf(
		"redis at %s: the user may not run %s: give it the rights with ACL SETUSER its-name %s; deploy/OPERATING.md lists all that it needs",
		strings.Join(addrs, ","), strings.Join(names, ", "), strings.Join(grants, " ")))
}

// IsWrongType is true for the WRONGTYPE error: the key holds a value of another type.
func IsWrongType(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && strings.HasPrefix(answer.Error(), "WRONGTYPE")
}
