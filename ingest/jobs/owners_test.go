package jobs

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/job"
)

func TestSchedulesOfAServiceFireWhileItLives(t *testing.T) {
	t.Parallel()
	for name, url := range storesOf(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startFiring(t, url, func(p *job.Policy) { p.Shards = 3 })
			p.expect(200, `"created":2,"deleted":0`, "PUT", "_owners/billing?version=1&ttl=1h",
				`{"schedules":[{"queue":"reports","name":"a","every":"1s"},{"queue":"invoices","name":"b","every":"1s"}]}`)
			eventually(t, "it fires", func() bool { return p.schedule("a").Ticks["fired"] > 0 })
			p.expect(200, `"state":"ended"`, "DELETE", "_owners/billing", "")
			fired := p.schedule("a").Ticks["fired"]
			eventually(t, "its ticks are unregistered", func() bool { return p.schedule("a").Ticks["unregistered"] > 1 })
			if s := p.schedule("a"); s.Ticks["fired"] != fired {
				t.Errorf("it fired without its service: %v, before %d", s.Ticks, fired)
			}
			p.expect(200, `"accepted":1`, "POST", "reports/schedules/a/trigger", "")
			p.expect(404, "no_such_owner", "POST", "_owners/billing/heartbeat", "")
			p.expect(200, `"unchanged":2,"until_ms":`, "PUT", "_owners/billing?version=1&ttl=1h",
				`{"schedules":[{"queue":"reports","name":"a","every":"1s"},{"queue":"invoices","name":"b","every":"1s"}]}`)
			eventually(t, "it fires again", func() bool { return p.schedule("a").Ticks["fired"] > fired })
			p.expect(200, `"until_ms":`, "POST", "_owners/billing/heartbeat?ttl=1s", "")
		})
	}
}

func TestARollingDeployCannotBringOldSchedulesBack(t *testing.T) {
	t.Parallel()
	p := startFiring(t, redistest.Start(t).URL(), func(p *job.Policy) { p.Shards = 2 })
	const one, two = `{"schedules":[{"queue":"reports","name":"a","every":"1h"},{"queue":"mails","name":"b","every":"1h"}]}`,
		`{"schedules":[{"queue":"reports","name":"a","every":"2h"},{"queue":"reports","name":"c","every":"1h"}]}`
	p.expect(200, `"created":2`, "PUT", "_owners/billing?version=7", one)
	p.expect(200, `"created":1,"deleted":1,"owner":"billing","replaced":1`, "PUT", "_owners/billing?version=8", two)
	p.expect(409, "old_version", "PUT", "_owners/billing?version=7", one)
	p.expect(200, `"created":0,"deleted":0,"owner":"billing","replaced":0,"state":"registered","unchanged":2`, "PUT", "_owners/billing?version=8", two)
	p.expect(404, "no_such_schedule", "GET", "mails/schedules/b", "")
	p.expect(200, `"schedules":[{"queue":"reports","name":"a","version":8},{"queue":"reports","name":"c","version":8}]`, "GET", "_owners/billing", "")
	p.expect(200, `{"owners":[{"owner":"billing","version":8,"state":"registered","until_ms":`, "GET", "_owners", "")
	p.expect(200, `,"owns":2}]}`, "GET", "_owners", "")

	// Others may pause and delete what belongs to it, and not put it.
	p.expect(409, "other_owner", "PUT", "reports/schedules/a", `{"every":"1s"}`)
	p.expect(409, "other_owner", "PUT", "_owners/mailer?version=1", `{"schedules":[{"queue":"reports","name":"a","every":"1s"}]}`)
	p.expect(200, `"owner":"billing"`, "GET", "reports/schedules/a", "")
	p.expect(200, `"paused"`, "POST", "reports/schedules/a/pause", "")
	p.expect(200, `"deleted"`, "DELETE", "reports/schedules/c", "")
	p.expect(200, `"schedules":[{"queue":"reports","name":"a","version":8}]`, "GET", "_owners/billing", "")

	// It stays registered with its version, until it is deleted with all it has.
	p.expect(200, `"deleted":0`, "DELETE", "_owners/billing", "")
	p.expect(409, "old_version", "PUT", "_owners/billing?version=7", one)
	p.expect(200, `"deleted":1`, "DELETE", "_owners/billing?schedules=delete", "")
	p.expect(404, "no_such_owner", "GET", "_owners/billing", "")
	p.expect(404, "no_such_owner", "DELETE", "_owners/billing", "")
	p.expect(200, `"created":2`, "PUT", "_owners/billing?version=1", one)
}

func TestARegistrationSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	p := startFiring(t, "embedded:", func(p *job.Policy) { p.MaxSchedules = 2 })
	many := `{"schedules":[` + strings.Repeat(`{"queue":"q","name":"a","every":"1h"},`, 500) + `{"queue":"q","name":"a","every":"1h"}]}`
	for body, field := range map[string]string{
		`{}`: "schedules", `{"schedules":null}`: "schedules", `[]`: "", `{"schedules":[{"every":"1h","name":"a"}]}`: "queue", many: "schedules",
		`{"schedules":[{"every":"1h","queue":"q"}]}`: "name", `{"schedules":[{"every":"1h","queue":"q","name":"_a"}]}`: "name",
		`{"schedules":[{"every":"1h","queue":"_out","name":"a"}]}`: "queue", `{"schedules":[{"cron":"60 * * * *","queue":"q","name":"a"}]}`: "cron",
		`{"schedules":[{"every":"1h","queue":"q","name":"a"},{"every":"2h","queue":"q","name":"a"}]}`: "name",
		`{"schedules":[{"every":"1h","queue":"q","name":"a","owner":"x"}]}`:                           "owner",
		`{"schedules":[{"every":"1h","queue":"q","name":"a","evry":1}]}`:                              "evry", `{"schedules":[],"schedules":[]}`: "schedules", `{"schedules":[]}x`: "",
	} {
		r := p.do("PUT", "/v1/mail/_owners/billing?version=1", body)
		var got struct{ Field string }
		_ = json.Unmarshal([]byte(r.raw), &got)
		if r.status != 400 || r.Error != "bad_schedule" || got.Field != field {
			t.Errorf("%.90s: got %d %s, want the field %q", body, r.status, r.raw, field)
		}
	}
	for path, code := range map[string]string{
		"_owners/a": "bad_version", "_owners/a?version=0": "bad_version", "_owners/a?version=-1": "bad_version", "_owners/a?version=9007199254740992": "bad_version",
		"_owners/a?version=1&ttl=10ms": "bad_ttl", "_owners/a?version=1&ttl=25h": "bad_ttl", "_owners/.a?version=1": "bad_name", "_owners/_a?version=1": "bad_name",
		"_owners/" + strings.Repeat("x", 129) + "?version=1": "bad_name", "_owners/?version=1": "no_such_route", "_owners/a/b?version=1": "no_such_route", "_owners?version=1": "method_not_allowed",
		"q/schedules/a": "bad_schedule",
	} {
		if r := p.do("PUT", "/v1/mail/"+path, `{"owner":"a","every":"1h"}`); r.Error != code {
			t.Errorf("%s: got %d %s, want %s", path, r.status, r.raw, code)
		}
	}
	p.expect(400, "bad_schedules", "DELETE", "_owners/a?schedules=all", "")
	p.expect(429, "too_many_schedules", "PUT", "_owners/billing?version=1",
		`{"schedules":[{"queue":"q","name":"a","every":"1h"},{"queue":"q","name":"b","every":"1h"},{"queue":"q","name":"c","every":"1h"}]}`)
	if r := p.do("PUT", "/v1/mail/_owners/billing?version=1", `{"schedules":[{"queue":"q","name":"c","every":"1h"}]}`); !strings.Contains(r.Message, "schedule c of queue q") {
		t.Errorf("got %d %s", r.status, r.raw)
	}
}
