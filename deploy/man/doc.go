// Package man writes what is generated from the model of the command line: the
// completion scripts of shells and the manual page.
package man

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// command is a command as it is typed after the name of the program.
type command struct {
	path  string // "dead ls"; empty for the program itself
	node  *kong.Node
	flags []*kong.Flag // its own and those of its parents
}

// commands are those that are not hidden, each before its subcommands.
func commands(app *kong.Application) []command {
	var list []command
	var walk func(path []string, n *kong.Node, inherited []*kong.Flag)
	walk = func(path []string, n *kong.Node, inherited []*kong.Flag) {
		c := command{path: strings.Join(path, " "), node: n, flags: slices.Clone(inherited)}
		for _, f := range n.Flags {
			if !f.Hidden {
				c.flags = append(c.flags, f)
			}
		}
		list = append(list, c)
		for _, child := range children(n) {
			walk(append(slices.Clone(path), child.Name), child, c.flags)
		}
	}
	walk(nil, app.Node, nil)
	return list
}

func children(n *kong.Node) []*kong.Node {
	return slices.DeleteFunc(slices.Clone(n.Children), func(child *kong.Node) bool { return child.Hidden })
}

// spellings are the ways to type a flag.
func spellings(f *kong.Flag) []string {
	all := []string{"--" + f.Name}
	if f.Short != 0 {
		all = append(all, "-"+string(f.Short))
	}
	return all
}

// summary is the first sentence of a help, without what ends it.
func summary(help string) string {
	first, _, _ := strings.Cut(help, ". ")
	first, _, _ = strings.Cut(first, ": ")
	return strings.TrimSuffix(first, ".")
}
