//go:build php

package php

import (
	"fmt"
	"slices"
	"testing"
)

// Horizon's own queue fires events when it pops, deletes and releases, by which its dashboard and its metrics live.
// The package itself cannot be had here, so stand-ins with its constructors take its place.
func TestTheEventsOfHorizonAreFiredWhereThereIsHorizon(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		p.env = append(p.env, "HORIZON=1")
		c := p.start(t, 1)
		shown := 0
		for _, tt := range []struct {
			act  string
			want []string
		}{
			{"delete", []string{"JobReserved", "JobDeleted false"}},
			{"release:5", []string{"JobReserved", "JobReleased 5"}},
			{"throw:x", []string{"JobReserved", "JobDeleted true", "JobFailed RuntimeException"}},
		} {
			p.push(t, note(tt.act))
			d := p.claim(t)
			c.run(t, d)
			p.settle(t, d, answer{Do: "delete"})
			var got []string
			all := p.seen(t)
			for _, s := range all[shown:] {
				switch s.Horizon {
				case "":
					continue
				case "JobDeleted":
					got = append(got, fmt.Sprint(s.Horizon, " ", s.HasFailed))
				case "JobReleased":
					got = append(got, fmt.Sprint(s.Horizon, " ", s.Delay))
				case "JobFailed":
					got = append(got, s.Horizon+" "+s.Reported)
				default:
					got = append(got, s.Horizon)
				}
				if s.Queue != p.queue || s.Connection != "shop" || s.Body != sum([]byte(d.payload)) {
					t.Errorf("%s: %+v is not of the job", tt.act, s)
				}
			}
			if shown = len(all); !slices.Equal(got, tt.want) {
				t.Errorf("%s: Horizon is told %q, want %q", tt.act, got, tt.want)
			}
		}
		// What is no job of Laravel's has no id, by which Horizon knows jobs.
		c.run(t, delivery{"7", `{"job":"App\\Jobs\\Note@fire","data":{"acts":["delete"]},"attempts":0}`, 1})
		for _, s := range p.seen(t)[shown:] {
			if s.Horizon != "" {
				t.Errorf("without an id: %+v", s)
			}
		}
	}, laravel, artisan)
}
