package operate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestABackfillIsCountedAndConfirmedFirst(t *testing.T) {
	t.Parallel()
	const route = "POST /api/v1/namespaces/mail/queues/reports/schedules/daily/backfill"
	const asks = route + ` {"from":"2026-10-01T00:00:00Z","to":"2026-10-03T00:00:00+02:00",`
	line := []string{"schedules", "backfill", "mail", "reports", "daily", "--from=2026-10-01T00:00:00Z", "--to=2026-10-03T00:00:00+02:00"}
	for _, tt := range []struct {
		flag, counted, out, stderr string
		asked                      []string
		code                       int
	}{
		{"--yes", `{"dry_run":true,"ticks":2,"jobs":8}`, "reports/daily: published 6 jobs\n", "found 2 ticks, 8 jobs", []string{`"dry_run":true}`, `"confirm":8}`}, 0},
		{"--dry-run", `{"dry_run":true,"ticks":2,"jobs":8}`, "reports/daily: nothing was published\n", "found 2 ticks, 8 jobs", []string{`"dry_run":true}`}, 0},
		{"--yes", `{"dry_run":true,"ticks":0,"jobs":0}`, "reports/daily: nothing was published\n", "found 0 ticks, 0 jobs", []string{`"dry_run":true}`}, 0},
		{"--output=text", `{"dry_run":true,"ticks":2,"jobs":8}`, "", "add --yes to publish them (8)", []string{`"dry_run":true}`}, 2},
	} {
		api := newFakeAPI(t, map[string]string{route: `{"dry_run":false,"ticks":2,"jobs":6}`})
		api.queue[route] = []string{tt.counted}
		out, stderr, code := run(t, api, append(line, tt.flag)...)
		if code != tt.code || out != tt.out || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%s: exit %d\n%s%s\nwant %d\n%s%s", tt.flag, code, out, stderr, tt.code, tt.out, tt.stderr)
		}
		if want := asks + strings.Join(tt.asked, "\n"+asks); api.requests() != want {
			t.Errorf("%s: it asked for %s, want %s", tt.flag, api.requests(), want)
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
		{"-f " + daily + " --count=2 --from=2026-10-24T12:00:00Z", "2026-10-25T02:30:00+02:00\n2026-10-26T02:30:00+01:00\n", ""},
		{"-f " + daily + " --count=1 --from=2026-10-24T12:00:00Z -o json", `{"next":["2026-10-25T02:30:00+02:00"]}` + "\n", ""},
		{"mail reports daily --count=2 --from=2026-10-24T12:00:00+02:00", "a\nb\n", route + "?count=2&from=2026-10-24T12%3A00%3A00%2B02%3A00"},
		{"mail reports daily", "a\nb\n", route + "?count=10"},
	} {
		api := newFakeAPI(t, map[string]string{route: `{"next":["a","b"]}`})
		out, stderr, code := run(t, api, append([]string{"schedules", "times"}, strings.Fields(tt.args)...)...)
		if code != 0 || out != tt.out || api.requests() != tt.asked {
			t.Errorf("%s: exit %d, asked %s\n%s%s\nwant %s\n%s", tt.args, code, api.requests(), out, stderr, tt.asked, tt.out)
		}
	}
	for _, args := range []string{"", "mail", "mail reports", "mail reports daily -f x", "-f x --count=1001", "mail reports _daily"} {
		if _, stderr, code := run(t, newFakeAPI(t, nil), append([]string{"schedules", "times"}, strings.Fields(args)...)...); code != 2 {
			t.Errorf("%q: exit %d, %s", args, code, stderr)
		}
	}
}
