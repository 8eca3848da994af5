package proc

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// Machine is where figures are from.
type Machine struct {
	CPU      string  `json:"cpu"`
	CPUs     int     `json:"cpus"`
	Kernel   string  `json:"kernel"`
	Load     float64 `json:"load"` // average over the minute before the run
	Go       string  `json:"go"`
	Redis    string  `json:"redis"`
	Spillway string  `json:"spillway"`
	Date     string  `json:"date"`
}

// ThisMachine describes the machine and the two programs. What it cannot read
// stays empty: that changes no figure.
func ThisMachine(ctx context.Context, redisServer, spillway string) Machine {
	m := Machine{
		CPUs: runtime.NumCPU(),
		Go:   runtime.Version(),
		Date: time.Now().UTC().Format(time.DateOnly),
	}
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	m.Kernel = strings.TrimSpace(string(kernel))
	load, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(load), &m.Load)
	version, _ := exec.CommandContext(ctx, redisServer, "--version").Output()
	_, rest, _ := strings.Cut(string(version), "v=")
	m.Redis, _, _ = strings.Cut(rest, " ")
	version, _ = exec.CommandContext(ctx, spillway, "version", "-o", "json").Output()
	var build struct{ Version, Revision string }
	_ = json.Unmarshal(version, &build)
	m.Spillway = strings.TrimSpace(build.Version + " " + build.Revision)
	return m
}
