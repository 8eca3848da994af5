package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/bench/rig"
	"github.com/spillway-io/spillway/lua/proc"
)

// lmstfyBulk is the most jobs that lmstfy takes at once.
const lmstfyBulk = 64

// lmstfyRates are the jobs a second of the four rows.
type lmstfyRates struct{ put, get, putBulk, getMany float64 }

// jobsBesideLmstfy measures lmstfy's API, ours and lmstfy's own.
func jobsBesideLmstfy(ctx context.Context, m *measurement) error {
	server, err := exec.LookPath(m.lmstfyServer)
	if err != nil {
		m.rows[0].Note = "beside lmstfy, not measured: no lmstfy at " + m.lmstfyServer + " (-lmstfy); bench/README.md says what it came to"
		return nil
	}
	if server, err = filepath.Abs(server); err != nil {
		return err
	}
	ours, c, err := m.lmstfyForms(ctx)
	if err != nil {
		return fmt.Errorf("spillway: %w", err)
	}
	other, err := m.lmstfySide(ctx, server)
	if err != nil {
		return fmt.Errorf("lmstfy: %w", err)
	}
	m.rows[0].add(ours.put, other.put, &c)
	m.rows[1].add(ours.get, other.get, nil)
	m.rows[2].add(ours.putBulk, other.putBulk, nil)
	m.rows[3].add(ours.getMany, other.getMany, nil)
	return nil
}

// lmstfyForms measures Spillway. The costs are those of all four rows, a job that was put and got.
func (m *measurement) lmstfyForms(ctx context.Context) (rates lmstfyRates, c costs, err error) {
	r, err := m.servedJobs(ctx, "--lmstfy")
	if err != nil {
		return rates, c, err
	}
	defer r.close()
	warm, _, err := m.lmstfyTurns(ctx, r.data, warmUp/2)
	if err != nil {
		return rates, c, err
	}
	before, err := r.usage(ctx)
	if err != nil {
		return rates, c, err
	}
	jobs, rates, err := m.lmstfyTurns(ctx, r.data, m.segment/2)
	if err != nil {
		return rates, c, err
	}
	now, err := r.usage(ctx)
	if err != nil {
		return rates, c, err
	}
	c = now.since(before, jobs)
	c.Residual, err = m.law(ctx, r, leased(warm+jobs))
	return rates, c, err
}

// lmstfySide measures lmstfy.
func (m *measurement) lmstfySide(ctx context.Context, server string) (rates lmstfyRates, err error) {
	r, err := newSetup(ctx, m.settings, true)
	if err != nil {
		return rates, err
	}
	defer r.close()
	if err := r.neverRewrite(ctx); err != nil {
		return rates, err
	}
	ports, err := proc.FreeAddrs(2)
	if err != nil {
		return rates, err
	}
	addr := r.redisURL[len("redis://"):]
	file := filepath.Join(r.dir, "lmstfy.toml")
	conf := fmt.Sprintf("Host = \"127.0.0.1\"\nPort = %s\nAdminPort = %s\nLogLevel = \"warn\"\nEnableAccessLog = false\n[AdminRedis]\nAddr = "+
		"%q\n[Pool]\n[Pool.default]\nAddr = %q\n",
		proc.Port(ports[0]), proc.Port(ports[1]), addr, addr)
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return rates, err
	}
	url := "http://" + ports[0]
	p, err := rig.Start(ctx, r.dir, "lmstfy", rig.Answers(url+"/api/bench/none/size"), server, "-sv", "-c", file)
	if err != nil {
		return rates, err
	}
	defer p.Stop()
	if _, _, err := m.lmstfyTurns(ctx, url, warmUp/2); err != nil {
		return rates, err
	}
	_, rates, err = m.lmstfyTurns(ctx, url, m.segment/2)
	return rates, err
}

// lmstfyTurns puts jobs for d and gets them all, one at a time and then many.
func (m *measurement) lmstfyTurns(ctx context.Context, url string, d time.Duration) (jobs int64, rates lmstfyRates, err error) {
	for _, turn := range []struct {
		size     int
		put, get *float64
	}{{1, &rates.put, &rates.get}, {lmstfyBulk, &rates.putBulk, &rates.getMany}} {
		put := jobTurn{url: url, connections: connectionsFor(turn.size), ask: m.lmstfyPut(turn.size), duration: d}
		n, in, err := put.run(ctx)
		if err != nil {
			return jobs, rates, err
		}
		get := jobTurn{url: url, connections: put.connections, ask: m.lmstfyGet(turn.size), jobs: n}
		_, out, err := get.run(ctx)
		if err != nil {
			return jobs, rates, err
		}
		jobs += n
		*turn.put, *turn.get = float64(n)/in.Seconds(), float64(n)/out.Seconds()
	}
	return jobs, rates, nil
}

func (m *measurement) lmstfyPut(size int) func(*jobConn, int64) (int, error) {
	tail := "?tries=3"
	if size > 1 {
		tail = "/bulk?tries=3"
	}
	targets, padding := m.targets("/api/"+jobNamespace+"/", tail), bench.Padding(m.payload)
	return func(c *jobConn, i int64) (int, error) {
		c.body = c.body[:0]
		for n := range int64(size) {
			if size > 1 {
				c.body = append(c.body, "[,"[min(n, 1)])
			}
			c.body = bench.AppendPayload(c.body, i*int64(size)+n, padding)
		}
		if size > 1 {
			c.body = append(c.body, ']')
		}
		_, err := c.must(http.StatusCreated, http.MethodPut, targets[i%int64(len(targets))], "application/json")
		return size, err
	}
}

// lmstfyGet gets jobs without waiting for any; 404 says that there is none.
func (m *measurement) lmstfyGet(size int) func(*jobConn, int64) (int, error) {
	targets := m.targets("/api/"+jobNamespace+"/", fmt.Sprintf("?ttr=600&count=%d", size))
	return func(c *jobConn, i int64) (int, error) {
		c.body = c.body[:0]
		target := targets[i%int64(len(targets))]
		status, answer, err := c.send(http.MethodGet, target, "", requestTimeout)
		if err == nil && status != http.StatusOK && status != http.StatusNotFound {
			err = fmt.Errorf("GET %s: status %d: %.200s", target, status, answer)
		}
		return len(idsIn(answer, `"job_id":"`)), err
	}
}
