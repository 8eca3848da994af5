package operate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommandsForNamespacesAndTokensAskTheAdminAPI(t *testing.T) {
	t.Parallel()
	const at = "/api/v1/control/"
	hash := "sha256:" + strings.Repeat("ab", 32)
	for _, tt := range []struct{ args, answer, asked, out, stderr string }{
		{
			"ns create mail --pool=fast --shards=4 --spread=bulk=4 --max-schedules=0 --dead=drop --description=shop", `{"namespace":"mail"}`,
			`POST ` + at + `namespaces {"namespace":"mail","description":"shop","pool":"fast","shards":4,"spread":{"bulk":4},"max_jobs":10000000,"max_queues":10000,"max_schedules":0,"dead":"drop","reply_ttl_ms":600000}`,
			"mail: made; nobody can use it before it has a token: spillway token create mail\n", "",
		},
		{
			"ns rm mail", `{"jobs":0}`,
			`POST ` + at + `namespaces/mail/delete {"dry_run":true,"force":false}` + "\n" + `POST ` + at + `namespaces/mail/delete {"force":false}`, "mail: deleted, with 0 jobs\n", "mail: found 0 jobs",
		},
		{
			"ns rm mail --force -y", `{"jobs":1}`,
			`POST ` + at + `namespaces/mail/delete {"dry_run":true,"force":true}` + "\n" + `POST ` + at + `namespaces/mail/delete {"force":true}`, "mail: deleted, with 1 job\n", "mail: found 1 job",
		},
		{"ns rm mail --force --dry-run", `{"jobs":1}`, `POST ` + at + `namespaces/mail/delete {"dry_run":true,"force":true}`, "mail: nothing was changed\n", "mail: found 1 job"},
		{
			"ns ls", `{"namespaces":[{"namespace":"mail","pool":"default","shards":2,"max_jobs":5,"max_queues":6,"dead":"keep","tokens":1,"created_at_ms":1790000000000,"created_by":"alice","description":"a\u001b[2J"},{"namespace":"own","pool":"fast","shards":0,"max_jobs":0,"max_queues":0,"tokens":0,"from_file":true,"dead":"drop"}]}`,
			`GET ` + at + `namespaces`,
			"NAMESPACE  POOL     SHARDS  MAX JOBS  MAX QUEUES  DEAD  TOKENS  MADE         BY     DESCRIPTION\n" +
				"mail       default       2         5           6  keep       1  2026-09-21   alice  a\\u001b[2J\n" +
				"own        fast          0         0           0  drop       0  in the file\n", "",
		},
		{"ns ls", `{"namespaces":[]}`, `GET ` + at + `namespaces`, "", "there is no namespace of kind queue"},
		{
			"token create mail --name=crm --produce=1000/min", `{"token":"sw_x","name":"crm","hash":"sha256:ab"}`,
			`POST ` + at + `namespaces/mail/tokens {"name":"crm","description":"","produce":"1000/min","consume":"","hash":""}`,
			"token  sw_x\nname   crm\nhash   sha256:ab\n", "not shown again",
		},
		{
			"token create mail --hash=" + hash, `{"token":"","name":"ab","hash":"sha256:ab"}`,
			`POST ` + at + `namespaces/mail/tokens {"name":"","description":"","produce":"","consume":"","hash":"` + hash + `"}`, "name   ab\nhash   sha256:ab\n", "",
		},
		{
			"token ls mail", `{"tokens":[{"name":"crm","hash":"sha256:ab","produce":"1/s","consume":"","limit":{"read":1,"write":2,"interval":3},"readable":true,"created_at_ms":1790000000000,"created_by":"alice"},{"name":"own","from_file":true}]}`,
			`GET ` + at + `namespaces/mail/tokens`,
			"NAME  PRODUCE  CONSUME  REQUESTS                STORED AS  MADE         BY     DESCRIPTION\n" +
				"crm   1/s      -        read 1, write 2 in 3s   text       2026-09-21   alice\n" +
				"own   -        -        -                       hash       in the file\n", "",
		},
		{"token ls mail", `{"tokens":[]}`, `GET ` + at + `namespaces/mail/tokens`, "", "mail has no tokens"},
		{"token revoke mail crm", `{"name":"crm"}`, `POST ` + at + `namespaces/mail/tokens/revoke {"token":"crm"}`, "crm: revoked; no process admits it a second from now\n", ""},
		{
			"admin-token create alice --role=viewer", `{"token":"sw_x","name":"alice","hash":"sha256:ab"}`,
			`POST ` + at + `admin-tokens {"name":"alice","role":"viewer","hash":""}`, "token  sw_x\nname   alice\nhash   sha256:ab\n", "not shown again",
		},
		{
			"admin-token ls", `{"admin_tokens":[{"name":"root","role":"admin","from_file":true},{"name":"alice","role":"viewer","created_at_ms":1790000000000,"created_by":"root"}]}`,
			`GET ` + at + `admin-tokens`, "NAME   ROLE    MADE         BY\nroot   admin   in the file\nalice  viewer  2026-09-21   root\n", "",
		},
		{"admin-token revoke alice", `{"name":"alice"}`, `POST ` + at + `admin-tokens/revoke {"name":"alice"}`, "alice: revoked; no process admits it a second from now\n", ""},
	} {
		route := strings.Join(strings.Fields(tt.asked)[:2], " ")
		api := newFakeAPI(t, map[string]string{route: tt.answer})
		out, stderr, code := run(t, api, strings.Fields(tt.args)...)
		if code != 0 || squeeze(out) != squeeze(tt.out) || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%s: exit %d\n%s%s\nwant\n%s%s", tt.args, code, out, stderr, tt.out, tt.stderr)
		}
		if api.requests() != tt.asked {
			t.Errorf("%s: it asked for %s, want %s", tt.args, api.requests(), tt.asked)
		}
		out, _, code = run(t, newFakeAPI(t, map[string]string{route: tt.answer}), append(strings.Fields(tt.args), "-o", "json")...)
		if code != 0 || !strings.HasPrefix(out, "{") {
			t.Errorf("%s -o json: exit %d, %s", tt.args, code, out)
		}
	}
}

