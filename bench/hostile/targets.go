package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spillway-io/spillway/bench"
	"github.com/spillway-io/spillway/partition"
)

// A invalidURL is a sink that a configuration may not have.
type invalidURL struct {
	name, url string
	says      string // part of the reason
}

const (
	linkLocal = "link-local"
	noScheme  = "unknown sink scheme"
)

var invalidURLs = []invalidURL{
	{"a file below a file", "file:///etc/passwd/x", "not a directory"},
	{"a folder", "file:///etc", "is a directory"},
	{"the address of cloud credentials", "http://169.254.169.254/latest/meta-data", linkLocal},
	{"the same with a port", "http://169.254.169.254:80/", linkLocal},
	{"the same in IPv6", "http://[::ffff:169.254.169.254]/", linkLocal},
	{"the same in IPv6, hexadecimal", "http://[::ffff:a9fe:a9fe]/", linkLocal},
	{"the same behind NAT64", "http://[64:ff9b::a9fe:a9fe]/", linkLocal},
	{"the same behind a password", "http://u:p@169.254.169.254/", linkLocal},
	{"link-local IPv6", "http://[fe80::1]/", linkLocal},
	{"link-local IPv6 with a zone", "http://[fe80::1%25lo]/", linkLocal},
	{"the address as one number", "http://2852039166/", "no address"},
	{"the address in hexadecimal", "http://0xa9fea9fe/", "no address"},
	{"the address in octal", "http://0251.0376.0251.0376/", "no address"},
	{"the address in three parts", "http://169.254.43518/", "no address"},
	{"the address with a dot behind", "http://169.254.169.254./", "no address"},
	{"loopback as one number", "http://2130706433:6379/", "no address"},
	{"loopback in two parts", "http://127.1/", "no address"},
	{"full-width digits", "http://１６９.254.169.254/", "no address"},
	{"no host", "http:///latest", "names no host"},
	{"no authority", "http:169.254.169.254", "names no host"},
	{"a fragment", "http://127.0.0.1/#@169.254.169.254", "fragment"},
	{"a space in the host", "http://127.0.0.1 169.254.169.254/", "malformed"},
	{"a line end in the host", "http://127.0.0.1\r\nX-A: b/", "malformed"},
	{"a port of letters", "http://127.0.0.1:http/", "malformed"},
	{"a port past 65535", "http://127.0.0.1:99999/", "port"},
	{"a backslash", `http://127.0.0.1\@169.254.169.254/`, "malformed"},
	{"gopher", "gopher://127.0.0.1:6379/_FLUSHALL", noScheme},
	{"ftp", "ftp://127.0.0.1/x", noScheme},
	{"a Unix socket", "unix:///var/run/docker.sock", noScheme},
	{"HTTP on a Unix socket", "http+unix:/var/run/docker.sock", noScheme},
	{"a program", "exec:///bin/sh?-c=reboot", "sink_command"},
	{"a shell", "sh -c reboot", "sink URL"},
	{"data", "data:text/plain,x", noScheme},
	{"script", "javascript:alert(1)", noScheme},
	{"a dictionary server", "dict://127.0.0.1:6379/FLUSHALL", noScheme},
	{"nothing", " ", "sink URL"},
	{"a file without a path", "file:", "path"},
	{"a file of another host", "file://evil.example/share", "host"},
	{"a relative file", "file:../../etc/cron.d/x", "path"},
	{"a file that is the root", "file:///", "path"},
	{"a file that everybody may run", "file:///tmp/x?mode=0777", "mode"},
	{"a file of negative size", "file:///tmp/x?max_size=-1", "max_size"},
	{"a file with a NUL", "file:///tmp/x%00y", "path"},
	{"stdout with a path", "stdout:///dev/sda", "stdout"},
	{"null with an option", "null:?x=1", "option"},
}

// check asks `spillway config check`, which opens nothing.
func (u invalidURL) check(ctx context.Context, r *setup) string {
	return r.configRejects(ctx, u.says, "--sink", u.url)
}

// A target is a sink that a configuration may have, and that misbehaves. One
// entry is sent to it.
type target struct {
	name string
	url  string // HAZARD, REDIS and FORBIDDEN are addresses
	ends ending
}

// ending is what becomes of the entry.
type ending int

