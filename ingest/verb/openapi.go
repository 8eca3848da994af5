package verb

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

type object map[string]any

// Mark is the line of a port's openapi.yaml that stands for the paths of the table.
const Mark = "  # the table of verbs\n"

// Describe puts the paths of the table into the openapi.yaml of the data port, or of the admin port with
// its own rows.
func Describe(document []byte, admin bool, own ...*Row) []byte {
	var lines bytes.Buffer
	paths := map[string]object{}
	add := func(path string, r *Row) {
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path][strings.ToLower(r.Method())] = r.operation(admin)
	}
	for _, r := range slices.Concat(Rows, own) {
		if !admin && !r.Admin {
			add("/v1/{namespace}"+r.DataPath(), r)
		} else if admin && r.Role != "" {
			add(r.URL(), r)
		}
	}
	for path, methods := range paths {
		text, _ := json.Marshal(methods) // of texts; JSON is YAML
		fmt.Fprintf(&lines, "  %s: %s\n", path, text)
	}
	return bytes.Replace(document, []byte(Mark), lines.Bytes(), 1)
}

func reference(to string) object { return object{"$ref": "#/components/" + to} }

func content(schema any) object { return object{"application/json": object{"schema": schema}} }

func (r *Row) operation(admin bool) object {
	of := object{"operationId": r.Name, "summary": r.Help, "responses": object{
		"200": object{"description": "Done.", "content": content(schemaOf(r.answer))},
		"4XX": object{"description": "Rejected, with a code and a message."},
	}}
	params := []object{}
	if !r.Root {
		params = append(params, reference("parameters/namespace"))
	}
	if !r.Admin && !r.Root {
		of["tags"] = []string{"queues"}
	}
	if r.JSON && r.Acts() {
		of["requestBody"] = object{"required": true, "content": content(schemaOf(r.ask))}
	}
	for _, f := range r.Fields {
		schema := described(f.StructField)
		_, required := f.Tag.Lookup("required")
		if r.JSON && f.In == "query" {
			continue // of the body
		} else if f.In == "body" {
			of["requestBody"] = object{"required": true, "content": content(reference("schemas/" + f.Tag.Get("schema")))}
		} else {
			params = append(params, object{"name": f.Name, "in": f.In, "required": required || f.In == "path", "schema": schema})
		}
	}
	if admin {
		of["x-role"] = r.Role
	}
	if admin && r.Masked {
		params = append(params, reference("parameters/unmasked"))
	}
	of["parameters"] = params
	return of
}

// described is the schema of a field, with what its tags say.
func described(f reflect.StructField) object {
	schema, help := schemaOf(f.Type), f.Tag.Get("help")
	for _, tag := range []string{"default", "bounds", "enum"} {
		if text := f.Tag.Get(tag); text != "" {
			help += " " + tag + ": " + text + "."
		}
	}
	schema["description"] = help
	return schema
}

// schemaOf describes what is JSON of a type.
func schemaOf(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Duration](), t.Implements(reflect.TypeFor[encoding.TextMarshaler]()):
		return object{"type": "string"}
	case t == reflect.TypeFor[json.RawMessage]():
		return object{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Map:
		return object{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Struct:
		keys := object{}
		for _, f := range reflect.VisibleFields(t) {
			if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" && key != "-" {
				keys[key] = described(f)
			}
		}
		return object{"type": "object", "properties": keys}
	case reflect.Interface:
		return object{}
	case reflect.Float32, reflect.Float64:
		return object{"type": "number"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	}
	return object{"type": "integer"}
}
