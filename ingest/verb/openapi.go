package verb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"time"
)

type object map[string]any

// Mark is the line of a port's openapi.yaml that stands for the paths of the table.
const Mark = "  # the table of verbs\n"

// Describe puts the paths of the table into the openapi.yaml of the data port, or of the admin port.
func Describe(document []byte, admin bool) []byte {
	var lines bytes.Buffer
	paths := map[string]object{}
	for _, r := range Rows {
		path := "/v1/{namespace}" + r.DataPath()
		if admin {
			path = "/api/v1/namespaces/{namespace}" + r.Path()
		}
		if admin && r.Role == "" {
			continue
		}
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path][strings.ToLower(r.Method())] = r.operation(admin)
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
	of := object{"operationId": r.Name, "summary": r.Help, "tags": []string{"queues"}, "responses": object{
		"200": object{"description": "Done.", "content": content(schemaOf(r.answer))},
		"4XX": object{"description": "Rejected, with a code and a message."},
	}}
	params := []object{reference("parameters/namespace")}
	for _, f := range r.Fields {
		schema, help := schemaOf(f.Type), f.Tag.Get("help")
		for _, tag := range []string{"default", "bounds", "enum"} {
			if text := f.Tag.Get(tag); text != "" {
				help += " " + tag + ": " + text + "."
			}
		}
		schema["description"] = help
		_, required := f.Tag.Lookup("required")
		if f.In == "body" {
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

// schemaOf describes what is JSON of a type.
func schemaOf(t reflect.Type) object {
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[time.Duration]():
		return object{"type": "string"}
	case reflect.TypeFor[json.RawMessage]():
		return object{}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Slice:
		return object{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Struct:
		keys := object{}
		for _, f := range reflect.VisibleFields(t) {
			if key, _, _ := strings.Cut(f.Tag.Get("json"), ","); key != "" {
				schema := schemaOf(f.Type)
				schema["description"] = f.Tag.Get("help")
				keys[key] = schema
			}
		}
		return object{"type": "object", "properties": keys}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.String:
		return object{"type": "string"}
	}
	return object{"type": "integer"}
}
