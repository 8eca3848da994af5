package backend

import (
	"errors"
	"io"
	"slices"
)

// errReply: the reply of a script does not have the form that its header declares.
var errReply = errors.New("malformed reply")

// Reply takes the raw RESP of a script's reply from the connection. It is parsed in
// place, without a string and an interface per entry. It is the io.Writer of a
// redis.RawWriteToCmd.
type Reply struct{ Raw []byte }

// Write appends. It returns an error reply as an error, so that the client reacts to
// it: it follows MOVED and drops the connection to a READONLY server.
func (r *Reply) Write(p []byte) (int, error) {
	if len(r.Raw) == 0 && len(p) > 0 && p[0] == '-' {
		return 0, AnsweredError(p[1:])
	}
	r.Raw = append(r.Raw, p...)
	return len(p), nil
}

// ReadFrom takes a bulk string, which the client copies with io.CopyN.
func (r *Reply) ReadFrom(src io.Reader) (int64, error) {
	bulk, ok := src.(*io.LimitedReader)
	if !ok {
		return io.Copy(struct{ io.Writer }{r}, src)
	}
	at, n := len(r.Raw), int(bulk.N)
	r.Raw = slices.Grow(r.Raw, n)
	read, err := io.ReadFull(bulk, r.Raw[at:at+n])
	r.Raw = r.Raw[:at+read]
	return int64(read), err
}

// AnsweredError is an error reply of Redis; it is a redis.Error.
type AnsweredError string

func (e AnsweredError) Error() string { return string(e) }

// RedisError marks it as an error of Redis, not of the connection.
func (AnsweredError) RedisError() {}

// A Cursor reads the values of a reply in order. After a value of another kind than
// the one asked for it is broken, and returns zero values.
type Cursor struct {
	Rest   []byte
	Broken bool
}

// Array enters an array and returns how many values it holds.
func (c *Cursor) Array() int {
	n := int(c.header('*'))
	if n < 0 || n > len(c.Rest) {
		c.Broken = true
		return 0
	}
	return n
}

// Int reads an integer.
func (c *Cursor) Int() int64 { return c.header(':') }

// IsBulk reports whether the next value is a string.
func (c *Cursor) IsBulk() bool { return len(c.Rest) > 0 && c.Rest[0] == '$' }

// Bulk reads a string, without a copy.
func (c *Cursor) Bulk() []byte {
	n := int(c.header('$'))
	if n < 0 || len(c.Rest) < n+2 {
		c.Broken = true
	}
	if c.Broken {
		return nil
	}
	text := c.Rest[:n:n]
	c.Rest = c.Rest[n+2:]
	return text
}

// header reads the number in the first line of a value of the given kind.
func (c *Cursor) header(kind byte) (n int64) {
	if c.Broken || len(c.Rest) < 4 || c.Rest[0] != kind {
		c.Broken = true
		return 0
	}
	i, negative := 1, c.Rest[1] == '-'
	if negative {
		i++
	}
	for ; i < len(c.Rest) && c.Rest[i] >= '0' && c.Rest[i] <= '9'; i++ {
		n = n*10 + int64(c.Rest[i]-'0')
	}
	if len(c.Rest) < i+2 || c.Rest[i] != '\r' {
		c.Broken = true
		return 0
	}
	c.Rest = c.Rest[i+2:]
	if negative {
		return -n
	}
	return n
}