const (
	delivered ending = iota // it was taken; what else the answer says is not heeded
	dead                    // rejected for good
	held                    // it failed, and is tried again until it is too old
)

func (e ending) String() string { return [...]string{"delivered", "dead", "held"}[e] }

var targets = []target{
	{"a redirect, 301", "http://HAZARD/answer/301", dead},
	{"a redirect, 302", "http://HAZARD/answer/302", dead},
	{"a redirect without a scheme, 303", "http://HAZARD/answer/303", dead},
	{"a redirect that keeps the body, 307", "http://HAZARD/answer/307", dead},
	{"a redirect to gopher, 308", "http://HAZARD/answer/308", dead},
	{"a refresh and a preload", "http://HAZARD/answer/refresh", delivered},
	{"another protocol", "http://HAZARD/answer/101", dead},
	{"a demand for a password", "http://HAZARD/answer/401", held},
	{"an endless answer", "http://HAZARD/answer/endless", delivered},
	{"a compressed answer", "http://HAZARD/answer/bomb", held},
	{"results out of range", "http://HAZARD/answer/results", held},
	{"a drop behind 100 KB", "http://HAZARD/answer/chatty", dead},
	{"a drop with terminal sequences", "http://HAZARD/answer/dropped", dead},
	{"an error with terminal sequences", "http://HAZARD/answer/422", dead},
	{"a head with terminal sequences", "http://HAZARD/answer/evil", held},
	{"an error", "http://HAZARD/answer/500", held},
	{"Retry-After past 64 bits", "http://HAZARD/answer/throttled", held},
	{"a header of 1 MiB", "http://HAZARD/answer/headers", held},
	{"100,000 headers", "http://HAZARD/answer/lines", held},
	{"1,000 interim answers", "http://HAZARD/answer/interim", held},
	{"a head byte by byte", "http://HAZARD/answer/slowhead", held},
	{"a body byte by byte", "http://HAZARD/answer/slowbody", held},
	{"a body cut short", "http://HAZARD/answer/short", held},
	{"a chunk of 2^68", "http://HAZARD/answer/chunks", held},
	{"an SSH server", "http://HAZARD/answer/banner", held},
	{"nobody says a word", "http://HAZARD/answer/hangup", held},
	{"TLS to a plain port", "https://HAZARD/answer/200", held},
	{"our own Redis", "http://REDIS/", held},
	{"a closed port", "http://127.0.0.1:1/", held},
	{"a user that looks like a host", "http://FORBIDDEN@HAZARD/answer/200", delivered},
	{"a link-local address in full-width digits", "http://１６９.２５４.１６９.２５４/", held},
}

func (t target) namespace() string {
	return strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, t.name)
}

func (t target) at(r *setup) string {
	return strings.NewReplacer("HAZARD", r.hazard.addr, "REDIS", r.hazard.redis,
		"FORBIDDEN@", strings.Replace(r.hazard.forbidden, ":", "%3A", 1)+"@").Replace(t.url)
}

// check waits until the entry has ended, or has failed often enough to show
// that it will not.
func (t target) check(ctx context.Context, r *setup) string {
	label := `namespace="` + t.namespace() + `"`
	var l partition.Ledger
	var failures float64
	for give := time.Now().Add(15 * time.Second); time.Now().Before(give); time.Sleep(20 * time.Millisecond) {
		a, err := bench.ReadAccount(ctx, "http://"+r.sinks.admin, t.namespace(), false)
		if err != nil {
			return err.Error()
		}
		if failures, err = r.sinks.metric(ctx, "spillway_drain_sink_failures_total", label); err != nil {
			return err.Error()
		}
		if l = a.Ledger; l.Accepted != 1 {
			return fmt.Sprintf("%d entries accepted", l.Accepted)
		}
		switch t.ends {
		case delivered:
			if l.Delivered == 1 {
				return ""
			}
		case dead:
			if l.Dead == 1 {
				return ""
			}
		case held:
			if failures > 0 && l.Buffered == 1 {
				return ""
			}
		}
	}
	return fmt.Sprintf("after %v failures the ledger is %+v, want it %s", failures, l, t.ends)
}

// outside is where a file sink may not have written.
func outside(r *setup) []string {
	return []string{filepath.Join(r.dir, "plain.yaml", "x")}
}
