package ingest

import (
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// document is what the tests read of openapi.yaml.
type document struct {
	OpenAPI string `yaml:"openapi"`
	Paths   map[string]map[string]struct {
		OperationID string               `yaml:"operationId"`
		Tags        []string             `yaml:"tags"`
		Responses   map[string]yaml.Node `yaml:"responses"`
	} `yaml:"paths"`
	Components struct {
		Schemas map[string]struct {
			Enum []string `yaml:"enum"`
		} `yaml:"schemas"`
	} `yaml:"components"`
}

func readDocument(t *testing.T) (d document) {
	t.Helper()
	// Parameters stand beside the methods of a path, and are a list.
	text := regexp.MustCompile(`(?m)^    parameters:\n(      - .*\n)+`).ReplaceAll(openAPI, nil)
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTheOpenAPIDocumentHasTheRoutes(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	if !strings.HasPrefix(d.OpenAPI, "3.1") {
		t.Errorf("openapi: %q", d.OpenAPI)
	}
	var want, got []string
	for _, r := range routes {
		want = append(want, r.method+" "+r.pattern+" "+r.name)
	}
	for path, methods := range d.Paths {
		for method, operation := range methods {
			if slices.Contains(operation.Tags, "queues") {
				continue // of the package jobs, which has a test of its own
			}
			got = append(got, strings.ToUpper(method)+" "+path+" "+operation.OperationID)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the document has\n%s\nand the server\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestTheOpenAPIDocumentHasTheCodesAndReasons(t *testing.T) {
	t.Parallel()
	d := readDocument(t)
	source, err := os.ReadFile("wire/codes.go")
	if err != nil {
		t.Fatal(err)
	}
	for schema, form := range map[string]string{"Code": `Code\w+ +Code += "(\w+)"`, "Reason": `Reason\w+ +Reason += "(\w+)"`} {
		var want []string
		for _, m := range regexp.MustCompile(form).FindAllStringSubmatch(string(source), -1) {
			want = append(want, m[1])
		}
		got := d.Components.Schemas[schema].Enum
		for _, name := range want {
			if !slices.Contains(got, name) {
				t.Errorf("the document's %s lacks %s", schema, name)
			}
		}
		if len(want) < 5 {
			t.Errorf("only %d constants of %s found: the test proves nothing", len(want), schema)
		}
	}
}

func TestTheOpenAPIDocumentIsServed(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	resp, err := p.client.Get("http://data.port/openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || string(text) != string(openAPI) || kind != "application/yaml" {
		t.Errorf("got %d %q %.60q", resp.StatusCode, kind, text)
	}
}
