//go:build deploy

package deploy

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const (
	chart = "deploy/helm/spillway"
	// kubeVersion is what the chart is rendered for, and whose schemas its objects follow.
	kubeVersion = "1.35.4"
)

var update = flag.Bool("update", false, "rewrite the golden manifests of the chart")

// valueSets are the values that the chart is rendered with, as files in helm/testdata.
var valueSets = []string{"small", "split", "open"}

// render is what helm makes of the chart.
func render(t *testing.T, args ...string) string {
	t.Helper()
	args = append([]string{"template", "kart", chart, "--namespace", "games", "--kube-version", kubeVersion}, args...)
	cmd := exec.CommandContext(t.Context(), "helm", args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("helm %v: %v\n%s", args, err, &stderr)
	}
	return string(out)
}

func values(set string) string { return "deploy/helm/testdata/" + set + ".values.yaml" }

// An object of Kubernetes, as far as the tests read it.
type object struct {
	Kind     string
	Metadata struct{ Name string }
	Data     map[string]string
	Spec     map[string]any
}

func objects(t *testing.T, manifest string) (all []object) {
	t.Helper()
	for dec := yaml.NewDecoder(strings.NewReader(manifest)); ; {
		var o object
		if err := dec.Decode(&o); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, o)
	}
}

func TestHelmLintHasNoComplaint(t *testing.T) {
	t.Parallel()
	for _, set := range valueSets {
		output(t, "helm", "lint", "--strict", "--kube-version", kubeVersion, "-f", values(set), chart)
	}
}

func TestHelmManifestsAreGolden(t *testing.T) {
	t.Parallel()
	for _, set := range valueSets {
		got, golden := render(t, "-f", values(set)), "deploy/helm/testdata/"+set+".golden.yaml"
		if *update {
			if err := os.WriteFile(filepath.Join(root, golden), []byte(got), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if want := read(t, golden); got != want {
			t.Errorf("%s differs: run go test -tags deploy -run TestHelmManifestsAreGolden ./deploy -update and read the difference", golden)
		}
	}
}

func TestHelmManifestsFollowTheSchemasOfKubernetes(t *testing.T) {
	t.Parallel()
	schemas := kubernetesSchemas(t)
	for _, set := range valueSets {
		cmd := exec.CommandContext(t.Context(), "kubeconform", "-strict", "-summary", "-schema-location", schemas+"/{{ .ResourceKind }}{{ .KindSuffix }}.json")
		cmd.Stdin = strings.NewReader(render(t, "-f", values(set), "--set", "prometheusRule.enabled=true,dashboard.enabled=true"))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "Invalid: 0, Errors: 0, Skipped: 0") {
			t.Errorf("%s: %v\n%s", set, err, out)
		}
	}
}

// What the container gets must be what serve takes.
func TestHelmConfiguresWhatSpillwayAccepts(t *testing.T) {
	t.Parallel()
	secrets := map[string]string{"redis-url": "rediss://:secret@redis:6379", "admin-token": hashOfOne, "password": "secret"}
	for _, set := range valueSets {
		dir, checked := t.TempDir(), 0
		cert, key := certificate(t, dir)
		files := strings.NewReplacer("/etc/spillway-tls/data/tls.crt", cert, "/etc/spillway-tls/data/tls.key", key,
			"/etc/spillway-tls/admin/tls.crt", cert, "/etc/spillway-tls/admin/tls.key", key, "/etc/spillway/spillway.yaml", filepath.Join(dir, "spillway.yaml"))
		config := "tokens: [\"" + hashOfOne + "\"]\n" // the Secret of configSecret
		all := objects(t, render(t, "-f", values(set)))
		for _, o := range all {
			if o.Kind == "ConfigMap" {
				config = o.Data["spillway.yaml"]
			}
		}
		if !strings.Contains(config, "namespaces") {
			config = "namespaces: {default: {" + strings.TrimSpace(config) + "}}\n"
		}
		if err := os.WriteFile(filepath.Join(dir, "spillway.yaml"), []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			if o.Kind != "Deployment" {
				continue
			}
			checked++
			cmd := exec.CommandContext(t.Context(), binary, "config", "check")
			for _, e := range containerOf(t, o).Env {
				value := e.Value
				if value == "" {
					value = secrets[e.ValueFrom.SecretKeyRef.Key]
				}
				if value == "" {
					t.Errorf("%s: %s has no value", set, e.Name)
				}
				cmd.Env = append(cmd.Env, e.Name+"="+files.Replace(value))
			}
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s: %s: %v\n%s", set, o.Metadata.Name, err, out)
			}
		}
		if checked == 0 {
			t.Errorf("%s: no Deployment", set)
		}
	}
}

// container is that of a Deployment.
type container struct {
	Args []string
	Env  []struct {
		Name, Value string
		ValueFrom   struct {
			SecretKeyRef struct{ Key string } `yaml:"secretKeyRef"`
		} `yaml:"valueFrom"`
	}
}

