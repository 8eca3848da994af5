package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/partition"
)

// line is a line of the input that is not blank.
type line struct {
	number  int    // from 1
	text    []byte // without the newline; nil when too long
	tooLong bool
	more    bool // another line is buffered already
}

// readLines sends the lines of r until r or ctx ends. A read that blocks does not
// end with ctx: nothing can interrupt a read from a terminal.
func readLines(ctx context.Context, r io.Reader, to chan<- line) error {
	// A line is too long if it does not fit into the buffer, so memory is bounded.
	b := bufio.NewReaderSize(r, maxLine)
	for number := 1; ; number++ {
		text, err := b.ReadSlice('\n')
		l := line{number: number}
		for errors.Is(err, bufio.ErrBufferFull) {
			l.tooLong = true
			text, err = b.ReadSlice('\n')
		}
		if !l.tooLong {
			l.text = bytes.Clone(bytes.TrimSpace(text))
		}
		if buffered, peekErr := b.Peek(b.Buffered()); peekErr == nil {
			l.more = bytes.IndexByte(buffered, '\n') >= 0
		}
		if l.tooLong || len(l.text) > 0 {
			select {
			case to <- l:
			case <-ctx.Done():
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read line %d: %w", number, err)
		}
	}
}

// item is an entry, encoded as a line of a request.
type item struct {
	encoded []byte
	offset  time.Duration // since the first event; replays only
}

// item validates a line and encodes it for the mixed route. Unknown keys are
// ignored, so that the output of a file: sink can be sent again. A replay leaves
// out ts, because the times are those of another day.
func (l line) item(replay bool) (item, error) {
	if l.tooLong {
		return item{}, fmt.Errorf("longer than %d bytes", maxLine)
	}
	root := gjson.ParseBytes(l.text)
	if !gjson.ValidBytes(l.text) || !root.IsObject() {
		return item{}, errors.New("not a JSON object")
	}
	fields := map[string]gjson.Result{}
	root.ForEach(func(key, value gjson.Result) bool {
		fields[key.String()] = value
		return true
	})
	name := fields["partition"]
	id := fields["id"]
	ts := fields["ts"]
	offset := fields["offset_ms"]
	switch {
	case name.Type != gjson.String || !partition.ValidPartition(name.String()):
		return item{}, errors.New("partition is missing or not a name: want 1 to 128 letters, digits, dots, dashes and underscores")
	case !fields["data"].Exists():
		return item{}, errors.New("data is missing")
	case id.Exists() && (id.Type != gjson.String || !partition.ValidID(id.String())):
		return item{}, errors.New("id is not 1 to 64 printable characters without a space")
	case ts.Exists() && !isInteger(ts):
		return item{}, errors.New("ts is not a whole number of milliseconds since 1970")
	case replay && !isInteger(offset):
		return item{}, errors.New("offset_ms is missing or not a whole number, and --replay-speed needs it")
	}
	encoded := append(make([]byte, 0, len(l.text)), `{"partition":"`...)
	encoded = append(append(encoded, name.String()...), '"')
	if id.Exists() {
		encoded = append(append(encoded, `,"id":`...), id.Raw...)
	}
	if ts.Exists() && !replay {
		encoded = append(append(encoded, `,"ts":`...), ts.Raw...)
	}
	encoded = append(append(encoded, `,"data":`...), fields["data"].Raw...)
	return item{append(encoded, '}', '\n'), time.Duration(offset.Int()) * time.Millisecond}, nil
}

func isInteger(r gjson.Result) bool {
	_, err := strconv.ParseInt(r.Raw, 10, 64)
	return err == nil && r.Type == gjson.Number
}
