package man

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Section is a part of the page that the model does not have.
type Section struct {
	Title string
	Items [][2]string // a term and what it means; a text alone has no term
}

// Page is the manual page in the language of man(7): the commands with their
// arguments and flags, then the given sections. Flags of a group in shared, such as
// "Connection:", are described once, in a section of their own.
func Page(app *kong.Application, shared string, more ...Section) string {
	var b strings.Builder
	title := strings.ToUpper(app.Name)
	about, rest, _ := strings.Cut(app.Help, "\n\n")
	fmt.Fprintf(&b, ".TH %s 1 \"\" Spillway \"User commands\"\n.SH NAME\n%s \\- %s\n", title, app.Name,
		roff(lower(strings.TrimSuffix(join(about), "."))))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n.I command\n[flags]\n.SH DESCRIPTION\n%s\n.SH COMMANDS\n",
		app.Name, roff(join(rest)))
	all := commands(app)
	var sharedFlags []*kong.Flag
	var shown []command
	for _, c := range all[1:] {
		if !c.node.Leaf() {
			continue
		}
		fmt.Fprintf(&b, ".SS %s %s\n%s\n", app.Name, roff(c.synopsis()), roff(c.node.Help))
		for _, p := range c.node.Positional {
			item(&b, "<"+p.Name+">", p.Help)
		}
		if at := slices.IndexFunc(shown, c.sameFlags); at >= 0 {
			fmt.Fprintf(&b, ".PP\nThe flags are those of %s %s.\n", app.Name, roff(shown[at].path))
			continue
		}
		shown = append(shown, c)
		sharing := false
		for _, f := range c.flags {
			if f.Name == "help" {
				continue
			}
			if f.Group != nil && f.Group.Key == shared {
				sharing = true
				if !slices.ContainsFunc(sharedFlags, func(g *kong.Flag) bool { return g.Name == f.Name }) {
					sharedFlags = append(sharedFlags, f)
				}
				continue
			}
			item(&b, flagTerm(f), f.Help)
		}
		if sharing {
			fmt.Fprintf(&b, ".PP\nAnd the flags under %s.\n", sharedTitle(shared))
		}
	}
	fmt.Fprintf(&b, ".SH %s\n", sharedTitle(shared))
	for _, f := range sharedFlags {
		item(&b, flagTerm(f), f.Help)
	}
	for _, s := range more {
		fmt.Fprintf(&b, ".SH %s\n", roff(s.Title))
		for _, i := range s.Items {
			if i[0] == "" {
				fmt.Fprintf(&b, ".PP\n%s\n", roff(i[1]))
				continue
			}
			item(&b, i[0], i[1])
		}
	}
	return b.String()
}

func sharedTitle(group string) string { return strings.ToUpper(strings.TrimSuffix(group, ":")) }

func item(b *strings.Builder, term, text string) {
	fmt.Fprintf(b, ".TP\n.B %s\n%s\n", roff(term), roff(text))
}

func (c *command) synopsis() string {
	text := c.path
	for _, p := range c.node.Positional {
		text += " " + p.Summary()
	}
	return text + " [flags]"
}

// sameFlags: config check and config print take every flag of serve.
func (c *command) sameFlags(other command) bool {
	return len(c.flags) > 10 && slices.EqualFunc(c.flags, other.flags,
		func(a, b *kong.Flag) bool { return a.Name == b.Name })
}

func flagTerm(f *kong.Flag) string {
	term := "--" + f.Name
	if f.Short != 0 {
		term = "-" + string(f.Short) + ", " + term
	}
	if !f.IsBool() {
		term += "=" + f.FormatPlaceHolder()
	}
	return term
}

// join makes one line of a text.
func join(text string) string { return strings.Join(strings.Fields(text), " ") }

func lower(text string) string { return strings.ToLower(text[:1]) + text[1:] }

// roff escapes a text for a line of its own.
func roff(text string) string {
	var b strings.Builder
	for i, r := range join(text) {
		switch {
		case r == '\\':
			b.WriteString(`\e`)
		case r == '-':
			b.WriteString(`\-`)
		case i == 0 && (r == '.' || r == '\''):
			b.WriteString(`\&` + string(r))
		case r > 0x7e:
			fmt.Fprintf(&b, `\[u%04X]`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
