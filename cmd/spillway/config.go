package main

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/spillway-io/spillway/drain"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/partition"
)

// Config is everything `spillway serve` can be told. Every field with a name
// is a flag, an environment variable and a key of the file; see settings.go.
type Config struct {
	File string `name:"config" placeholder:"FILE" help:"YAML file to read; unknown keys are errors."`

	Listen         string `name:"listen" group:"Ports:" default:"127.0.0.1:8080" help:"Address of the data port."`
	AdminListen    string `name:"admin-listen" group:"Ports:" default:"127.0.0.1:8081" help:"Address of the admin port."`
	AdminToken     string `name:"admin-token" group:"Ports:" placeholder:"HASH" help:"Hash of the token that the admin port asks for: sha256:…, as spillway token prints it."`
	InsecureNoAuth bool   `name:"insecure-no-auth" group:"Ports:" help:"Allow listening beyond loopback although not everybody has to present a token."`

	TLSCert          string `name:"tls-cert" group:"TLS:" placeholder:"FILE" help:"Certificate chain of the data port, PEM; without one it speaks plain HTTP."`
	TLSKey           string `name:"tls-key" group:"TLS:" placeholder:"FILE" help:"Its key, PEM."`
	TLSClientCA      string `name:"tls-client-ca" group:"TLS:" placeholder:"FILE" help:"CA that clients of the data port must have a certificate of, PEM."`
	AdminTLSCert     string `name:"admin-tls-cert" group:"TLS:" placeholder:"FILE" help:"The same for the admin port."`
	AdminTLSKey      string `name:"admin-tls-key" group:"TLS:" placeholder:"FILE" help:"Its key."`
	AdminTLSClientCA string `name:"admin-tls-client-ca" group:"TLS:" placeholder:"FILE" help:"CA of its clients."`

	Redis      string `name:"redis" group:"Store:" default:"embedded:" help:"The store: embedded: redis:// rediss:// redis-sentinel://h1,h2/master redis-cluster://h1,h2."`
	Prefix     string `name:"prefix" group:"Store:" default:"sw" help:"Beginning of every key in Redis."`
	Durability string `name:"durability" group:"Store:" default:"async" help:"What an acknowledged entry has survived: async (the primary's answer), or replica=N (N replicas have it, too)."`
	Role       string `name:"role" group:"Process:" default:"all" help:"What this process does: ingest, drain or all."`

	Default Namespace `embed:"" group:"Default namespace:"`
	// Namespaces come from the file only. Without any there is one, "default",
	// treated as the flags say; the file's namespaces inherit from it.
	Namespaces map[string]Namespace `kong:"-"`

	Workers     int           `name:"workers" group:"Drain:" default:"${workers}" help:"Leases of one namespace worked on at once."`
	SinkTimeout time.Duration `name:"sink-timeout" group:"Drain:" default:"${sink_timeout}" help:"How long one write to a sink may take."`
	Lease       time.Duration `name:"lease" group:"Drain:" default:"${lease}" help:"How long a worker keeps its right to a partition."`

	Lanes            int            `name:"lanes" group:"Ingest:" default:"${lanes}" help:"Group-commit lanes: flushes on the wire at once."`
	MaxConns         int            `name:"max-conns" group:"Ingest:" default:"${max_conns}" help:"Open connections before further ones are refused."`
	MaxInflightBytes partition.Size `name:"max-inflight-bytes" group:"Ingest:" default:"${max_inflight_bytes}" help:"Bytes of requests held in memory before new ones are refused."`
	MaxBody          partition.Size `name:"max-body" group:"Ingest:" default:"${max_body}" help:"Biggest request body on the wire."`
	MaxDecompressed  partition.Size `name:"max-decompressed" group:"Ingest:" default:"${max_decompressed}" help:"Biggest request body once decompressed."`
	MaxEntries       int            `name:"max-entries" group:"Ingest:" default:"${max_entries}" help:"Most entries in a request."`
	MaxEntry         partition.Size `name:"max-entry" group:"Ingest:" default:"${max_entry}" help:"Biggest entry."`
	ReadTimeout      time.Duration  `name:"read-timeout" group:"Ingest:" default:"${read_timeout}" help:"How long a client may take to send a whole request."`

	LogLevel        string        `name:"log-level" group:"Process:" default:"info" help:"debug, info, warn or error."`
	LogFormat       string        `name:"log-format" group:"Process:" default:"auto" help:"json, console, or auto: console on a terminal."`
	ShutdownTimeout time.Duration `name:"shutdown-timeout" group:"Process:" default:"15s" help:"How long an orderly end may take."`

	origins map[string]string // where each key that is not a default was found: a flag, a variable, or file:line
}

