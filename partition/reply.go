package partition

import (
	"errors"
	"io"
	"slices"
)

// errReply: the reply of a script does not have the form that its header declares.
var errReply = errors.New("malformed reply")

// reply takes the raw RESP of a script's reply from the connection. It is parsed in
// place, without a string and an interface per entry. It is the io.Writer of a
// redis.RawWriteToCmd.
type reply struct{ raw []byte }

// Write appends. It returns an error reply as an error, so that the client reacts to
// it: it follows MOVED and drops the connection to a READONLY server.
func (r *reply) Write(p []byte) (int, error) {
	if len(r.raw) == 0 && len(p) > 0 && p[0] == '-' {
		return 0, answeredError(p[1:])
	}
	r.raw = append(r.raw, p...)
	return len(p), nil
}

// ReadFrom takes a bulk string, which the client copies with io.CopyN.
func (r *reply) ReadFrom(src io.Reader) (int64, error) {
	bulk, ok := src.(*io.LimitedReader)
	if !ok {
		return io.Copy(struct{ io.Writer }{r}, src)
	}
	at, n := len(r.raw), int(bulk.N)
	r.raw = slices.Grow(r.raw, n)
	read, err := io.ReadFull(bulk, r.raw[at:at+n])
	r.raw = r.raw[:at+read]
	return int64(read), err
}

// answeredError is an error reply of Redis; it is a redis.Error.
type answeredError string

func (e answeredError) Error() string { return string(e) }

// RedisError marks it as an error of Redis, not of the connection.
func (answeredError) RedisError() {}

// A cursor reads the values of a reply in order. After a value of another kind than
// the one asked for it is broken, and returns zero values.
type cursor struct {
	rest   []byte
	broken bool
}

// array enters an array and returns how many values it holds.
func (c *cursor) array() int {
	n := int(c.header('*'))
	if n < 0 || n > len(c.rest) {
		c.broken = true
		return 0
	}
	return n
}

// whole reads an integer.
func (c *cursor) whole() int64 { return c.header(':') }

// isBulk reports whether the next value is a string.
func (c *cursor) isBulk() bool { return len(c.rest) > 0 && c.rest[0] == '$' }

// bulk reads a string, without a copy.
func (c *cursor) bulk() []byte {
	n := int(c.header('$'))
	if n < 0 || len(c.rest) < n+2 {
		c.broken = true
	}
	if c.broken {
		return nil
	}
	text := c.rest[:n:n]
	c.rest = c.rest[n+2:]
	return text
}

// header reads the number in the first line of a value of the given kind.
func (c *cursor) header(kind byte) (n int64) {
	if c.broken || len(c.rest) < 4 || c.rest[0] != kind {
		c.broken = true
		return 0
	}
	i, negative := 1, c.rest[1] == '-'
	if negative {
		i++
	}
	for ; i < len(c.rest) && c.rest[i] >= '0' && c.rest[i] <= '9'; i++ {
		n = n*10 + int64(c.rest[i]-'0')
	}
	if len(c.rest) < i+2 || c.rest[i] != '\r' {
		c.broken = true
		return 0
	}
	c.rest = c.rest[i+2:]
	if negative {
		return -n
	}
	return n
}
