package deploy

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// composeFile is the part of the compose file that the tests read.
type composeFile struct {
	Services map[string]struct {
		Image   string
		Command string
		Ports   []string
		Volumes []string
		Env     map[string]string       `yaml:"environment"`
		Health  struct{ Test []string } `yaml:"healthcheck"`
	}
	Volumes map[string]any
}

func compose(t *testing.T) composeFile {
	t.Helper()
	var file composeFile
	if err := yaml.Unmarshal([]byte(read(t, "deploy/compose.yaml")), &file); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestTheComposeFilePublishesToThisMachineOnly(t *testing.T) {
	t.Parallel()
	published := 0
	for name, service := range compose(t).Services {
		for _, port := range service.Ports {
			published++
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("port %s of %s is published to everybody, without tokens", port, name)
			}
		}
	}
	if published != 4 {
		t.Errorf("%d ports are published, want those of spillway, Prometheus and Grafana", published)
	}
}

func TestTheComposeFileMountsWhatExists(t *testing.T) {
	t.Parallel()
	file := compose(t)
	for name, service := range file.Services {
		for _, volume := range service.Volumes {
			source, rest, _ := strings.Cut(volume, ":")
			if !strings.HasPrefix(source, "./") {
				if _, ok := file.Volumes[source]; !ok {
					t.Errorf("%s: no volume %s", name, source)
				}
				continue
			}
			if _, err := os.Stat(source); err != nil { // as seen from deploy, as here
				t.Errorf("%s: %v", name, err)
			}
			if !strings.HasSuffix(rest, ":ro") {
				t.Errorf("%s may write to %s", name, source)
			}
		}
	}
}

// The health check of the container is run against the service it configures.
func TestTheComposeFileChecksTheHealthOfSpillway(t *testing.T) {
	t.Parallel()
	test := compose(t).Services["spillway"].Health.Test
	if len(test) < 3 || test[0] != "CMD" || test[1] != "/spillway" {
		t.Fatalf("got %q, want CMD /spillway and a command: the image has no shell", test)
	}
	n := newcomer{t: t}
	n.serve("--sink", "null:")
	output(t, binary, append(test[2:], "--admin", "http://"+n.admin)...)
}

func TestTheComposeFileConnectsPrometheusAndGrafana(t *testing.T) {
	t.Parallel()
	file := compose(t)
	mounted := func(service, path string) bool {
		return slices.ContainsFunc(file.Services[service].Volumes, func(v string) bool { return strings.Contains(v, ":"+path+":") })
	}
	config, _, _ := strings.Cut(strings.TrimPrefix(file.Services["prometheus"].Command, "--config.file="), " ")
	if !mounted("prometheus", config) {
		t.Errorf("Prometheus reads %s, which nothing mounts", config)
	}
	var prometheus struct {
		RuleFiles []string `yaml:"rule_files"`
		Jobs      []struct {
			Name    string                       `yaml:"job_name"`
			Honor   bool                         `yaml:"honor_labels"`
			Targets []struct{ Targets []string } `yaml:"static_configs"`
		} `yaml:"scrape_configs"`
	}
	var sources struct {
		Datasources []struct{ Type, URL string }
	}
	var boards struct {
		Providers []struct{ Options struct{ Path string } }
	}
	for path, into := range map[string]any{
		"deploy/prometheus/prometheus.yaml":                       &prometheus,
		"deploy/grafana/provisioning/datasources/prometheus.yaml": &sources,
		"deploy/grafana/provisioning/dashboards/spillway.yaml":    &boards,
	} {
		if err := yaml.Unmarshal([]byte(read(t, path)), into); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
	for _, rules := range prometheus.RuleFiles {
		if !mounted("prometheus", "/etc/prometheus/"+rules) {
			t.Errorf("the rules %s are not mounted beside the configuration", rules)
		}
	}
	_, port, _ := strings.Cut(file.Services["spillway"].Env["SPILLWAY_ADMIN_LISTEN"], ":")
	job := prometheus.Jobs[0]
	if target := "spillway:" + port; job.Targets[0].Targets[0] != target || !job.Honor {
		t.Errorf("Prometheus scrapes %v, want %s, whose label namespace it keeps", job, target)
	}
	if source := sources.Datasources[0]; source.Type != "prometheus" || source.URL != "http://prometheus:9090" {
		t.Errorf("Grafana asks %v, want the service prometheus", source)
	}
	folder := boards.Providers[0].Options.Path
	board := file.Services["grafana"].Env["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
	if !strings.HasPrefix(board, folder+"/") || !mounted("grafana", board) || !mounted("grafana", "/etc/grafana/provisioning") {
		t.Errorf("Grafana has no dashboard at %s in %s", board, folder)
	}
}
