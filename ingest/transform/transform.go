// Package transform changes entries before they are buffered: it drops and samples some, takes out
// or masks fields, sets others, and names partitions. It is no language: each step is one of eight, in the
// order of the file, and a pass over the entry at most.
package transform

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/spillway-io/spillway/ingest/protocol"
	"github.com/spillway-io/spillway/ingest/wire"
)

// Step is one step of a Transform, in the form of the file: one of its fields is set. Paths are keys with dots
// between them, such as context.app.name, through objects only; see protocol.ParsePaths.
type Step struct {
	DropIf *Condition `yaml:"drop_if,omitempty"`
	Sample *Sample    `yaml:"sample,omitempty"`
	Keep   []string   `yaml:"keep,omitempty,flow"`   // nothing but these paths
	Remove []string   `yaml:"remove,omitempty,flow"` // these paths
	Rename *Rename    `yaml:"rename,omitempty"`
	Mask   *Mask      `yaml:"mask,omitempty"`
	Set    *Set       `yaml:"set,omitempty"`
	// PartitionPaths name the partition of entries whose URL names none, the first that has a text or a number.
	PartitionPaths []string `yaml:"partition_paths,omitempty,flow"`
}

// A Condition holds for entries with a text, a number or a boolean at a path, which is Equals, or has
// Contains in it. Without both it holds for entries that have the path.
type Condition struct {
	Path     string `yaml:"path"`
	Equals   string `yaml:"equals,omitempty"`
	Contains string `yaml:"contains,omitempty"`
}

// Sample keeps a share of the entries for which its condition holds, chosen at random; without a path, of all.
type Sample struct {
	Condition `yaml:",inline"`
	Keep      string `yaml:"keep"` // such as 10% or 0.5%
}

// Rename gives a field another key in the same object. One that has that key already is replaced.
type Rename struct {
	Path string `yaml:"path"`
	To   string `yaml:"to"`
}

// Mask replaces what is at paths by *** (As stars) or by a keyed hash (As hash), so that equal values stay
// equal. null stays null.
type Mask struct {
	Paths []string `yaml:"paths,flow"`
	As    string   `yaml:"as"`
	// Key makes hashes differ from those of others: whoever knows it can try values. Default: the
	// namespace's name.
	Key string `yaml:"key,omitempty"`
}

// Set puts a text, a number or a boolean at a path, also where there is none.
type Set struct {
	Path  string `yaml:"path"`
	Value any    `yaml:"value"`
}

// Bounds of a Transform. They bound the time that an entry takes.
const (
	MaxSteps = 32
	maxText  = 256 // bytes of equals, contains, key and value
)

// Transform is a checked list of steps. It never changes, and many may use it at once.
type Transform struct {
	steps []step
	hides bool // a step takes something out, or masks it
}

type step struct {
	why   wire.Reason // of an entry that is dropped
	holds *condition  // then; nil: for all entries
	keep  float64     // share of these that stays

	edit  edit
	tree  *node
	names protocol.Paths
}

type condition struct {
	path             []string
	equals, contains string
}

// Buffers are the memory of Apply, which is reused.
type Buffers [2][]byte

// Result is what became of an entry.
type Result struct {
	Data      []byte      // in the memory of Buffers, or the entry itself
	Partition string      // that a step named; empty: none did
	Dropped   wire.Reason // empty: it was not
	Opaque    bool        // it is no JSON object, and passed as it is
}

// Apply runs the steps on an entry. What is no JSON object passes as it is, but nobody can tell what
// may not be seen in what is no JSON: where a step hides something, it is dropped.
func (t *Transform) Apply(buffers *Buffers, data []byte) (r Result) {
	r.Data = data
	object := bytes.Trim(bytes.TrimPrefix(data, byteOrderMark), " \t\r\n")
	switch readable := wire.ValidJSON(object); {
	case !readable && t.hides:
		r.Dropped = wire.ReasonUnreadable
		return r
	case !readable, object[0] != '{':
		r.Opaque = true
		return r
	}
	r.Data = object
	for i := range t.steps {
		s := &t.steps[i]
		switch {
		case s.why != "":
			if (s.holds == nil || s.holds.of(r.Data)) && (s.keep == 0 || rand.Float64() >= s.keep) { // #nosec G404 -- a sample
				r.Dropped = s.why
				return r
			}
		case s.names != nil:
			if name := s.names.Of(r.Data); name != "" {
				r.Partition = name
			}
		default:
			buffers[0], buffers[1] = buffers[1], buffers[0] // r.Data may lie in what was the first
			buffers[0] = s.edit.object(buffers[0][:0], protocol.TextOf(r.Data), s.tree)
			r.Data = buffers[0]
		}
	}
	if len(r.Data) == 2 && len(object) > 2 { // {}
		r.Dropped = wire.ReasonEmptied
	}
	return r
}

