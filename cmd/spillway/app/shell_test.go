package app

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The manual page comes from the model of the command line: -update rewrites it.
// Not parallel: the help of kong depends on the environment.
func TestManualPageIsGolden(t *testing.T) {
	got, stderr, code := runCommand(t, nil, "", "man")
	if code != exitOK || stderr != "" {
		t.Fatalf("exit %d, %s", code, stderr)
	}
	path := filepath.Join("..", "..", "..", "deploy", "man", "spillway.1")
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("it differs from %s; run make generate and read the difference", path)
	}
	for n, line := range strings.Split(got, "\n") {
		if strings.HasPrefix(line, "'") || strings.HasPrefix(line, ".") && !slices.Contains([]string{".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".I"}, strings.Fields(line)[0]) {
			t.Errorf("line %d is a request that was not meant: %s", n+1, line)
		}
	}
}

// complete runs the script in a real bash, with a command line whose last word is
// being typed.
func complete(t *testing.T, script string, words ...string) []string {
	t.Helper()
	bash := exec.CommandContext(t.Context(), "bash", "--norc", "-c", `
source "$1"; shift
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_spillway
printf '%s\n' "${COMPREPLY[@]}"
complete -p spillway >/dev/null`, "-", script)
	bash.Args = append(bash.Args, words...)
	var stderr bytes.Buffer
	bash.Stderr = &stderr
	out, err := bash.Output()
	if err != nil || stderr.Len() > 0 {
		t.Fatalf("%q: %v, %s", words, err, &stderr)
	}
	return strings.Fields(string(out))
}

func TestBashCompletesTheCommandLine(t *testing.T) {
	t.Parallel()
	out, _, _ := runCommand(t, nil, "", "completion", "bash")
	script := writeFile(t, "completion.bash", out)
	if text, err := exec.CommandContext(t.Context(), "bash", "-n", script).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	for _, tt := range []struct {
		line string // up to the cursor; a space at the end begins a word
		want string
	}{
		{"spillway se", "serve"},
		{"spillway dead ", "ls show replay rm"},
		{"spillway dead re", "replay"},
		{"spillway config pr", "print"},
		{"spillway completion ", "bash fish zsh"},
		{"spillway bench e", "e2e"},
		{"spillway help de", "demo dead deliveries"},
		{"spillway top --o", "--output --once"},
		{"spillway top --once -o ", "json text"},
		{"spillway top --output = j", "json"},
		{"spillway top --output =", "json text"},
		{"spillway check -o j", "json"},
		{"spillway ls --sort e", "evicted expired"},
		{"spillway purge kart --ye", "--yes"},
		{"spillway report top --skip", "--skip-bad"},
		{"spillway ls --limit ", ""}, // any value
		{"spillway nonsense re", "report reload resume"},
	} {
		words := strings.Fields(tt.line)
		if strings.HasSuffix(tt.line, " ") {
			words = append(words, "")
		}
		got := complete(t, script, words...)
		want := strings.Fields(tt.want)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", tt.line, got, want)
		}
	}
}

func TestEveryShellCompletesEveryCommand(t *testing.T) {
	t.Parallel()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		script, stderr, code := runCommand(t, nil, "", "completion", shell)
		if code != exitOK || stderr != "" {
			t.Fatalf("%s: exit %d, %s", shell, code, stderr)
		}
		for _, want := range []string{"serve", "dead", "replay", "older-than", "json"} {
			if !strings.Contains(script, want) {
				t.Errorf("%s: %q is missing", shell, want)
			}
		}
		if strings.Contains(script, "Print the manual page") {
			t.Errorf("%s: a hidden command is there", shell)
		}
	}
}