func containerOf(t *testing.T, deployment object) container {
	t.Helper()
	text, err := yaml.Marshal(deployment.Spec)
	if err != nil {
		t.Fatal(err)
	}
	var spec struct {
		Template struct {
			Spec struct{ Containers []container }
		}
	}
	if err := yaml.Unmarshal(text, &spec); err != nil {
		t.Fatal(err)
	}
	return spec.Template.Spec.Containers[0]
}

func TestHelmShipsTheAlertsAndTheDashboardOfThisFolder(t *testing.T) {
	t.Parallel()
	want, found := parse(t, read(t, alertsFile)), 0
	for _, o := range objects(t, render(t, "-f", values("small"), "--set", "prometheusRule.enabled=true,dashboard.enabled=true")) {
		switch {
		case o.Kind == "PrometheusRule":
			found++
			if !reflect.DeepEqual(o.Spec, want) {
				t.Errorf("the PrometheusRule is not %s", alertsFile)
			}
		case strings.HasSuffix(o.Metadata.Name, "-dashboard"):
			found++
			if o.Data["spillway.json"] != strings.TrimSpace(read(t, dashboardFile)) {
				t.Errorf("the dashboard is not %s", dashboardFile)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d of 2 objects were found", found)
	}
}

func TestHelmRejectsWhatCannotWork(t *testing.T) {
	t.Parallel()
	open := "redis.url=redis://r:6379,insecureNoAuth=true"
	for set, says := range map[string]string{
		"insecureNoAuth=true":                                                     "no store: set redis.secret.name",
		"redis.url=redis://r:6379":                                                "the admin port has no token",
		"redis.url=redis://r:6379,adminToken.secret.name=s":                       "the data port has no tokens",
		open + ",redis.secret.name=s":                                             "leave one out",
		open + ",redis.url=embedded:":                                             "'embedded:' does not match",
		open + ",config.redis=redis://other":                                      "config.redis: the chart sets it",
		open + ",configSecret.name=s,config.capacity=5":                           "leave one out",
		open + ",repicas=3":                                                       "'repicas' not allowed",
		open + ",all.replicas=three":                                              "got string, want integer",
		open + ",all.autoscaling.cpus=3":                                          "'cpus' not allowed",
		open + ",split=true,drain.autoscaling.age=0,all.autoscaling.enabled=true": "drain.autoscaling has neither cpu nor age",
	} {
		cmd := exec.CommandContext(t.Context(), "helm", "template", chart, "--kube-version", kubeVersion, "--set", set)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), says) {
			t.Errorf("%s: %v, want a rejection with %q; got\n%s", set, err, says, out)
		}
	}
}

// The metric by which the drain scales is a query that the notes print.
func TestHelmScalesTheDrainByAgeWhileItsWritesAreInUse(t *testing.T) {
	t.Parallel()
	notes := read(t, chart+"/templates/NOTES.txt")
	_, rule, _ := strings.Cut(notes, "externalRules:\n")
	rule, _, _ = strings.Cut(rule, "{{")
	var rules []struct {
		Name         struct{ As string }
		MetricsQuery string `yaml:"metricsQuery"`
	}
	if err := yaml.Unmarshal([]byte(rule), &rules); err != nil || len(rules) != 1 {
		t.Fatalf("%d rules, %v, in\n%s", len(rules), err, notes)
	}
	if text := render(t, "-f", values("split")); !strings.Contains(text, "name: "+rules[0].Name.As+"\n") {
		t.Errorf("no autoscaler reads %s", rules[0].Name.As)
	}
	type sample struct {
		Labels string  `yaml:"labels"`
		Value  float64 `yaml:"value"`
	}
	var tests []map[string]any
	for _, c := range []struct {
		age, leases string
		want        float64
	}{
		{"90", "60", 50},
		{"90", "2", 0}, // a sink that is down
		{"1.8", "60", 1},
	} {
		var series []map[string]string
		add := func(metric, labels, value string) {
			series = append(series, map[string]string{"series": metric + `{job="kart", ` + labels + `}`, "values": value})
		}
		for _, pod := range []string{`instance="a", namespace="kart"`, `instance="b", namespace="kart"`} {
			add("spillway_account_oldest_age_seconds", pod, c.age)
			add("spillway_namespace_max_age_seconds", pod, "180")
			add("spillway_drain_leases", pod, c.leases)
			add("spillway_drain_sink_concurrency", pod, "64")
		}
		add("spillway_account_oldest_age_seconds", `instance="a", namespace="idle"`, "170")
		add("spillway_namespace_max_age_seconds", `instance="a", namespace="idle"`, "180")
		add("spillway_drain_leases", `instance="a", namespace="idle"`, "0")
		add("spillway_drain_sink_concurrency", `instance="a", namespace="idle"`, "64")
		tests = append(tests, map[string]any{"input_series": series, "promql_expr_test": []any{map[string]any{
			"expr":        strings.ReplaceAll(rules[0].MetricsQuery, "<<.LabelMatchers>>", `job="kart"`),
			"eval_time":   "0m",
			"exp_samples": []sample{{"{}", c.want}},
		}}})
	}
	text, err := yaml.Marshal(map[string]any{"tests": tests})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "scaling.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, "promtool", "test", "rules", file)
}
