package control

import (
	"fmt"
	"maps"

	"github.com/spillway-io/spillway/partition/backend"
)

// A document is a copy of that in Redis. It never changes.
type document struct {
	version int64
	epoch   string // of the document in Redis: another one was made anew
	values  map[string]string
	entries map[string]any // by the same names: *Namespace, *Token, *Admin, or an error, why it is not used
}

// applied reads the answer of the script read. It returns d itself where nothing changed.
func (d *document) applied(c *backend.Call) (*document, error) {
	format, version := c.Rest.Int(), c.Rest.Int()
	epoch, whole := string(c.Rest.Bulk()), c.Rest.Int() == 1
	count := c.More - 4
	if c.Rest.Broken || count < 0 || count%2 != 0 {
		return nil, c.Misread()
	}
	if format > Format {
		return nil, backend.Wrap(backend.ErrIncompatible, fmt.Errorf(
			"the control document has format %d, and this version of Spillway understands %d: update it; until then the namespaces and tokens that "+
				"it read last stay in use", format, Format))
	}
	if !whole && count == 0 && version == d.version {
		return d, nil // nearly always
	}
	next := &document{version, epoch, map[string]string{}, map[string]any{}}
	if !whole {
		next.values, next.entries = maps.Clone(d.values), maps.Clone(d.entries)
	}
	for range count / 2 {
		name, value := string(c.Rest.Bulk()), string(c.Rest.Bulk())
		if value == "" {
			delete(next.values, name)
			delete(next.entries, name)
			continue
		}
		entry, known := d.entries[name]
		if !known || d.values[name] != value {
			var err error
			if entry, err = decodeEntry(name, value); err != nil {
				entry = err
			}
		}
		next.values[name], next.entries[name] = value, entry
	}
	switch {
	case c.Rest.Broken:
		return nil, c.Misread()
	case version == d.version && epoch == d.epoch && maps.Equal(next.values, d.values):
		return d, nil
	}
	return next, nil
}
