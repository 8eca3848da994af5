package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/spillway-io/spillway/lua/proc"
)

const (
	startTimeout = 20 * time.Second
	tick         = 10 * time.Millisecond // of /proc's processor times, wherever Go runs
)

// usage is the processor time used until a moment: by this process, by a side's
// servers, and by all there is on the machine.
type usage struct {
	at, own, servers, machine time.Duration
}

func (u usage) since(b usage) usage {
	return usage{u.at - b.at, u.own - b.own, u.servers - b.servers, u.machine - b.machine}
}

var began = time.Now() // what usage.at counts from; only differences matter

func readUsage(servers []*proc.Process) (usage, error) {
	u := usage{at: time.Since(began)}
	var self syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &self); err != nil {
		return u, fmt.Errorf("read own usage: %w", err)
	}
	u.own = time.Duration(self.Utime.Nano() + self.Stime.Nano())
	for _, p := range servers {
		used, err := p.CPU()
		if err != nil {
			return u, fmt.Errorf("read usage: %w", err)
		}
		u.servers += used
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return u, fmt.Errorf("read usage: %w", err)
	}
	u.machine, err = machineCPU(stat)
	return u, err
}

// machineCPU reads the first line of /proc/stat: all but idle and iowait, the
// fourth and fifth number.
func machineCPU(stat []byte) (time.Duration, error) {
	line, _, _ := bytes.Cut(stat, []byte("\n"))
	fields := bytes.Fields(line)
	if len(fields) < 9 || string(fields[0]) != "cpu" {
		return 0, fmt.Errorf("read usage: %q is not the machine's", line)
	}
	return ticks(fields[1], fields[2], fields[3], fields[6], fields[7], fields[8])
}

func ticks(fields ...[]byte) (time.Duration, error) {
	var sum int64
	for _, field := range fields {
		n, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read usage: %w", err)
		}
		sum += n
	}
	return time.Duration(sum) * tick, nil
}