// Namespace is how the partitions of one namespace are treated and where their
// batches go.
type Namespace struct {
	Sink          string         `name:"sink" default:"stdout:" help:"Where batches go: ${sinks}."`
	Capacity      int            `name:"capacity" default:"${capacity}" help:"Newest entries kept per partition."`
	MaxAge        time.Duration  `name:"max-age" default:"${max_age}" help:"Older entries never reach a sink."`
	Batch         int            `name:"batch" default:"${batch}" help:"Entries handed over at once, at most."`
	Linger        time.Duration  `name:"linger" default:"${linger}" help:"How long a part-filled batch waits for more."`
	Delivery      string         `name:"delivery" default:"${delivery}" help:"at-least-once or at-most-once."`
	Shards        int            `name:"shards" default:"${shards}" help:"Key groups of a namespace, fixed when it is first used."`
	MaxPartitions int            `name:"max-partitions" default:"${max_partitions}" help:"Partitions of a namespace with entries, at most."`
	MaxDead       int            `name:"max-dead" default:"${max_dead}" help:"Dead letters kept per shard, the oldest dropped first."`
	MaxDeadBytes  partition.Size `name:"max-dead-bytes" default:"${max_dead_bytes}" help:"Size of the dead letters kept per shard, the oldest dropped first."`

	// Tokens come from the file only and are not inherited. Without any the
	// namespace is open.
	Tokens []ingest.Token `kong:"-"`
}

// Policy is the namespace as the store knows it.
func (n Namespace) Policy() partition.Policy {
	p := partition.DefaultPolicy()
	copyFields(&p, n)
	return p
}

// load completes a Config that holds the flags and the defaults: environment,
// then file, then the checks. Every error is the operator's to mend.
func (c *Config) load(p process) error {
	settings := settingsOf(c)
	var err error
	if c.origins, err = fromEnv(settings, p); err != nil {
		return err
	}
	c.Namespaces = nil
	if c.File != "" {
		err = c.readFile(settings)
	}
	if c.Namespaces == nil {
		c.Namespaces = map[string]Namespace{"default": c.Default}
	}
	if err == nil {
		err = c.validate()
	}
	if err != nil {
		return usageError{err}
	}
	return nil
}

// names returns the namespaces in alphabetical order.
func (c *Config) names() []string { return slices.Sorted(maps.Keys(c.Namespaces)) }

// validate finds every setting that cannot work and says what to write
// instead, but for URLs: NewApp has those judged by what they are for.
func (c *Config) validate() error {
	var errs []error
	wrong := func(key string, value any, want string) {
		errs = append(errs, c.fieldError(key, &partition.FieldError{Field: key, Value: value, Want: want}))
	}
	oneOf := func(key, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			wrong(key, value, "one of "+strings.Join(allowed, ", "))
		}
	}
	ports := c.validatePorts(wrong) // which adds to errs itself
	errs = append(errs, ports...)
	oneOf("role", c.Role, "all", "ingest", "drain")
	if strings.HasPrefix(c.Redis, "embedded:") && c.Role != "all" {
		wrong("role", c.Role, "all: nobody else can reach an embedded store; give both processes the same redis")
	}
	if replicas, err := replicasOf(c.Durability); err != nil || replicas > 0 && strings.HasPrefix(c.Redis, "embedded:") {
		wrong("durability", c.Durability, "async, or replica=1 to replica=5 on a redis that has replicas, which embedded: has not")
	}
	oneOf("log_level", c.LogLevel, "debug", "info", "warn", "error")
	oneOf("log_format", c.LogFormat, "auto", "json", "console")
	if c.ShutdownTimeout < 100*time.Millisecond || c.ShutdownTimeout > time.Hour {
		wrong("shutdown_timeout", c.ShutdownTimeout, "100ms to 1h: less leaves no time to settle a batch")
	}
	for _, err := range []error{c.ingest().Validate(), c.drain().Validate()} {
		if err != nil {
			errs = append(errs, c.locate(err))
		}
	}
	return errors.Join(append(errs, c.validateNamespaces()...)...)
}