// squeeze makes columns one space apart.
func squeeze(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

func TestMistakesInNamespacesAndTokensAskNothing(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"ns create a/b": "is not the name of a namespace", "ns rm ..": "is not the name of a namespace", "token ls ..": "is not the name of a namespace",
		"token create mail --hash=mysecret": "never the token itself", "admin-token create a --role=viewer --hash=mysecret": "never the token itself",
		"token create ../x": "is not the name of a namespace", "token revoke .. x": "is not the name of a namespace",
	} {
		api := newFakeAPI(t, map[string]string{})
		_, stderr, code := run(t, api, strings.Fields(args)...)
		if code != 2 || !strings.Contains(stderr, want) || api.requests() != "" || strings.Contains(stderr, "mysecret") {
			t.Errorf("%s: exit %d, %s; it asked for %s", args, code, stderr, api.requests())
		}
	}
}

func TestAnAdminPortWithoutTokensSaysSo(t *testing.T) {
	t.Parallel()
	out, stderr, code := run(t, newFakeAPI(t, map[string]string{"GET /api/v1/control/admin-tokens": `{"admin_tokens":[]}`}), "admin-token", "ls")
	if code != 0 || out != "" || !strings.Contains(stderr, "the admin port has no tokens") {
		t.Errorf("exit %d, %s%s", code, out, stderr)
	}
}

func TestANamespaceWithJobsIsDeletedOnlyWhenSomebodySaysSo(t *testing.T) {
	t.Parallel()
	const route = "POST /api/v1/control/namespaces/mail/delete"
	api := newFakeAPI(t, map[string]string{route: `{"jobs":12}`})
	_, stderr, code := run(t, api, "ns", "rm", "mail", "--force")
	if code != 2 || !strings.Contains(stderr, "add --yes to delete them") || !strings.Contains(stderr, "(12)") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	if got := api.requests(); got != route+` {"dry_run":true,"force":true}` {
		t.Errorf("it asked for %s", got)
	}
}

func TestABackfillIsCountedAndConfirmedFirst(t *testing.T) {
	t.Parallel()
	const route = "POST /api/v1/namespaces/mail/queues/reports/schedules/daily/backfill"
	const span = `","from":"2026-10-01T00:00:00Z","to":"2026-10-03T00:00:00+02:00"}`
	line := []string{"schedules", "backfill", "mail", "reports", "daily", "--from=2026-10-01T00:00:00Z", "--to=2026-10-03T00:00:00+02:00"}
	counted, confirmed := route+` {"dry_run":"1`+span, route+` {"confirm":"8`+span
	for _, tt := range []struct {
		flag, counted, out, stderr, asked string
		code                              int
	}{
		{"--yes", `{"dry_run":true,"ticks":2,"jobs":8}`, "reports/daily: 2 ticks, published 6 jobs\n", "found 8 jobs", counted + "\n" + confirmed, 0},
		{"--dry-run", `{"dry_run":true,"ticks":2,"jobs":8}`, "reports/daily: nothing was changed\n", "found 8 jobs", counted, 0},
		{"--yes", `{"dry_run":true,"ticks":0}`, "reports/daily: nothing was changed\n", "found 0 ticks", counted, 0},
		{"--output=text", `{"dry_run":true,"ticks":2,"jobs":8}`, "", "add --yes to publish them (8)", counted, 2},
	} {
		api := newFakeAPI(t, map[string]string{route: `{"ticks":2,"accepted":6}`})
		api.queue[route] = []string{tt.counted}
		out, stderr, code := run(t, api, append(line, tt.flag)...)
		if code != tt.code || out != tt.out || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%s: exit %d\n%s%s\nwant %d\n%s%s", tt.flag, code, out, stderr, tt.code, tt.out, tt.stderr)
		}
		if api.requests() != tt.asked {
			t.Errorf("%s: it asked for %s, want %s", tt.flag, api.requests(), tt.asked)
		}
	}
}

