package php

import (
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
