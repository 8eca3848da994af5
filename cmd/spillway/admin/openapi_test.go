package admin

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/ingest/verb"
)

type apiFile struct {
	Paths      map[string]map[string]yaml.Node `yaml:"paths"`
	Components struct {
		Schemas map[string]struct {
			Properties map[string]yaml.Node `yaml:"properties"`
		} `yaml:"schemas"`
	} `yaml:"components"`
}

func readAPI(t *testing.T) (f apiFile) {
	t.Helper()
	if err := yaml.Unmarshal(openapi, &f); err != nil {
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

// answers are the types whose keys the file describes, by their names there.
var answers = []any{
	Info{}, You{}, StoreState{}, Overview{}, Finding{}, Findings{}, NamespaceOverview{}, Sink{}, Pause{}, PauseState{}, PausedPart{}, History{}, Drops{}, Drop{}, DropTotal{}, Deliveries{},
	Act{}, Account{}, PartitionList{}, SweepState{}, PartitionSums{}, PartitionRow{}, Peek{}, Entry{}, Purged{}, PurgeRequest{}, Letter{}, LetterList{}, Replayed{}, Deleted{}, DeleteRequest{}, ReplayRequest{},
	QueueOverview{}, QueueAccount{}, QueueList{}, QueueRow{}, Forecast{}, Job{}, DeadJobs{}, DeadCauses{}, DeadCause{}, JobPage{},
}

func TestTheOpenAPIFileHasTheKeysOfEveryAnswer(t *testing.T) {
	t.Parallel()
	f := readAPI(t)
	for _, answer := range answers {
		kind := reflect.TypeOf(answer)
		schema, ok := f.Components.Schemas[kind.Name()]
		if !ok {
			t.Errorf("there is no schema %s", kind.Name())
			continue
		}
		want := keysOf(kind)
		var got []string
		for key := range schema.Properties {
			got = append(got, key)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the file has %v, the answer %v", kind.Name(), got, want)
		}
	}
}

// keysOf are the JSON keys of a struct, with those of embedded ones.
func keysOf(kind reflect.Type) (keys []string) {
	for i := range kind.NumField() {
		field := kind.Field(i)
		if field.Anonymous {
			keys = append(keys, keysOf(field.Type)...)
			continue
		}
		if key, _, _ := strings.Cut(field.Tag.Get("json"), ","); key != "-" && field.IsExported() {
			keys = append(keys, key)
		}
	}
	return keys
}

func TestTheReferencesOfTheOpenAPIFileLeadSomewhere(t *testing.T) {
	t.Parallel()
	var file map[string]any
	if err := yaml.Unmarshal(openapi, &file); err != nil {
		t.Fatal(err)
	}
	references := regexp.MustCompile(`"#/([^"]+)"`).FindAllSubmatch(openapi, -1)
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

func TestTheOpenAPIFileHasEveryAction(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, row := range slices.Concat(verb.Rows, verb.Controls) {
		if found++; row.Acts() && row.Role != "" && !regexp.MustCompile(`action: \{enum: \[.*\b`+row.Name+`\b`).Match(openapi) {
			t.Errorf("the file lacks the action %s", row.Name)
		}
	}
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?:Action: +|actedOn\(.*)"([a-z_]+)"`).FindAllSubmatch(source, -1) {
			if found++; !regexp.MustCompile(`action: \{enum: \[.*\b` + string(m[1]) + `\b`).Match(openapi) {
				t.Errorf("%s: the file lacks the action %s", name, m[1])
			}
		}
	}
	if found < 15 {
		t.Errorf("found %d", found)
	}
}

func (rt route) method() string { return strings.Fields(rt.pattern)[0] }

func (rt route) path() string { return strings.Fields(rt.pattern)[1] }
