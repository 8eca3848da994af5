package elasticsearch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
)

// parse checks a document against the mapping, and notes the fields it adds.
func (x *index) parse(source []byte, added map[string]string) error {
	d := json.NewDecoder(bytes.NewReader(source))
	d.UseNumber()
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return errors.New("object expected")
	}
	if err := x.object(d, "", 1, added); err != nil {
		return err
	}
	if d.More() {
		return errors.New("more than one object")
	}
	if len(x.fields)+len(added) > 1000 {
		return errors.New("limit of total fields [1000] has been exceeded")
	}
	return nil
}

func (x *index) object(d *json.Decoder, path string, depth int, added map[string]string) error {
	if depth > 20 {
		return errors.New("limit of mapping depth [20] has been exceeded")
	}
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		switch {
		case seen[name]:
			return fmt.Errorf("duplicate field [%s]", name)
		case strings.TrimSpace(name) == "":
			return errors.New("field name cannot be an empty string")
		}
		seen[name] = true
		if err := x.value(d, path+"."+name, depth, added); err != nil {
			return err
		}
	}
	_, err := d.Token()
	return err
}

func (x *index) value(d *json.Decoder, path string, depth int, added map[string]string) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	kind := ""
	switch v := token.(type) {
	case json.Delim:
		if v == '[' {
			for d.More() {
				if err := x.value(d, path, depth, added); err != nil {
					return err
				}
			}
			_, err := d.Token()
			return err
		}
		kind = "object"
	case string:
		kind = "text"
	case bool:
		kind = "boolean"
	case json.Number:
		kind = "number"
		if _, err := strconv.ParseFloat(v.String(), 64); err != nil {
			return errors.New("number is not finite")
		}
	case nil:
		return nil
	}
	known := x.fields[path]
	if known == "" {
		known = added[path]
	}
	switch {
	case known == "":
		added[path] = kind
	case known != kind && (known != "text" || kind == "object"): // text takes numbers and booleans
		return fmt.Errorf("failed to parse field [%s] of type [%s]", path, known)
	}
	if kind == "object" {
		return x.object(d, path, depth+1, added)
	}
	return nil
}

// filtered is a JSON text with the paths of a filter_path only.
func filtered(t testing.TB, text []byte, paths []string) []byte {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Error(err)
	}
	var keep func(v any, rest [][]string) any
	keep = func(v any, rest [][]string) any {
		switch v := v.(type) {
		case []any:
			var list []any
			for _, e := range v {
				if k := keep(e, rest); k != nil {
					list = append(list, k)
				}
			}
			if list == nil {
				return nil
			}
			return list
		case map[string]any:
			out := map[string]any{}
			for name, value := range v {
				var deeper [][]string
				for _, path := range rest {
					if path[0] != name && path[0] != "*" {
						continue
					}
					if len(path) == 1 {
						out[name] = value
					} else {
						deeper = append(deeper, path[1:])
					}
				}
				if k := keep(value, deeper); k != nil && out[name] == nil {
					out[name] = k
				}
			}
			if len(out) == 0 {
				return nil
			}
			return out
		}
		return nil
	}
	var rest [][]string
	for _, path := range paths {
		rest = append(rest, strings.Split(path, "."))
	}
	out, err := json.Marshal(keep(v, rest))
	if err != nil {
		t.Error(err)
	}
	return out
}