// replicasOf reads a durability: how many replicas an acknowledgement waits for.
func replicasOf(durability string) (int, error) {
	if durability == "async" {
		return 0, nil
	}
	count, ok := strings.CutPrefix(durability, "replica=")
	if n, err := strconv.Atoi(count); ok && err == nil && n >= 1 && n <= partition.MaxReplicas {
		return n, nil
	}
	return 0, fmt.Errorf("durability: %q is neither async nor replica=N", durability)
}

// ingest is the configuration of the ingest server.
func (c *Config) ingest() ingest.Config {
	i := ingest.DefaultConfig()
	copyFields(&i, *c)
	i.Tokens = map[string][]ingest.Token{}
	for name, ns := range c.Namespaces {
		i.Tokens[name] = ns.Tokens
	}
	return i
}

// drain is the configuration of the drainer.
func (c *Config) drain() drain.Config {
	d := drain.DefaultConfig()
	copyFields(&d, *c)
	return d
}

// flagDefaults are the values of ${name} in the tags of Config and Namespace: the
// defaults of the packages, by the key of the setting, and the forms of sink URLs.
func flagDefaults() kong.Vars {
	var c Config
	copyFields(&c, ingest.DefaultConfig())
	copyFields(&c, drain.DefaultConfig())
	copyFields(&c.Default, partition.DefaultPolicy())
	vars := kong.Vars{"sinks": sinkForms()}
	for _, s := range settingsOf(&c) {
		vars[s.key()] = s.text()
	}
	return vars
}

func (c *Config) validateNamespaces() (errs []error) {
	if len(c.Namespaces) == 0 {
		errs = append(errs, c.fieldError("namespaces", errors.New("namespaces: there is none: name one, or leave the key out")))
	}
	owners := map[string]string{} // of files, by path
	for _, name := range c.names() {
		ns, at := c.Namespaces[name], "namespaces."+name+"."
		var field *partition.FieldError
		if err := ns.Policy().Validate(); errors.As(err, &field) {
			errs = append(errs, c.fieldError(at+field.Field, &partition.FieldError{Field: at + field.Field, Value: field.Value, Want: field.Want}))
		} else if err != nil {
			errs = append(errs, err)
		}
		u, err := url.Parse(ns.Sink)
		if err != nil || u.Scheme != "file" {
			continue
		}
		// A file has one writer: the second would wait for the first for ever.
		where := path.Clean(u.Path)
		if other, taken := owners[where]; taken {
			errs = append(errs, c.fieldError(at+"sink", &partition.FieldError{Field: at + "sink", Value: where, Want: "a file of its own, for " + other + " writes to this one"}))
		}
		owners[where] = name
	}
	return errs
}

// locate finds where the value was found that an error of another package is
// about.
func (c *Config) locate(err error) error {
	var (
		field *partition.FieldError
		ours  *settingError
	)
	switch {
	case errors.As(err, &field):
		return c.fieldError(field.Field, err)
	case errors.As(err, &ours):
		return c.fieldError(ours.key, err)
	}
	return err
}

// settingError is why the value of a setting cannot be used, where the value
// itself says nothing or must not be shown.
type settingError struct {
	key   string
	cause error
}

func (e *settingError) Error() string { return e.key + ": " + e.cause.Error() }
func (e *settingError) Unwrap() error { return e.cause }

// fieldError puts in front of err where the value of key was found. A value
// that a namespace inherits was found where the flag of that name got it.
func (c *Config) fieldError(key string, err error) error {
	origin, ok := c.origins[key]
	if !ok {
		origin, ok = c.origins[key[strings.LastIndexByte(key, '.')+1:]]
	}
	if !ok {
		return err
	}
	return fmt.Errorf("%s: %w", origin, err)
}
