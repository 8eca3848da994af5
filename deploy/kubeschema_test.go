//go:build deploy

package deploy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// operatorVersion is that of the Prometheus operator whose objects the chart has.
const operatorVersion = "v0.85.0"

// kubernetesSchemas writes a JSON schema for each kind of Kubernetes and of the Prometheus
// operator, by the names that kubeconform looks for. They come from the modules of both,
// as released, and know every field: one that is misspelt is an error.
func kubernetesSchemas(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	var api struct{ Definitions map[string]map[string]any }
	swagger, err := os.ReadFile(filepath.Join(moduleDir(t, "k8s.io/kubernetes@v"+kubeVersion), "api/openapi-spec/swagger.json"))
	if err == nil {
		err = json.Unmarshal(swagger, &api)
	}
	if err != nil {
		t.Fatal(err)
	}
	for name, definition := range api.Definitions {
		switch {
		case strings.HasSuffix(name, ".IntOrString"), strings.HasSuffix(name, ".Quantity"):
			definition["type"] = []string{"string", "number"}
			delete(definition, "format")
		default:
			closeObjects(definition)
		}
	}
	kinds := 0
	for name, definition := range api.Definitions {
		list, _ := definition["x-kubernetes-group-version-kind"].([]any)
		if len(list) != 1 {
			continue // what many groups share
		}
		kinds++
		gvk := list[0].(map[string]any)
		schema := map[string]any{"$ref": "#/definitions/" + name, "definitions": reachable(api.Definitions, name)}
		writeSchema(t, dir, gvk["kind"].(string), gvk["group"].(string), gvk["version"].(string), schema)
	}
	if kinds < 50 {
		t.Fatalf("only %d kinds were found", kinds)
	}
	for _, plural := range []string{"servicemonitors", "prometheusrules"} {
		file := filepath.Join(moduleDir(t, "github.com/prometheus-operator/prometheus-operator@"+operatorVersion),
			"example/prometheus-operator-crd/monitoring.coreos.com_"+plural+".yaml")
		var crd struct {
			Spec struct {
				Group    string
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct {
						Schema map[string]any `yaml:"openAPIV3Schema"`
					}
				}
			}
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(text, &crd)
		}
		if err != nil {
			t.Fatal(err)
		}
		version := crd.Spec.Versions[0]
		closeObjects(version.Schema.Schema)
		writeSchema(t, dir, crd.Spec.Names.Kind, crd.Spec.Group, version.Name, version.Schema.Schema)
	}
	return dir
}

// moduleDir is where a module lies, downloaded if need be.
func moduleDir(t *testing.T, module string) string {
	t.Helper()
	var info struct{ Dir string }
	if err := json.Unmarshal([]byte(output(t, "go", "mod", "download", "-json", module)), &info); err != nil {
		t.Fatal(err)
	}
	return info.Dir
}

// closeObjects makes a schema reject properties that it does not name, at every depth.
func closeObjects(schema any) {
	switch s := schema.(type) {
	case map[string]any:
		_, named := s["properties"].(map[string]any)
		if _, open := s["additionalProperties"]; named && !open && s["x-kubernetes-preserve-unknown-fields"] != true {
			s["additionalProperties"] = false
		}
		for _, inner := range s {
			closeObjects(inner)
		}
	case []any:
		for _, inner := range s {
			closeObjects(inner)
		}
	}
}

var refPattern = regexp.MustCompile(`"#/definitions/([^"]+)"`)

// reachable are the definitions that one refers to, and itself.
func reachable(all map[string]map[string]any, name string) map[string]any {
	reached, todo := map[string]any{}, []string{name}
	for len(todo) > 0 {
		name, todo = todo[0], todo[1:]
		if _, ok := reached[name]; ok {
			continue
		}
		reached[name] = all[name]
		text, _ := json.Marshal(all[name]) // it came from JSON
		for _, m := range refPattern.FindAllSubmatch(text, -1) {
			todo = append(todo, string(m[1]))
		}
	}
	return reached
}

// writeSchema writes a file that kubeconform finds: the kind, the first word of the group, the version.
func writeSchema(t *testing.T, dir, kind, group, version string, schema any) {
	t.Helper()
	group, _, _ = strings.Cut(group, ".")
	name := kind + "-" + version
	if group != "" {
		name = kind + "-" + group + "-" + version
	}
	text, err := json.Marshal(schema)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, strings.ToLower(name)+".json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