func TestTheTimesOfASpecificationAskNoServiceThoseOfAScheduleDo(t *testing.T) {
	t.Parallel()
	daily := filepath.Join(t.TempDir(), "daily.yaml")
	if err := os.WriteFile(daily, []byte("cron: \"30 2 * * *\"\ntz: Europe/Berlin\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const route = "GET /api/v1/namespaces/mail/queues/reports/schedules/daily/times"
	for _, tt := range []struct{ args, out, asked string }{
		{"check -f " + daily + " --count=2 --from=2026-10-24T12:00:00Z", "2026-10-25T02:30:00+02:00\n2026-10-26T02:30:00+01:00\n", ""},
		{"check -f " + daily + " --count=1 --from=2026-10-24T12:00:00Z -o json", `{"next":["2026-10-25T02:30:00+02:00"]}` + "\n", ""},
		{"times mail reports daily --count=2 --from=2026-10-24T12:00:00+02:00", "a\nb\n", route + "?count=2&from=2026-10-24T12%3A00%3A00%2B02%3A00"},
		{"times mail reports daily", "a\nb\n", route + "?count=10"},
	} {
		api := newFakeAPI(t, map[string]string{route: `{"next":["a","b"]}`})
		out, stderr, code := run(t, api, append([]string{"schedules"}, strings.Fields(tt.args)...)...)
		if code != 0 || out != tt.out || api.requests() != tt.asked {
			t.Errorf("%s: exit %d, asked %s\n%s%s\nwant %s\n%s", tt.args, code, api.requests(), out, stderr, tt.asked, tt.out)
		}
	}
	for _, args := range []string{"mail reports daily --count=0", "mail reports daily --count=1001", "mail reports _daily", "mail .reports daily", "a/b reports daily"} {
		api := newFakeAPI(t, nil)
		if _, stderr, code := run(t, api, append([]string{"schedules", "times"}, strings.Fields(args)...)...); code != 2 || api.requests() != "" {
			t.Errorf("%q: exit %d, %s", args, code, stderr)
		}
	}
}

func TestServicesAndFilteredSchedulesAreListed(t *testing.T) {
	t.Parallel()
	const owners, schedules = "GET /api/v1/namespaces/mail/owners", "GET /api/v1/namespaces/mail/schedules"
	one := `{"name":"daily","queue":"reports","state":"active","next":[],"ticks":{"missed":2},"last":[]}`
	for _, tt := range []struct{ args, answer, out, stderr, asked string }{
		{"owners mail", `{"owners":[{"owner":"billing","version":7,"state":"gone","until_ms":1763629675000,"owns":12},{"owner":"mailer","version":1,"state":"ended","owns":0}]}`,
			"OWNER    STATE  VERSION  UNTIL                 SCHEDULES\nbilling  gone   7        2025-11-20T09:07:55Z         12\nmailer   ended  1        -                             0\n", "", owners},
		{"owners mail", `{"owners":[]}`, "", "no owners\n", owners},
		{"ls mail --failing --owner=billing --queue=reports", `{"schedules":[` + one + `],"next":"reports/daily"}`, "reports  daily", "for more: --after reports/daily\n",
			schedules + "?failing=1&limit=100&owner=billing&queue=reports"},
		{"ls mail --failing", `{"schedules":[],"next":"reports/z"}`, "QUEUE", "for more: --after reports/z\n", schedules + "?failing=1&limit=100"},
		{"ls mail", `{"schedules":[],"next":""}`, "", "no schedules\n", schedules + "?limit=100"},
	} {
		api := newFakeAPI(t, map[string]string{owners: tt.answer, schedules: tt.answer})
		out, stderr, code := run(t, api, append([]string{"schedules"}, strings.Fields(tt.args)...)...)
		if code != 0 || !strings.Contains(out, tt.out) || stderr != tt.stderr || api.requests() != tt.asked {
			t.Errorf("%s: exit %d, asked %s\n%s%s", tt.args, code, api.requests(), out, stderr)
		}
	}
}
