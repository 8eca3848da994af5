package schedule_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule"
	"github.com/spillway-io/spillway/partition/schedule/cron"
)

// tzdata is that of a program for which Europe/Berlin follows a rule, in the form of TZ.
func tzdata(t *testing.T, rule string) func(string) (*time.Location, error) {
	t.Helper()
	// A file as of RFC 8536, with one type of local time, no change, and the rule.
	block := "TZif2" + strings.Repeat("\x00", 15+4*4) + "\x00\x00\x00\x01" + "\x00\x00\x00\x04" + "\x00\x00\x0e\x10\x00\x00CET\x00"
	zone, err := time.LoadLocationFromTZData("Europe/Berlin", []byte(block+block+"\n"+rule+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	return func(name string) (*time.Location, error) {
		if name == "Europe/Berlin" {
			return zone, nil
		}
		return cron.Zone(name)
	}
}

// A country gives up its winter time, and of two processes one has not heard of it. The tick that is stored stands, whoever
// stored it; one of the two fires it, and what that one passes over by its rule is accounted for.
func TestProcessesWithOtherTzdataFireEachTickOnce(t *testing.T) {
	t.Parallel()
	older, newer := tzdata(t, "CET-1CEST,M3.5.0,M10.5.0/3"), tzdata(t, "CEST-2")
	s := newSite(t, redistest.Start(t).Addr, 0, time.Date(2026, 10, 23, 20, 0, 0, 0, time.UTC))
	rules := [2]map[string]*schedule.Spec{{}, {}}
	for name, text := range map[string]string{
		"minutes": `{"cron":"*/10 * * * *","tz":"Europe/Berlin"}`,
		"daily":   `{"cron":"30 4 * * *","tz":"Europe/Berlin"}`,
		"workday": `{"cron":"0 9-11 * * 1-5","tz":"Europe/Berlin","missed":"all"}`,
		"skip":    `{"cron":"15 */2 * * *","tz":"Europe/Berlin","missed":"skip"}`,
		"other":   `{"cron":"30 4 * * *","tz":"Asia/Tokyo"}`,
	} {
		s.put(name, text, older)
		rules[0][name] = s.specs[name]
		var err error
		if rules[1][name], err = schedule.ParseIn([]byte(text), newer); err != nil {
			t.Fatal(err)
		}
	}
	began, ticks, won := s.now, map[string]int64{}, [2]int{}
	for turn := 0; s.now.Before(began.AddDate(0, 0, 6)); turn++ {
		away := s.now.Equal(time.Date(2026, 10, 27, 12, 0, 0, 0, time.UTC)) // both, for a while
		s.now = s.now.Add(map[bool]time.Duration{false: 10 * time.Minute, true: 23 * time.Hour}[away])
		s.SetNow(s.now)
		for {
			made, due, err := s.DueSchedules(t.Context(), s.ns, 0, 0, 10)
			if err != nil {
				t.Fatal(err)
			}
			var plans [2][]*job.Firing // both have read the same
			for _, d := range due {
				state, _ := schedule.ReadState(d.State)
				for process := range plans {
					f := schedule.Plan(rules[process][d.Name], "mail", queue, d.Name, d.State, &state, made)
					if d.At <= made {
						plans[process] = append(plans[process], f)
					}
				}
			}
			if len(plans[0]) == 0 {
				break
			}
			first := (turn / 2) % 2
			for _, process := range []int{first, 1 - first} {
				if _, err := s.Fire(t.Context(), s.ns, 0, made, plans[process]); err != nil {
					t.Fatal(err)
				}
			}
			for i, f := range plans[first] {
				if f.Status != job.Fired || plans[1-first][i].Status != job.Stale {
					t.Errorf("%s at %s: the first process ends with %d, the other with %d", f.Name, s.now, f.Status, plans[1-first][i].Status)
				}
				was, _ := schedule.ReadState(f.State)
				for tick := was.Next; tick != f.Next; tick = rules[first][f.Name].Next(tick) {
					ticks[f.Name]++
				}
				won[first]++
			}
			s.work()
		}
	}
	for name := range s.specs {
		if state := s.state(name); state.Ticks.Total() != ticks[name] {
			t.Errorf("%s: %d ticks, and the account is %+v", name, ticks[name], state.Ticks)
		}
	}
	if want := int64(s.now.Sub(began) / (10 * time.Minute)); ticks["minutes"] != want {
		t.Errorf("%d ticks of ten minutes, want %d: both rules have them", ticks["minutes"], want)
	}
	if n := ticks["daily"]; n < 6 || n > 12 || ticks["other"] != 6 || won[0] == 0 || won[1] == 0 {
		t.Errorf("in six days %d ticks of a day here and %d in a zone that stays; the processes won %v", n, ticks["other"], won)
	}
	if residual, err := s.Audit(t.Context(), s.ns); err != nil || residual != 0 {
		t.Errorf("residual %d: %v", residual, err)
	}
}

// More than a page of schedules whose zone a process does not know are due before one that it can read.
func TestASchedulesZoneThatAProcessDoesNotKnowHidesNothing(t *testing.T) {
	t.Parallel()
	const unknown = 300
	ignorant := func(name string) (*time.Location, error) {
		if name == "Europe/Berlin" {
			return nil, errors.New("no such zone")
		}
		return cron.Zone(name)
	}
	s := newSite(t, redistest.Start(t).Addr, 0, time.Date(2026, 10, 24, 20, 0, 30, 0, time.UTC), ignorant, cron.Zone)
	for i := range unknown {
		s.put(fmt.Sprint("a", i), `{"cron":"* * * * *","tz":"Europe/Berlin"}`, cron.Zone)
	}
	s.put("b", `{"cron":"* * * * *"}`, cron.Zone)
	fire := func(process int, d time.Duration) {
		s.now = s.now.Add(d)
		s.SetNow(s.now)
		s.firers[process].Work(t.Context(), job.DueShard{Namespace: s.ns})
		s.work()
	}
	expect := func(when string, unread, known, others int) {
		t.Helper()
		for i := range unknown {
			if got := s.state(fmt.Sprint("a", i)).Ticks.Total(); got != int64(others) {
				t.Errorf("%s: a%d has %d ticks, want %d", when, i, got, others)
			}
		}
		if got := s.state("b").Ticks.Total(); got != int64(known) || s.unreadable(0) != unread {
			t.Errorf("%s: %d ticks of the schedule behind, want %d; %d times unreadable, want %d", when, got, known, s.unreadable(0), unread)
		}
	}
	fire(0, 32*time.Second)
	expect("when they are due", unknown, 1, 0)
	fire(0, 30*time.Second)
	expect("half a minute later", unknown, 1, 0)
	fire(0, 30*time.Second)
	expect("a minute later", 2*unknown, 2, 0)
	fire(1, 60*time.Second) // a process that knows the zone: three ticks are late by then
	expect("by another process", 2*unknown, 3, 3)
	s.account()
}

// unreadable is how often a process could not read a schedule.
func (s *site) unreadable(process int) int {
	families, err := s.gathered[process].Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "spillway_schedules_unreadable_total" {
			return int(f.GetMetric()[0].GetCounter().GetValue())
		}
	}
	return -1
}
