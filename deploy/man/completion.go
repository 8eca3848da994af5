package man

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Shells are those that [Completion] knows.
var Shells = []string{"bash", "zsh", "fish"}

// Completion is the script that completes commands, flags and the values of flags
// that have a fixed list. It runs nothing. The error names an unknown shell.
func Completion(app *kong.Application, shell string) (string, error) {
	all := commands(app)
	switch shell {
	case "bash":
		return bash(app.Name, all), nil
	case "zsh":
		return zsh(app.Name, all), nil
	case "fish":
		return fish(app.Name, all), nil
	}
	return "", fmt.Errorf("unknown shell %q: want one of %s", shell, strings.Join(Shells, ", "))
}

// words are what may follow a command beside flags: subcommands, or the values of
// its first argument.
func (c *command) words(all []command) []string {
	var words []string
	for _, child := range children(c.node) {
		words = append(words, child.Name)
	}
	if len(c.node.Positional) > 0 {
		words = append(words, values(c.node.Positional[0])...)
	}
	if c.path == "help" {
		words = append(words, all[0].words(all)...)
	}
	return words
}

func values(v *kong.Value) []string {
	if v.Enum == "" {
		return nil
	}
	return slices.Sorted(slices.Values(v.EnumSlice()))
}

// patterns are the alternatives of a case in a shell, each quoted.
func patterns(list []string) string {
	quoted := make([]string, len(list))
	for i, p := range list {
		quoted[i] = `"` + p + `"`
	}
	return strings.Join(quoted, "|")
}

// typed are the commands as the scripts collect them: each word after a space.
func typed(all []command) []string {
	var paths []string
	for _, c := range all[1:] {
		paths = append(paths, " "+c.path)
	}
	return paths
}

// prefix is the form of a path in a script.
func (c *command) prefix() string {
	if c.path == "" {
		return ""
	}
	return " " + c.path
}

// valued groups "command flag" by the values that the flag takes; those without a
// fixed list are under "".
func valued(all []command) (lists []string, by map[string][]string) {
	by = map[string][]string{}
	for _, c := range all {
		for _, f := range c.flags {
			if f.IsBool() {
				continue
			}
			list := strings.Join(values(f.Value), " ")
			if !slices.Contains(lists, list) {
				lists = append(lists, list)
			}
			for _, s := range spellings(f) {
				by[list] = append(by[list], c.prefix()+" "+s)
			}
		}
	}
	return lists, by
}

func bash(name string, all []command) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# Completion of %[1]s for bash. Load it with: source <(%[1]s completion bash)
_%[1]s() {
    local cur=${COMP_WORDS[COMP_CWORD]} flag=${COMP_WORDS[COMP_CWORD-1]} at="" words="" flags="" i
    # bash splits --flag=value into three words.
    if [[ $cur == "=" ]]; then
        cur=""
    elif [[ $flag == "=" ]]; then
        flag=${COMP_WORDS[COMP_CWORD-2]}
    fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        case "$at ${COMP_WORDS[i]}" in
            %[2]s) at="$at ${COMP_WORDS[i]}" ;;
        esac
    done
    COMPREPLY=()
    case "$at $flag" in
`, name, patterns(typed(all)))
	lists, by := valued(all)
	for _, list := range lists {
		reply := "return ;;"
		if list != "" {
			reply = fmt.Sprintf(`COMPREPLY=($(compgen -W "%s" -- "$cur")); return ;;`, list)
		}
		fmt.Fprintf(&b, "        %s) %s\n", patterns(by[list]), reply)
	}
	b.WriteString("    esac\n    case \"$at\" in\n")
	for _, c := range all {
		var flags []string
		for _, f := range c.flags {
			flags = append(flags, spellings(f)...)
		}
		fmt.Fprintf(&b, "        \"%s\") words=\"%s\" flags=\"%s\" ;;\n", c.prefix(),
			strings.Join(c.words(all), " "), strings.Join(flags, " "))
	}
	fmt.Fprintf(&b, `    esac
    if [[ $cur == -* ]]; then
        words=$flags
    fi
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}
complete -o default -F _%[1]s %[1]s
`, name)
	return b.String()
}

// single quotes a text for zsh and bash.
func single(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func zsh(name string, all []command) string {
	var b strings.Builder
	fmt.Fprintf(&b, `#compdef %[1]s
