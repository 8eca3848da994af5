package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spillway-io/spillway/lua/proc"
)

// sheet is how every scenario is printed: where it ran, a table in markdown,
// notes, and the promises that were checked.
type sheet struct {
	name    string
	machine proc.Machine
	head    []string
	rows    [][]string
	notes   []string
	checks  []check
}

func (s *sheet) row(cells ...string) { s.rows = append(s.rows, cells) }

// print marks what is missed or broken red where colour is set, on a terminal.
func (s *sheet) print(out io.Writer, colour bool) error {
	m := s.machine
	_, _ = fmt.Fprintf(out, "%s: %s, %d CPUs, Linux %s, load %.2f; %s, redis %s, spillway %s; %s\n\n",
		s.name, m.CPU, m.CPUs, m.Kernel, m.Load, m.Go, m.Redis, m.Spillway, m.Date)
	w := tabwriter.NewWriter(out, 0, 0, 1, ' ', 0)
	line := func(cells []string) { _, _ = fmt.Fprintf(w, "| %s\t|\n", strings.Join(cells, "\t| ")) }
	line(s.head)
	line(strings.Split(strings.TrimSuffix(strings.Repeat("---,", len(s.head)), ","), ","))
	for _, cells := range s.rows {
		line(cells)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out)
	for _, note := range s.notes {
		_, _ = fmt.Fprintln(out, note)
	}
	for _, c := range s.checks {
		result := "held"
		if !c.Held {
			result = red("BROKEN", colour)
		}
		_, _ = fmt.Fprintf(out, "%s: %s: %s\n", result, c.Promise, c.Got)
	}
	_, err := fmt.Fprintln(out)
	return err
}

func red(text string, colour bool) string {
	if colour {
		return "\x1b[31m" + text + "\x1b[0m"
	}
	return text
}
