//go:build unix

package command

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spillway-io/spillway/drain/sink"
)

func write(t *testing.T, s *Sink, b *sink.Batch) error {
	t.Helper()
	return s.Write(t.Context(), []*sink.Batch{b})
}

func TestTheProgramGetsLinesAndVariables(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	b := batch(`{"score":7}`, "$(reboot) `x`")
	must(t, write(t, shell(t, `cat >"$1"; env >"$2"; echo "$3" >"$4"`, dir+"/in", dir+"/env", "$HOME; *", dir+"/arg"), b))
	if got, want := read(t, dir+"/in")+"\n", string(sink.AppendBatch(nil, b)); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	var names []string
	env := read(t, dir+"/env")
	for line := range strings.Lines(env) {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains([]string{"PWD", "SHLVL", "OLDPWD", "_"}, name) }) // the shell's own
	if want := []string{"BATCH_ATTEMPT", "BATCH_ENTRIES", "BATCH_FIRST_SEQ", "BATCH_ID", "BATCH_NAMESPACE", "BATCH_PARTITION", "PATH"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	for _, want := range []string{"PATH=/usr/bin:/bin", "BATCH_ID=" + b.ID(), "BATCH_NAMESPACE=kart", "BATCH_PARTITION=com.acme.kart", "BATCH_FIRST_SEQ=1763629675123456", "BATCH_ATTEMPT=3", "BATCH_ENTRIES=2"} {
		if !strings.Contains("\n"+env+"\n", "\n"+want+"\n") {
			t.Errorf("%s is missing in\n%s", want, env)
		}
	}
	if got := read(t, dir+"/arg"); got != "$HOME; *" {
		t.Errorf("got the argument %q", got)
	}
}

func TestTheExitCodeSaysWhatBecameOfTheBatch(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]struct {
		text, detail string
		permanent    bool
	}{
		"exit 0":                          {},
		"exec <&-; exit 0":                {},
		"echo hello; echo no >&2; exit 0": {},
		`echo '{"results":[{"i":0,"result":"ok"}]}'`:            {},
		`echo '{"level":"info"}'`:                               {},
		`cat /dev/zero | head -c 3000000`:                       {},
		`echo '{"results":[{"i":0,"result":"drop"'`:             {text: "run sh: exit status 0, but stdout begins with a { that begins no whole JSON object"},
		`echo '{"results":[{"i":1,"result":"drop"}]}'`:          {text: `run sh: exit status 0, but stdout begins with results that are not a list of {"i":LINE,"result":"drop|retry|ok|warning"}`},
		`printf '{'; cat /dev/zero | head -c 3000000`:           {text: "run sh: exit status 0, but stdout begins with more than 524288 bytes"},
		`echo '{"results":[{"i":0,"result":"drop"}]}'; exit 75`: {text: "run sh: exit status 75"},
		"exit 1":                         {text: "run sh: exit status 1"},
		"exit 64":                        {text: "run sh: exit status 64"},
		"exit 75":                        {text: "run sh: exit status 75"},
		"exit 127":                       {text: "run sh: exit status 127"},
		"exit 255":                       {text: "run sh: exit status 255"},
		"kill -TERM $$":                  {text: "run sh: signal: terminated"},
		"kill -KILL $$":                  {text: "run sh: signal: killed"},
		"echo no such user >&2; exit 65": {text: "run sh: exit status 65", detail: "no such user", permanent: true},
		"cat >&2; exit 65":               {text: "run sh: exit status 65", detail: strings.TrimSpace(string(sink.AppendBatch(nil, batch("secret")))), permanent: true},
		"printf 'a\\377b' >&2; exit 65":  {text: "run sh: exit status 65", detail: "a\ufffdb", permanent: true},
		"cat /dev/zero | head -c 3000000 >&2; exit 65": {text: "run sh: exit status 65", detail: strings.Repeat("\x00", 256), permanent: true},
	} {
		err := write(t, shell(t, script), batch("secret"))
		text := ""
		if err != nil {
			text = err.Error()
		}
		if text != want.text || sink.IsPermanent(err) != want.permanent || want.permanent && sink.Detail(err) != want.detail {
			t.Errorf("%s: got %q, permanent %t, detail %.100q", script, text, sink.IsPermanent(err), sink.Detail(err))
		}
	}
}

