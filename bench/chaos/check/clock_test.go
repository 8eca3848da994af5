package check

import (
	"strings"
	"testing"
	"time"
)

// step is the store's clock from a moment on.
func step(ms, ahead int) Fault {
	return Fault{Kind: KindClockStep, Target: "redis", From: at(ms), To: at(ms + 1), Offset: time.Duration(ahead) * time.Millisecond}
}

// Each row breaks a check where the clock stood still, and not where it stepped at the right time.
func TestAClockStepAllowsWhatItExplainsAndNoMore(t *testing.T) {
	t.Parallel()
	job := func(change func(*Jobs)) func(*History) {
		return func(h *History) {
			h.Jobs = goodJobs()
			change(h.Jobs)
		}
	}
	for name, row := range map[string]struct {
		check  string
		change func(*History)
		steps  []Fault // that explain it
		others []Fault // that do not
	}{
		"stale by the clock from before": {"C8",
			func(h *History) { h.Posts[0].Lines[0].TS = at(-5000).UnixMilli() },
			[]Fault{step(-1, -4000)}, []Fault{step(-6000, 4000)}},
		"first presented after its successors": {"C7",
			func(h *History) { h.Posts = append(h.Posts[1:], post(2100, 200, 1, 2, 3)) },
			[]Fault{step(-500, 4000)}, []Fault{step(-500, -4000), step(-6000, 4000)}},
		"presented while another holds it": {"C7",
			func(h *History) { h.Posts = append(h.Posts, post(700, 200, 9)) },
			[]Fault{step(650, 4000)}, []Fault{step(650, -4000)}},
		"handed out after its ack": {"J4",
			job(func(j *Jobs) {
				j.Deliveries[2].Claimed = at(4000)
				j.Deliveries[2].Got = at(4000)
				j.Settled[2].End = at(60)
			}),
			[]Fault{step(20, 3950)}, []Fault{step(100, 3900), step(20, -3950)}},
		"before its delay": {"J5",
			job(func(j *Jobs) { j.Deliveries[3].Claimed = at(90); j.Deliveries[3].Got = at(200) }),
			[]Fault{step(110, -110)}, []Fault{step(110, 100), step(80, -10)}},
		"after its ttl": {"J5",
			job(func(j *Jobs) { j.Deliveries[3].Claimed = at(1500); j.Deliveries[3].Got = at(1600) }),
			[]Fault{step(-100, 600)}, []Fault{step(500, 600)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			broken := func(steps ...Fault) bool {
				h := good()
				row.change(h)
				h.Policy.Lease = 2 * time.Second
				h.Faults = append(h.Faults, steps...)
				for _, v := range Run(h) {
					if strings.HasPrefix(v.String(), row.check+": ") {
						return true
					}
				}
				return false
			}
			if !broken() {
				t.Errorf("%s holds without a step", row.check)
			}
			if broken(row.steps...) {
				t.Errorf("%s is broken although the clock stepped", row.check)
			}
			for _, other := range row.others {
				if !broken(other) {
					t.Errorf("%s holds with %+v", row.check, other)
				}
			}
		})
	}
}
