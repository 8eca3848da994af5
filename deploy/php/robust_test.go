//go:build php

package php

import (
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"
)

// The job is not answered, so it comes again: the next child runs it.
func TestAJobThatEndsItsChildIsRunByTheNext(t *testing.T) {
	for name, tt := range map[string]struct {
		act  string
		code int
		says string
	}{
		"exit": {"exit:0", 0, ""}, "exit with a code": {"exit:7", 7, ""}, "no memory": {"eat", 255, "Allowed memory size"},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(t *testing.T, p *project) {
				p.push(t, note(tt.act))
				d := p.claim(t)
				c := p.start(t, 2)
				if code := c.dies(t, d); code != tt.code || !strings.Contains(c.out.String(), tt.says) {
					t.Errorf("the child ends with %d, want %d, and %q\n%s", code, tt.code, tt.says, &c.out)
				}
				p.settle(t, d, answer{Do: "release"})
				d = p.claim(t)
				p.start(t, 2).dies(t, d)
				if n := p.count(t, func(s seen) bool { return s.Ran == 2 }); n != 1 {
					t.Errorf("the job ran %d times as its second attempt, want once", n)
				}
			})
		})
	}
}

// Of 2,000 jobs in one child nothing stays.
func TestAChildDoesNotGrow(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		job := note("throw:x")
		job.Count = 2000
		p.push(t, job)
		c := p.start(t, 1)
		for range job.Count {
			c.next(t)
		}
		c.end(t)
		var memory []int64
		for _, s := range p.seen(t) {
			if ran(s) {
				memory = append(memory, s.Memory)
			}
		}
		first, last := memory[len(memory)/10], memory[len(memory)-1]
		if len(memory) < 1000 || last > first+100<<10 {
			t.Errorf("after %d jobs a child has %d bytes, after %d it has %d", len(memory)/10, first, len(memory), last)
		}
	})
}

func TestALineThatIsNoJobEndsTheChild(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		c := p.start(t, 1)
		if _, err := c.in.Write([]byte("nonsense\n")); err != nil {
			t.Fatal(err)
		}
		if err := c.cmd.Wait(); err == nil {
			t.Error("the child goes on")
		}
	})
}

// Laravel's worker ends when a job lost the database, so that the next has a new connection.
func TestAChildOfLaravelEndsAfterALostConnection(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		p.push(t, command(nil, "throw:server has gone away"))
		c := p.start(t, 2)
		if a := c.next(t); a.Do != "release" {
			t.Errorf("got %+v", a)
		}
		if rest, err := io.ReadAll(c.answers); err != nil || len(rest) > 0 {
			t.Errorf("after its answer the child says %q, %v", rest, err)
		}
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("the child ends with %v", err)
		}
	}, laravel, artisan)
}

func TestAPayloadOfOtherBytesReachesTheLibrary(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		c := p.start(t, 0)
		p.push(t, note("delete"))
		d := p.claim(t)
		encoded := base64.StdEncoding.EncodeToString([]byte(d.payload))
		_, err := fmt.Fprintf(c.in, `{"v":1,"seq":"%s","queue":"q","attempts":1,"tries":1,"backoff":0,"timeout":9,"payload_base64":"%s"}`+"\n", d.seq, encoded)
		must(t, err)
		if a := c.answer(t, d.seq); a.Do != "delete" {
			t.Errorf("got %+v: %s", a, a.error())
		}
	})
}

// A payload that the library cannot read is Spillway's unreadable already; what is JSON and
// no job gets the library's own verdict, and the child goes on.
func TestAPayloadThatIsNoJobIsTheLibrarysToJudge(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		c := p.start(t, 1)
		for _, payload := range []string{"{}", "[]", "null", "no JSON", `{"job":5,"data":null}`, `{"job":"No\\Such@job","data":{},"attempts":0}`} {
			a := c.run(t, delivery{"7", payload, 1})
			if a.Do != "failed" && a.Do != "forgot" && a.Do != "release" {
				t.Errorf("%s: got %+v", payload, a)
			}
		}
		p.push(t, note("delete"))
		if a := c.next(t); a.Do != "delete" {
			t.Errorf("the job after them: got %+v: %s", a, a.error())
		}
		c.end(t)
	})
}
