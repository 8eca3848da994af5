package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestUnknownVariablesAreUsageErrors(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "in.ndjson")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, known := range map[string]bool{
		"SPILLWAY_MAX_AEG=90s": false, "SPILLWAY_max_age=90s": false, "SPILLWAY_=x": false, "SPILLWAY_NAMESPACES=x": false, "SPILLWAY_ADMIN_PORT=8081": false,
		// Variables of other commands and of other programs are allowed.
		"SPILLWAY_MAX_AGE=90s": true, "SPILLWAY_TOKEN=x": true, "SPILLWAY_REPLAY_SPEED=2": true, "SPILLWAY_MAX_AEG=": true, "MAX_AEG=x": true, "SPILLWAYS_X=x": true, "spillway_x=x": true,
		// Kubernetes sets these for a Service called spillway, or spillway-admin.
		"SPILLWAY_SERVICE_HOST=10.0.0.1": true, "SPILLWAY_SERVICE_PORT=80": true, "SPILLWAY_SERVICE_PORT_DATA=80": true, "SPILLWAY_PORT=tcp://10.0.0.1:80": true,
		"SPILLWAY_PORT_80_TCP=tcp://10.0.0.1:80": true, "SPILLWAY_PORT_80_TCP_PROTO=tcp": true, "SPILLWAY_PORT_80_TCP_PORT=80": true, "SPILLWAY_PORT_80_TCP_ADDR=10.0.0.1": true,
		"SPILLWAY_ADMIN_SERVICE_HOST=10.0.0.1": true, "SPILLWAY_ADMIN_PORT=tcp://10.0.0.1:80": true, "SPILLWAY_ADMIN_PORT_8081_TCP_ADDR=10.0.0.1": true,
	} {
		name, value, _ := strings.Cut(name, "=")
		for _, args := range [][]string{{"config", "check"}, {"report", file}} {
			if value == "2" && args[0] == "report" {
				continue // a setting of report, without effect on its output
			}
			_, stderr, code := runCommand(t, map[string]string{name: value}, "", args...)
			want, text := exitOK, ""
			if !known {
				want, text = exitUsage, name+": unknown variable: "
			}
			if code != want || !strings.Contains(stderr, text) || known && stderr != "" {
				t.Errorf("%s=%s %v: got %d and %q, want %d and %q", name, value, args, code, stderr, want, text)
			}
		}
	}
}

func TestTheAdminPortShowsTheSettingsOfANamespace(t *testing.T) {
	t.Parallel()
	a := startApp(t, "--sink=https://user:secret@127.0.0.1:1/path")
	_, body := a.get(t, a.AdminListen, "/api/v1/namespaces")
	const want = `{"namespaces":[{"namespace":"default","kind":"buffer","sink":"https://…@127.0.0.1:1/…","fallback":"","capacity":10000,"max_age_ms":180000,"batch":128,"linger_ms":5,"delivery":"at-least-once","shards":1,"max_partitions":100000,"max_keys":1000000,"max_dead":10000,"max_dead_bytes":67108864,"backoff_base_ms":100,"backoff_max_ms":30000}]}` + "\n"
	if body != want {
		t.Errorf("got %s", body)
	}
}

func TestAnUnknownVariableNamesTheNearest(t *testing.T) {
	t.Parallel()
	env := map[string]string{"SPILLWAY_MAX_AEG": "90s", "SPILLWAY_ADMIN_LISTN": "x", "SPILLWAY_TTL": "5s", "SPILLWAY_WORKERS": "many"}
	_, stderr, code := runCommand(t, env, "", "config", "check", "--capacity=0")
	for _, want := range []string{
		"SPILLWAY_MAX_AEG: unknown variable: did you mean SPILLWAY_MAX_AGE?", "SPILLWAY_ADMIN_LISTN: unknown variable: did you mean SPILLWAY_ADMIN_LISTEN?",
		"SPILLWAY_TTL: unknown variable: no setting has that name", `SPILLWAY_WORKERS: "many" is not a whole number`, "--capacity: namespaces.default.capacity: 0 is not usable",
	} {
		if code != exitUsage || strings.Count(stderr, want) != 1 {
			t.Errorf("exit %d, and %q is not once in %s", code, want, stderr)
		}
	}
}