func TestStdoutCanNameLines(t *testing.T) {
	t.Parallel()
	err := write(t, shell(t, `echo '{"results":[{"i":0,"result":"retry"},{"i":2,"result":"drop","reason":"No such user"}]}'`), batch("a", "b", "c"))
	var named *sink.BatchError
	if !errors.As(err, &named) || len(named.Failed) != 2 {
		t.Fatalf("got %v", err)
	}
	first, second := named.Failed[0], named.Failed[1]
	if first.Entry != 0 || sink.IsPermanent(first.Err) || second.Entry != 2 || !sink.IsPermanent(second.Err) || sink.Detail(second.Err) != "No such user" {
		t.Errorf("got %+v", named.Failed)
	}
}

func TestAProgramThatReadsNothingDoesNotHang(t *testing.T) {
	t.Parallel()
	b := batch(strings.Repeat("x", 1<<20)) // more than a pipe holds
	must(t, write(t, shell(t, "exit 0"), b))
	if err := write(t, shell(t, "head -c 1 >/dev/null; exit 65"), b); !sink.IsPermanent(err) {
		t.Errorf("got %v", err)
	}
}

func TestTheTimeoutIsAnErrorOfItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, syscall.Mkfifo(dir+"/ready", 0o600))
	s := shell(t, `trap "" TERM; echo >"$1/ready"; sleep 1000; exit 0`, dir)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Write(ctx, []*sink.Batch{batch("1")}) }()
	ready, err := os.Open(dir + "/ready") // when the program has come so far
	must(t, err)
	ready.Close()
	cancel(context.DeadlineExceeded)
	if err := <-done; !errors.Is(err, context.Canceled) || err.Error() != "run sh: context canceled" {
		t.Errorf("got %v", err)
	}
}

func TestOpenLooksForTheProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.WriteFile(dir+"/text", nil, 0o600))
	for program, want := range map[string]string{
		"/bin/sh":     "",
		dir:           "open command: exec: \"" + dir + "\": is a directory",
		dir + "/none": "open command: exec: \"" + dir + "/none\": stat " + dir + "/none: no such file or directory",
		dir + "/text": "open command: exec: \"" + dir + "/text\": permission denied",
	} {
		text := ""
		if err := newSink(t, program).Open(t.Context()); err != nil {
			text = err.Error()
		}
		if text != want {
			t.Errorf("%s: got %q, want %q", program, text, want)
		}
	}
}

func TestTheCommandComesFromNewAlone(t *testing.T) {
	t.Parallel()
	const inURL = `takes nothing after "exec:": the command is sink_command of the namespace, in the file`
	for _, row := range []struct {
		raw  string
		argv []string
		want string
	}{
		{"exec:", nil, `sink exec:: has no command: add to the namespace, in the file, sink_command: ["/usr/bin/python3", "/opt/plugin.py"]`},
		{"exec:///bin/sh?-c=reboot", []string{"/bin/true"}, "sink exec:…: " + inURL},
		{"exec:/bin/sh", []string{"/bin/true"}, "sink exec:…: " + inURL},
		{"exec:sh", []string{"/bin/true"}, "sink exec:…: " + inURL},
		{"exec:?x=1", []string{"/bin/true"}, "sink exec:?…: " + inURL},
		{"exec:#x", []string{"/bin/true"}, "sink exec:: " + inURL},
		{"exec://u:hunter2@h", []string{"/bin/true"}, "sink exec://…@h: " + inURL},
		{"exec:", []string{"python3", "x.py"}, `sink exec:: sink_command: "python3" is not an absolute path: write one such as /usr/bin/python3`},
		{"exec:", []string{"./x"}, `sink exec:: sink_command: "./x" is not an absolute path: write one such as /usr/bin/python3`},
		{"exec:", []string{"/bin/true", "a\x00b"}, "sink exec:: sink_command: an argument holds a NUL"},
	} {
		_, err := sink.Registry{"exec": New(row.argv, nil)}.New(row.raw)
		if err == nil || err.Error() != row.want {
			t.Errorf("%s %q:\ngot  %v\nwant %s", row.raw, row.argv, err, row.want)
		}
	}
}