// byteOrderMark begins texts of some programs, and is no part of what they say.
var byteOrderMark = []byte("\ufeff")

func (c *condition) of(data []byte) bool {
	value := protocol.TextOf(data)
	for _, key := range c.path {
		if value = child(value, key); value == "" {
			return false
		}
	}
	switch {
	case c.equals == "" && c.contains == "":
		return true
	case value[0] == '{' || value[0] == '[':
		return false
	case value[0] == '"':
		value = wire.Text(value)
	}
	return (c.equals == "" || value == c.equals) && (c.contains == "" || strings.Contains(value, c.contains))
}

// New checks steps. namespace keys the hashes of masks that have no key.
func New(namespace string, steps []Step) (*Transform, error) {
	if len(steps) > MaxSteps {
		return nil, fmt.Errorf("it has %d steps, and %d are the most", len(steps), MaxSteps)
	}
	t := &Transform{}
	for i, of := range steps {
		s, err := of.check(namespace)
		if err != nil {
			return nil, fmt.Errorf("step %d: %w", i+1, err)
		}
		t.steps = append(t.steps, s)
		t.hides = t.hides || of.Keep != nil || of.Remove != nil || of.Mask != nil
	}
	return t, nil
}

var errOneStep = errors.New("want one of drop_if, sample, keep, remove, rename, mask, set, partition_paths")

func (of Step) check(namespace string) (s step, err error) {
	given := 0
	for _, is := range []bool{
		of.DropIf != nil,
		of.Sample != nil,
		of.Keep != nil,
		of.Remove != nil,
		of.Rename != nil,
		of.Mask != nil,
		of.Set != nil,
		of.PartitionPaths != nil,
	} {
		if is {
			given++
		}
	}
	if given != 1 {
		return s, errOneStep
	}
	switch {
	case of.DropIf != nil:
		s.why = wire.ReasonFiltered
		s.holds, err = of.DropIf.check()
	case of.Sample != nil:
		s.why = wire.ReasonSampled
		if s.keep, err = share(of.Sample.Keep); err == nil && of.Sample.Condition != (Condition{}) {
			s.holds, err = of.Sample.check()
		}
	case of.Keep != nil:
		s.edit.do = keep
		s.tree, err = newTree(of.Keep)
	case of.Remove != nil:
		s.edit.do = remove
		s.tree, err = newTree(of.Remove)
	case of.Rename != nil:
		if of.Rename.To == "" || len(of.Rename.To) > maxText || strings.Contains(of.Rename.To, ".") {
			return s, errors.New("rename: to is a key without dots, of 256 bytes at most")
		}
		s.edit = edit{do: rename, text: quoted(of.Rename.To), key: of.Rename.To}
		s.tree, err = newTree([]string{of.Rename.Path})
	case of.Mask != nil:
		s.edit, err = of.Mask.check(namespace)
		if err == nil {
			s.tree, err = newTree(of.Mask.Paths)
		}
	case of.Set != nil:
		if s.edit, err = of.Set.check(); err == nil {
			s.tree, err = newTree([]string{of.Set.Path})
		}
	default:
		if s.names, err = protocol.ParsePaths(of.PartitionPaths); len(s.names) == 0 && err == nil {
			err = protocol.ErrPath
		}
	}
	return s, err
}

func (c *Condition) check() (*condition, error) {
	paths, err := protocol.ParsePaths([]string{c.Path})
	if err == nil && len(c.Equals)+len(c.Contains) > maxText {
		err = fmt.Errorf("equals and contains have %d bytes at most", maxText)
	}
	if err != nil {
		return nil, err
	}
	return &condition{paths[0], c.Equals, c.Contains}, nil
}

// share reads a percentage.
func share(text string) (kept float64, err error) {
	number, found := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if err != nil || !found || !(percent > 0 && percent < 100) {
		return 0, fmt.Errorf("keep: %.20q: want more than 0%% and less than 100%%, such as 10%%", text)
	}
	return percent / 100, nil
}
