package lmstfy

import (
	"bytes"
	"net/url"
	"strings"
)

// Prefix begins the paths of the API.
const Prefix = "/api/"

// route is one method of one path.
type route struct {
	method  string
	pattern string // what follows /api/{namespace}/{queue}
	serve   func(*call) *rejection
	limit   string // what the limit of the token counts: limitProduce, limitConsume, or nothing
	open    bool   // needs no token
	many    bool   // the path names several queues
}

const (
	limitProduce = "produce"
	limitConsume = "consume"
)

// The paths are few, so a request finds its route by comparing.
var routes = []route{
	{method: "PUT", pattern: "", serve: (*call).publish, limit: limitProduce},
	{method: "PUT", pattern: "/bulk", serve: (*call).publishBulk, limit: limitProduce},
	{method: "PUT", pattern: "/job/:job_id", serve: (*call).republish, limit: limitProduce},
	{method: "GET", pattern: "", serve: (*call).consume, limit: limitConsume, many: true},
	{method: "GET", pattern: "/peek", serve: (*call).peek},
	{method: "GET", pattern: "/job/:job_id", serve: (*call).getJob},
	{method: "DELETE", pattern: "/job/:job_id", serve: (*call).ack},
	{method: "DELETE", pattern: "", serve: (*call).purge},
	{method: "GET", pattern: "/size", serve: (*call).size, open: true},
	{method: "GET", pattern: "/deadletter", serve: (*call).dead},
	{method: "GET", pattern: "/deadletter/size", serve: (*call).deadSize, open: true},
	{method: "PUT", pattern: "/deadletter", serve: (*call).respawn},
	{method: "DELETE", pattern: "/deadletter", serve: (*call).deleteDead},
}

// target is the names in a path.
type target struct {
	namespaceName, queue, id string
}

// match finds the route and the names of a request; false: there is no such route.
func (c *call) match() bool {
	rest, found := bytes.CutPrefix(c.Path(), []byte(Prefix)) // as it was sent
	if !found {
		return false
	}
	namespace, rest, found := bytes.Cut(rest, []byte{'/'})
	queue, rest, below := bytes.Cut(rest, []byte{'/'})
	if !found || len(queue) == 0 {
		return false
	}
	pattern := ""
	if below {
		if id, isJob := bytes.CutPrefix(rest, []byte("job/")); isJob {
			if len(id) == 0 || bytes.IndexByte(id, '/') >= 0 {
				return false
			}
			pattern, c.id = "/job/:job_id", unescape(id)
		} else {
			pattern = "/" + string(rest)
		}
	}
	method := c.Ctx.Method()
	for i := range routes {
		if r := &routes[i]; r.pattern == pattern && r.method == string(method) {
			c.route = r
			c.namespaceName, c.queue = unescape(namespace), unescape(queue)
			return true
		}
	}
	return false
}

// unescape decodes %-escapes; some clients send the comma between queues as one. A text
// that is no escape stays, and the '%' is no legal character of any name.
func unescape(segment []byte) string {
	text := string(segment)
	if bytes.IndexByte(segment, '%') < 0 {
		return text
	}
	if decoded, err := url.PathUnescape(text); err == nil {
		return decoded
	}
	return text
}

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
