package verb

import (
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// A Field is one of what a verb asks, and where it is in a request.
type Field struct {
	reflect.StructField
	In   string // path, header, body or query
	Name string
}

func (r *Row) field(f reflect.StructField) Field {
	name := snake(f.Name)
	header, isHeader := f.Tag.Lookup("header")
	switch {
	case f.Type == reflect.TypeFor[json.RawMessage]():
		return Field{f, "body", name}
	case isHeader:
		return Field{f, "header", header}
	case strings.Contains(r.Route, "{"+name+"}"):
		return Field{f, "path", name}
	}
	return Field{f, "query", name}
}

var words = regexp.MustCompile(`[a-z][A-Z]`)

// snake is limit_to of LimitTo, and ttl of TTL.
func snake(name string) string {
	return strings.ToLower(words.ReplaceAllStringFunc(name, func(two string) string { return two[:1] + "_" + two[1:] }))
}

// Params are the names of the parameters.
func (r *Row) Params() (names []string) {
	for _, f := range r.Fields {
		if f.In == "query" {
			names = append(names, f.Name)
		}
	}
	return names
}

// HasBody reports whether the body is a field, and whole.
func (r *Row) HasBody() bool {
	return slices.ContainsFunc(r.Fields, func(f Field) bool { return f.In == "body" })
}

// Read makes what a verb asks of parameters, of names in the path and headers, and of a body.
func (r *Row) Read(args map[string]string, at func(in, name string) string, body []byte) (any, error) {
	known := r.Params()
	for name := range args {
		if !slices.Contains(known, name) {
			return nil, wire.Rejectf(wire.CodeBadParameter, "%.64q: the parameters of this route are %v", name, known)
		}
	}
	ask := reflect.New(r.ask)
	for _, f := range r.Fields {
		text, given := args[f.Name]
		switch f.In {
		case "body":
			if text, given = string(body), true; text == "" {
				return nil, wire.Reject(wire.CodeEmptyBody)
			}
		case "path", "header":
			text = at(f.In, f.Name)
			given = f.In == "path" || text != ""
		}
		if !given {
			text, given = f.Tag.Lookup("default")
		}
		_, required := f.Tag.Lookup("required")
		if want, ok := "", true; given {
			if want, ok = f.set(ask.Elem().FieldByIndex(f.Index), text); !ok {
				return nil, f.wrong(want)
			}
		} else if required {
			want, _ := f.among("")
			return nil, f.wrong(want)
		}
	}
	return ask.Interface(), nil
}

// names are the fields that are names, and what is answered where they are none.
var names = map[string]struct {
	valid func(string) bool
	code  wire.Code
}{
	"queue":     {partition.ValidQueue[string], wire.CodeBadQueue},
	"schedule":  {partition.ValidScheduleName, wire.CodeBadName},
	"owner":     {partition.ValidScheduleName, wire.CodeBadName},
	"partition": {partition.ValidPartition[string], wire.CodeBadPartition},
}

// wrong rejects a value of a field. Without what it wants the code says that, if it is of the field.
func (f Field) wrong(want string) error {
	code := wire.Code("bad_" + f.Name)
	if is, ok := names[f.Name]; ok {
		code = is.code
	} else if _, ok := wire.Responses[code]; !ok {
		code = wire.CodeBadParameter
	}
	if want == "" && code == wire.CodeBadParameter {
		return wire.Rejectf(code, "%s is missing or empty", f.Name)
	} else if want == "" {
		return wire.Reject(code)
	}
	return wire.Rejectf(code, "%s is %s", f.Name, want)
}

// among reports whether a text is one that a field may have.
func (f Field) among(text string) (want string, ok bool) {
	if is, named := names[f.Name]; named {
		return "", is.valid(text)
	}
	words, some := f.Tag.Lookup("enum")
	list := strings.Split(words, ",")
	return strings.Join(list, " or "), !some || slices.Contains(list, text)
}

// set reads a field, within its bounds.
func (f Field) set(v reflect.Value, text string) (want string, ok bool) {
	low, high, _ := strings.Cut(f.Tag.Get("bounds"), "..")
	var err error
	switch p := v.Addr().Interface().(type) {
	case *string:
		*p = text
		return f.among(text)
	case **string: // an empty one is of a variable that is not set
		if *p = &text; text == "" {
			return "", false
		}
		return f.among(text)
	case *[]string: // an empty one would select all
		err = json.Unmarshal([]byte(text), p)
		return "a list of texts, none of them empty", err == nil && len(*p) > 0 && !slices.Contains(*p, "")
	case *json.RawMessage:
		*p = json.RawMessage(text)
	case *bool:
		*p, err = strconv.ParseBool(text)
		return "1 or 0", err == nil
	case *time.Time:
		*p, err = time.Parse(time.RFC3339, text)
		return "a time of RFC 3339 from 1970 to 2199, such as 2026-12-01T02:30:00Z", err == nil && p.Year() >= 1970 && p.Year() < 2200
	case *time.Duration:
		*p, err = time.ParseDuration(text)
		from, _ := time.ParseDuration(low)
		to, _ := time.ParseDuration(high)
		return fmt.Sprintf("a duration such as 500ms, 5s or 1h30m, from %v to %v", from, to), err == nil && *p >= from && *p <= to
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		from, _ := strconv.ParseInt(low, 10, 64)
		to, _ := strconv.ParseInt(high, 10, 64)
		v.SetInt(n)
		return fmt.Sprintf("a number from %d to %d", from, to), err == nil && n >= from && n <= to
	}
	return "", true
}

// Write is the reverse of Read. Values that are zero are left out where that is the default.
func (r *Row) Write(ask any) (args, rest map[string]string, body []byte) {
	args, rest = map[string]string{}, map[string]string{}
	for _, f := range r.Fields {
		v, text := reflect.ValueOf(ask).Elem().FieldByIndex(f.Index), ""
		switch value := v.Interface().(type) {
		case json.RawMessage:
			body = value
			continue
		case time.Time:
			text = value.Format(time.RFC3339)
		case bool:
			text = "1"
		case *string:
			if value != nil {
				text = *value
			}
		case []string:
			list, _ := json.Marshal(value)
			text = string(list)
		default:
			text = fmt.Sprint(value)
		}
		if f.In != "query" {
			rest[f.Name] = text
		} else if standard := f.Tag.Get("default"); !v.IsZero() || standard != "" && standard != "0" {
			args[f.Name] = text // somebody asked for zero
		}
	}
	return args, rest, body
}
