package check

import (
	"strings"
	"testing"
	"time"
)

// goodSchedules is a schedule of every second, made at 500 ms. Its ticks at 1 s, 2 s and 4 s fired, that at 3 s was
// missed; it was triggered once, and a job of it was delivered twice.
func goodSchedules() *Schedules {
	job := func(id, cause string, tick, got int) ScheduledJob {
		return ScheduledJob{Schedule: "mail/daily", ID: id, Cause: cause, Tick: at(tick), Got: at(got)}
	}
	return &Schedules{
		Put: []PutSchedule{{Name: "mail/daily", Every: time.Second, First: at(1000)}},
		Jobs: []ScheduledJob{job("1", "due", 1000, 1010), job("2", "caught_up", 2000, 2900), job("2", "caught_up", 2000, 3900),
			job("3", "triggered", 3000, 3050), job("4", "waited", 4000, 4400)},
		Active: map[string]ScheduleAccount{"mail/daily": {Next: at(5000), Total: 4, Fired: 3, Missed: 1}},
		Paused: map[string]ScheduleAccount{"mail/daily": {Total: 4, Fired: 3, Missed: 1}},
		Fired:  3,
	}
}

func TestEachBrokenPromiseOfAScheduleIsNamed(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		check  string // "": none is broken
		change func(*Schedules)
	}{
		"nothing":            {"", func(*Schedules) {}},
		"a tick fires twice": {"S1", func(s *Schedules) { s.Jobs[2].ID = "9" }},
		"a job is missing":   {"S2", func(s *Schedules) { s.Jobs = s.Jobs[1:] }},
		"a job too many":     {"S2", func(s *Schedules) { s.Jobs[3].Cause = "due" }},
		"jobs are left":      {"S2", func(s *Schedules) { s.Left = 1 }},
		"before its tick":    {"S3", func(s *Schedules) { s.Jobs[0].Got = at(990) }},
		"a tick is forgotten": {"S4", func(s *Schedules) {
			s.Active["mail/daily"] = ScheduleAccount{Next: at(6000), Total: 4, Fired: 3, Missed: 1}
		}},
		"of an edited one nobody knows": {"", func(s *Schedules) {
			s.Put[0].Edited, s.Active["mail/daily"] = true, ScheduleAccount{Next: at(6000), Total: 4, Fired: 3, Missed: 1}
		}},
		"a tick without a fate": {"S4", func(s *Schedules) { s.Paused["mail/daily"] = ScheduleAccount{Total: 5, Fired: 3, Missed: 1} }},
		"nothing fired":         {"S5", func(s *Schedules) { s.Fired = 4 }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := good()
			h.Schedules = goodSchedules()
			row.change(h.Schedules)
			var all []string
			for _, v := range Run(h) {
				all = append(all, v.String())
			}
			if got := strings.Join(all, "\n"); row.check == "" && got != "" || !strings.Contains(got, row.check) {
				t.Errorf("got %q, want a violation of %q", got, row.check)
			}
		})
	}
}
