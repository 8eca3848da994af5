package admin

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

type apiFile struct {
	Paths map[string]map[string]yaml.Node `yaml:"paths"`
}

func readAPI(t *testing.T) (f apiFile) {
	t.Helper()
	if err := yaml.Unmarshal(openapi(), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestTheOpenAPIFileHasTheRoutesAndTheirRoles(t *testing.T) {
	t.Parallel()
	f := readAPI(t)
	s := New(Config{Source: func() View { return View{} }}, nil)
	var described, served []string
	for path, methods := range f.Paths {
		for method, node := range methods {
			if method == "parameters" {
				continue
			}
			var operation struct {
				Role    string `yaml:"x-role"`
				Summary string `yaml:"summary"`
			}
			if err := node.Decode(&operation); err != nil || operation.Summary == "" {
				t.Errorf("%s %s: no summary (%v)", method, path, err)
			}
			described = append(described, strings.ToUpper(method)+" "+path+" "+operation.Role)
		}
	}
	for _, rt := range s.routes() {
		if strings.HasPrefix(rt.path(), "/debug/") || strings.HasPrefix(rt.path(), "/console/") || rt.path() == "/{$}" {
			continue
		}
		role := "probe"
		if rt.role != probe {
			role = rt.role.String()
		}
		served = append(served, rt.method()+" "+rt.path()+" "+role)
	}
	slices.Sort(described)
	slices.Sort(served)
	if !slices.Equal(described, served) {
		t.Errorf("described\n%s\nserved\n%s", strings.Join(described, "\n"), strings.Join(served, "\n"))
	}
}

func TestTheReferencesOfTheOpenAPIFileLeadSomewhere(t *testing.T) {
	t.Parallel()
	var file map[string]any
	if err := yaml.Unmarshal(openapi(), &file); err != nil {
		t.Fatal(err)
	}
	references := regexp.MustCompile(`"#/([^"]+)"`).FindAllSubmatch(openapi(), -1)
	for _, m := range references {
		var at any = file
		for _, step := range strings.Split(string(m[1]), "/") {
			inner, _ := at.(map[string]any)
			at = inner[step]
		}
		if at == nil {
			t.Errorf("%s leads nowhere", m[1])
		}
	}
	if len(references) < 20 {
		t.Errorf("found %d references", len(references))
	}
}

func TestTheOpenAPIFileSaysWhatAnAnswerHas(t *testing.T) {
	t.Parallel()
	operation := readAPI(t).Paths["/api/v1/namespaces/{namespace}/partitions/{partition}"]["get"]
	text, err := yaml.Marshal(&operation)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"oldest_age_ms", "in_per_s", "type: number", "name: partition", "parameters/namespace", "depth"} {
		if !strings.Contains(string(text), want) && !strings.Contains(string(text), strings.ReplaceAll(want, ": ", `": "`)) {
			t.Errorf("no %s in %s", want, text)
		}
	}
}

func (rt route) method() string { return strings.Fields(rt.pattern)[0] }

func (rt route) path() string { return strings.Fields(rt.pattern)[1] }
