package lua

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Header is the interface a script declares in its opening comment.
type Header struct {
	Name    string
	Purpose string   // the first line, without the name
	Keys    []Slot   // KEYS[1..]
	Args    []Slot   // ARGV[1..]
	Rest    bool     // the last ARGV repeats: ARGV[n..]
	KeyRest bool     // the last KEYS repeats: KEYS[n..]
	Returns []string // every shape of the reply
	Uses    []string // includes, in the order they are put before the script
}

// Slot is one declared KEYS or ARGV.
type Slot struct {
	Type, Text string
	Optional   bool
}

var (
	nameLine = regexp.MustCompile(`^-- ([a-z_]+): (.+)$`)
	slotLine = regexp.MustCompile(`^-- (KEYS|ARGV)\[(\d+)(\.\.)?\] +(\S+) +(.+)$`)
)

// ParseHeader reads the comment a script opens with.
func ParseHeader(source string) (Header, error) {
	var h Header
	for n, line := range strings.Split(source, "\n") {
		if !strings.HasPrefix(line, "--") {
			break
		}
		if n == 0 {
			m := nameLine.FindStringSubmatch(line)
			if m == nil {
				return h, errors.New(`header: the first line is not "-- name: purpose"`)
			}
			h.Name, h.Purpose = m[1], m[2]
			continue
		}
		if shape, ok := strings.CutPrefix(line, "-- RETURNS "); ok {
			h.Returns = append(h.Returns, shape)
			continue
		}
		if uses, ok := strings.CutPrefix(line, "-- USES "); ok {
			h.Uses = strings.Split(uses, ", ")
			continue
		}
		m := slotLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		slots, rest := &h.Keys, &h.KeyRest
		if m[1] == "ARGV" {
			slots, rest = &h.Args, &h.Rest
		}
		if *rest {
			return h, fmt.Errorf("header: line %d follows %s that repeat", n+1, m[1])
		}
		if m[2] != fmt.Sprint(len(*slots)+1) {
			return h, fmt.Errorf("header: line %d declares %s[%s] out of order", n+1, m[1], m[2])
		}
		*slots = append(*slots, Slot{m[4], m[5], strings.HasPrefix(m[5], "optional:")})
		*rest = m[3] != ""
	}
	if len(h.Keys) == 0 || len(h.Returns) == 0 {
		return h, errors.New("header: a script declares its KEYS and RETURNS")
	}
	return h, nil
}
