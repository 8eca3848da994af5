package deploy

import (
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const example = "deploy/spillway.example.yaml"

// config is what `spillway config print` says under the given arguments.
func config(t *testing.T, args ...string) map[string]any {
	t.Helper()
	// The environment that the tests run in must not change the result.
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"config", "print"}, args...)...)
	cmd.Dir, cmd.Env = root, []string{"PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("config print %v: %v\n%s", args, err, out)
	}
	return parse(t, string(out))
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	m := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTheExampleConfigurationIsAccepted(t *testing.T) {
	t.Parallel()
	output(t, binary, "config", "check", "--config", example)
}

func TestTheExampleShowsEverySettingWithItsDefault(t *testing.T) {
	t.Parallel()
	defaults, shown := config(t), parse(t, read(t, example))
	delete(shown, "sinks") // those of push, which have no default
	for key, want := range defaults {
		if got, ok := shown[key]; key != "namespaces" && (!ok || !reflect.DeepEqual(got, want)) {
			t.Errorf("%s: the example says %v, the default is %v", key, got, want)
		}
	}
	if len(shown) != len(defaults) {
		t.Errorf("the example has %d keys, there are %d", len(shown), len(defaults))
	}
}

func TestTheExampleShowsNamespacesOfBothKinds(t *testing.T) {
	t.Parallel()
	spaces, ok := config(t, "--config", example)["namespaces"].(map[string]any)
	if !ok || !slices.Equal(slices.Sorted(maps.Keys(spaces)), []string{"default", "kart", "mail"}) {
		t.Fatalf("got %v, want default, kart and mail", spaces)
	}
	kart, _ := spaces["kart"].(map[string]any)
	if kart["capacity"] != 5000 || kart["max_age"] != "1m30s" || kart["batch"] != 128 {
		t.Errorf("kart: got %v, want its own capacity and age and the inherited batch", kart)
	}
	mail, _ := spaces["mail"].(map[string]any)
	defaults, _ := queueDefaults(t)["namespaces"].(map[string]any)["mail"].(map[string]any)
	for key, want := range defaults {
		if !reflect.DeepEqual(mail[key], want) {
			t.Errorf("%s of mail: the example says %v, the default is %v", key, mail[key], want)
		}
	}
	if mail["kind"] != "queue" || mail["push"] == nil || len(defaults) < 5 {
		t.Errorf("mail: got %v, want a queue with push", mail)
	}
}

// queueDefaults is a configuration with a queue of which nothing is set.
func queueDefaults(t *testing.T) map[string]any {
	t.Helper()
	path := filepath.Join(t.TempDir(), "queue.yaml")
	if err := os.WriteFile(path, []byte("namespaces: {mail: {kind: queue}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return config(t, "--config", path)
}

// instructions are the Dockerfile's lines of one kind, without the word.
func instructions(t *testing.T, kind string) []string {
	t.Helper()
	var lines []string
	for line := range strings.Lines(read(t, "deploy/Dockerfile")) {
		if rest, ok := strings.CutPrefix(line, kind+" "); ok {
			lines = append(lines, strings.TrimSpace(rest))
		}
	}
	if len(lines) == 0 {
		t.Fatalf("the Dockerfile has no %s", kind)
	}
	return lines
}

// Only CI builds the image. This test compares what the Dockerfile names with what
// exists.
func TestTheDockerfileNamesWhatExists(t *testing.T) {
	t.Parallel()
	built := regexp.MustCompile(`-o (\S+) (\./\S+)`).FindStringSubmatch(strings.Join(instructions(t, "RUN"), "\n"))
	if built == nil {
		t.Fatal("no go build with -o and a package")
	}
	if _, err := os.Stat(filepath.Join(root, built[2], "main.go")); err != nil {
		t.Errorf("it builds %s: %v", built[2], err)
	}
	if got := instructions(t, "ENTRYPOINT")[0]; got != `["`+built[1]+`"]` {
		t.Errorf("ENTRYPOINT is %s, the program is at %s", got, built[1])
	}
	if got := instructions(t, "CMD")[0]; got != `["serve"]` {
		t.Errorf("CMD is %s, want [\"serve\"], the command that this test tries", got)
	}
	output(t, binary, "serve", "--help")
	for _, line := range instructions(t, "COPY") {
		words := strings.Fields(line)
		if words[0] == "--from=build" {
			if words[1] != built[1] {
				t.Errorf("it copies %s, the build made %s", words[1], built[1])
			}
			continue
		}
		for _, source := range words[:len(words)-1] {
			if _, err := os.Stat(filepath.Join(root, source)); err != nil {
				t.Errorf("COPY %s: %v", line, err)
			}
		}
	}
	_, goVersion, _ := strings.Cut(read(t, "go.mod"), "\ngo ")
	goVersion, _, _ = strings.Cut(goVersion, "\n")
	if want := "golang:" + strings.TrimSuffix(goVersion, ".0"); !strings.HasPrefix(instructions(t, "FROM")[0], want) {
		t.Errorf("it builds with %s, go.mod says %s", instructions(t, "FROM")[0], goVersion)
	}
}

func TestTheComposeFileConfiguresWhatExists(t *testing.T) {
	t.Parallel()
	compose := parse(t, read(t, "deploy/compose.yaml"))
	services, _ := compose["services"].(map[string]any)
	service, _ := services["spillway"].(map[string]any)
	build, _ := service["build"].(map[string]any)
	dockerfile, _ := build["dockerfile"].(string)
	where, _ := build["context"].(string)
	if _, err := os.Stat(path.Join(where, dockerfile)); err != nil { // both as seen from deploy, as here
		t.Errorf("build: %v", err)
	}
	env, _ := service["environment"].(map[string]any)
	if len(env) == 0 {
		t.Fatal("spillway gets no environment")
	}
	cmd := exec.CommandContext(t.Context(), binary, "config", "print")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value.(string))
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("its environment is rejected: %v\n%s", err, out)
	}
	for name := range env { // config print says where each value was found
		if !strings.Contains(string(out), "# "+name+"\n") {
			t.Errorf("%s configures nothing", name)
		}
	}
}

// The chart has the files of this folder by symbolic links, which helm follows.
func TestTheChartHasNoAlertsAndDashboardOfItsOwn(t *testing.T) {
	t.Parallel()
	for link, file := range map[string]string{"alerts.yaml": alertsFile, "dashboard.json": dashboardFile} {
		got, err := filepath.EvalSymlinks("helm/spillway/files/" + link)
		if err != nil {
			t.Error(err)
			continue
		}
		want, err := filepath.EvalSymlinks(filepath.Join(root, file))
		if err != nil {
			t.Fatal(err)
		}
		a, errA := os.Stat(got)
		b, errB := os.Stat(want)
		if errA != nil || errB != nil || !os.SameFile(a, b) {
			t.Errorf("%s of the chart is %s, want %s: %v %v", link, got, want, errA, errB)
		}
	}
}
