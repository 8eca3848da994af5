package php

import (
	"strings"
	"testing"
)

func TestTheClassOfAJobIsWhatPHPRuns(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"job":"App\\Jobs\\Mail@fire","data":{}}`:                                                                   `App\Jobs\Mail`,
		`{"job":"Evil@fire","data":{"command":"x","commandName":"App\\Jobs\\Mail"}}`:                                 `Evil`,
		`{"job":"Illuminate\\Queue\\CallQueuedHandler@call","data":{"command":"x","commandName":"App\\Jobs\\Mail"}}`: `App\Jobs\Mail`,
		`{"job":"think\\queue\\CallQueuedHandler@call","data":{"commandName":"A","command":"x"}}`:                    `A`,
		`{"job":"think\\queue\\CallQueuedHandler@call","data":{"commandName":"A"}}`:                                  `think\queue\CallQueuedHandler`,
		`{"job":"A","j\u006fb":"Evil@fire"}`:                                                                         `Evil`,
	} {
		if got := Read([]byte(payload)).Class; got != want {
			t.Errorf("%s: class %s, want %s", payload, got, want)
		}
	}
}

func TestWhatAClaimShowsOfAPayloadIsBounded(t *testing.T) {
	t.Parallel()
	s := open(t, Laravel, nil)
	long := strings.Repeat("<é", 100_000)
	s.publish("mail", `{"job":"A","displayName":"`+long+`","id":"`+long+`","tags":["`+long+`","b"],"attempts":0}`)
	if jobs := s.claim(1, "mail"); len(jobs) != 1 || len(jobs[0].PHP) > 16<<10 || len(jobs[0].Payload) < len(long) {
		t.Errorf("%d jobs, %d bytes beside the payload", len(jobs), len(jobs[0].PHP))
	}
}
