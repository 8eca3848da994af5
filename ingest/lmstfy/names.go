package lmstfy

import (
	"strings"
)

const maxNameLen = 255 // bytes

// checkNames checks namespace and queue. A path of several queues has commas, and may be
// as long as a request line.
func (c *call) checkNames() *rejection {
	if !c.route.many && (len(c.namespaceName) > maxNameLen || len(c.queue) > maxNameLen) {
		return badRequest("namespace or queue name too long")
	}
	if !validName(c.namespaceName, "") {
		return badRequest("namespace name contains forbidden characters")
	}
	allowed := ""
	if c.route.many {
		allowed = ","
	}
	if !validName(c.queue, allowed) || !c.route.many && c.queue[0] == '_' {
		return badRequest("queue name contains forbidden characters")
	}
	return nil
}

// validName reports whether a name is letters, digits, '-', '_' and what else is allowed.
func validName(name, allowed string) bool {
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
		if !letter && strings.IndexByte(allowed, c) < 0 {
			return false
		}
	}
	return name != ""
}
