package app

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
)

// operator runs commands against a service.
type operator struct {
	t     *testing.T
	admin string
}

func (o operator) run(args ...string) (stdout, stderr string, code int) {
	o.t.Helper()
	return runCommand(o.t, map[string]string{"SPILLWAY_ADMIN": "http://" + o.admin}, "", args...)
}

// ask returns an answer as JSON.
func (o operator) ask(to any, args ...string) {
	o.t.Helper()
	out, stderr, code := o.run(append(args, "-o", "json")...)
	if err := json.Unmarshal([]byte(out), to); err != nil {
		o.t.Fatalf("%q: exit %d, %v: %s%s", args, code, err, out, stderr)
	}
}

func TestAnOperatorSeesWhatIsLostAndWhy(t *testing.T) {
	t.Parallel()
	s := startServe(t, "--sink=http://127.0.0.1:1/", "--capacity=3", "--max-age=1h")
	o := operator{t, s.adminListen}
	if out, stderr, code := o.run("check"); code != exitOK || !strings.HasPrefix(out, "OK\n  default: 0 entries wait") {
		t.Errorf("check: exit %d, %s%s", code, out, stderr)
	}
	for range 9 {
		res, err := http.Post("http://"+s.listen+"/v1/default/kart-7", "", strings.NewReader(`{"lap":1}`))
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(res, err)
		}
		_ = res.Body.Close()
	}
	eventually(t, "top says that data is being lost", func() bool {
		out, _, _ := o.run("top", "--once")
		return strings.HasPrefix(out, "DATA IS BEING LOST\n  default: evicted ") &&
			strings.Contains(out, "(partitions are full); sink http://127.0.0.1:1/ fails for ") && strings.Contains(out, "connection refused\n")
	})
	eventually(t, "the check is critical", func() bool {
		out, _, code := o.run("check", "--sink-critical=1ms", "-o", "nagios")
		return code == 2 && strings.HasPrefix(out, "SPILLWAY CRITICAL - default: ") && strings.Contains(out, "'default_backlog'=3;;;0")
	})
	var list struct {
		Total      int
		Partitions []struct {
			Namespace, Partition string
			Depth                int
			LastError            string `json:"last_error"`
		}
	}
	eventually(t, "the partition is listed", func() bool {
		o.ask(&list, "ls", "--sort=depth")
		return list.Total == 1 && list.Partitions[0].Partition == "kart-7" && list.Partitions[0].Depth == 3 && strings.Contains(list.Partitions[0].LastError, "refused")
	})
	var drops struct {
		Drops []struct{ Reason, Partition string }
	}
	o.ask(&drops, "drops", "--reason=evicted")
	if len(drops.Drops) != 6 || drops.Drops[0].Partition != "kart-7" {
		t.Errorf("got %+v", drops)
	}
	if _, stderr, code := o.run("ls", "nowhere"); code != exitFailure || !strings.Contains(stderr, "no_such_namespace") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if _, stderr, code := runCommand(t, map[string]string{"SPILLWAY_ADMIN": "http://" + s.listen}, "", "top"); code != exitFailure || !strings.Contains(stderr, "is it the admin port") {
		t.Errorf("the data port: exit %d, %s", code, stderr)
	}
}