# Completion of %[1]s for zsh. Load it with: source <(%[1]s completion zsh)
_%[1]s() {
    local flag=${words[CURRENT-1]} at="" i
    local -a list
    if [[ $PREFIX == --*=* ]]; then
        flag=${PREFIX%%%%=*}
        compset -P '*='
    fi
    for ((i = 2; i < CURRENT; i++)); do
        case "$at ${words[i]}" in
            %[2]s) at="$at ${words[i]}" ;;
        esac
    done
    case "$at $flag" in
`, name, patterns(typed(all)))
	lists, by := valued(all)
	for _, list := range lists {
		reply := "_files; return ;;"
		if list != "" {
			reply = fmt.Sprintf("compadd -- %s; return ;;", list)
		}
		fmt.Fprintf(&b, "        %s) %s\n", patterns(by[list]), reply)
	}
	b.WriteString("    esac\n    if [[ $PREFIX == -* ]]; then\n        case \"$at\" in\n")
	// A colon ends the word that is described.
	entry := func(word, help string) string {
		return single(strings.ReplaceAll(word, ":", `\:`) + ":" + summary(help))
	}
	for _, c := range all {
		var entries []string
		for _, f := range c.flags {
			for _, s := range spellings(f) {
				entries = append(entries, entry(s, f.Help))
			}
		}
		fmt.Fprintf(&b, "            \"%s\") list=(%s) ;;\n", c.prefix(), strings.Join(entries, " "))
	}
	b.WriteString("        esac\n        _describe -o flag list\n        return\n    fi\n    case \"$at\" in\n")
	for _, c := range all {
		var entries []string
		for _, child := range children(c.node) {
			entries = append(entries, entry(child.Name, child.Help))
		}
		if len(entries) == 0 {
			for _, word := range c.words(all) {
				entries = append(entries, single(word))
			}
		}
		if len(entries) > 0 {
			fmt.Fprintf(&b, "        \"%s\") list=(%s) ;;\n", c.prefix(), strings.Join(entries, " "))
		}
	}
	fmt.Fprintf(&b, `    esac
    if (( $#list )); then
        _describe command list
    else
        _files
    fi
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _%[1]s "$@"
else
    compdef _%[1]s %[1]s
fi
`, name)
	return b.String()
}

func fish(name string, all []command) string {
	quote := func(s string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
	}
	var paths []string
	for _, c := range all[1:] {
		paths = append(paths, quote(c.path))
	}
	var b strings.Builder
	fmt.Fprintf(&b, `# Completion of %[1]s for fish. Load it with: %[1]s completion fish | source
function __%[1]s_at
    set -l at
    for word in (commandline -opc)[2..-1]
        if contains -- (string join ' ' $at $word) %[2]s
            set at $at $word
        end
    end
    test "$at" = "$argv"
end
`, name, strings.Join(paths, " "))
	for _, c := range all {
		at := fmt.Sprintf("complete -c %s -n %s", name, quote(fmt.Sprintf(`__%s_at "%s"`, name, c.path)))
		for _, child := range children(c.node) {
			fmt.Fprintf(&b, "%s -f -a %s -d %s\n", at, child.Name, quote(summary(child.Help)))
		}
		if len(children(c.node)) == 0 {
			if words := c.words(all); len(words) > 0 {
				fmt.Fprintf(&b, "%s -f -a %s\n", at, quote(strings.Join(words, " ")))
			}
		}
		for _, f := range c.flags {
			short, value := "", " -r"
			if f.Short != 0 {
				short = " -s " + string(f.Short)
			}
			if list := values(f.Value); len(list) > 0 {
				value = " -x -a " + quote(strings.Join(list, " "))
			} else if f.IsBool() {
				value = ""
			}
			fmt.Fprintf(&b, "%s -l %s%s%s -d %s\n", at, f.Name, short, value, quote(summary(f.Help)))
		}
	}
	return b.String()
}
