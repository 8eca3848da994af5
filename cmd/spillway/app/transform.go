package app

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/ingest/transform"
)

// transformCmd shows what the transform of a namespace makes of entries.
type transformCmd struct {
	Namespace string        `arg:"" help:"Namespace of the file, of kind buffer."`
	Config    config.Config `embed:""`
}

// transformed is a line of its output.
type transformed struct {
	Result    string          `json:"result"` // kept, opaque, or the reason of the drop
	Partition string          `json:"partition,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	Text      string          `json:"text,omitempty"`   // of what is no JSON
	Base64    []byte          `json:"base64,omitempty"` // of what is no text either
}

func (c *transformCmd) Run(p config.Process) error {
	if err := c.Config.Load(p); err != nil {
		return err
	}
	t, err := c.Config.TransformOf(c.Namespace)
	if err == nil && t == nil {
		err = fmt.Errorf("namespace %s has no transform", c.Namespace)
	}
	if err != nil {
		return config.Usage(err)
	}
	out := json.NewEncoder(p.Stdout)
	out.SetEscapeHTML(false)
	var buffers transform.Buffers
	lines := bufio.NewScanner(p.Stdin)
	lines.Buffer(nil, int(c.Config.MaxEntry)+1)
	for lines.Scan() {
		if len(lines.Bytes()) == 0 {
			continue
		}
		r := t.Apply(&buffers, lines.Bytes())
		line := transformed{Result: "kept", Partition: r.Partition}
		switch {
		case r.Dropped != "":
			line.Result = string(r.Dropped)
		case !r.Opaque:
			line.Data = r.Data
		default:
			line.Result = "opaque"
			switch {
			case json.Valid(r.Data):
				line.Data = r.Data
			case utf8.Valid(r.Data):
				line.Text = string(r.Data)
			default:
				line.Base64 = r.Data
			}
		}
		if err := out.Encode(line); err != nil {
			return fmt.Errorf("write a line: %w", err)
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		return fmt.Errorf("a line is longer than max_entry, %d bytes", int(c.Config.MaxEntry))
	} else if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	return nil
}
