// Package config is the configuration of the service: the file, variables and flags, their
// checks, their printed form and what a reload may change. It opens nothing; package app does.
package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/spillway-io/spillway/drain"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/transform"
	"github.com/spillway-io/spillway/ingest/transport"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/mask"
)

// Config holds all settings of `spillway serve`. A field with a name tag is a flag,
// an environment variable and a key of the file; see settings.go. FlagDefaults fills
// the ${…} of its tags.
type Config struct {
	File string `name:"config" placeholder:"FILE" help:"YAML file to read. Unknown keys are errors."`

	Listen         string `name:"listen" group:"Ports:" default:"127.0.0.1:8080" help:"Address of the data port, host:port."`
	AdminListen    string `name:"admin-listen" group:"Ports:" default:"127.0.0.1:8081" help:"Address of the admin port, host:port."`
	AdminToken     string `name:"admin-token" group:"Ports:" placeholder:"HASH" help:"Hash of the token that the admin port requires: sha256:…, as printed by spillway token."`
	InsecureNoAuth bool   `name:"insecure-no-auth" group:"Ports:" help:"Allow listening without authentication on addresses other than loopback."`
	Lmstfy         bool   `name:"lmstfy" group:"Ports:" help:"Also serve lmstfy's HTTP API for queues, under /api/. Its tokens, limits and pools are on the admin port."`
	LmstfyMetrics  bool   `name:"lmstfy-metrics" group:"Ports:" help:"Keep lmstfy's metrics, infra_lmstfy_*, beside Spillway's. Needs --lmstfy."`

	TLSCert          string `name:"tls-cert" group:"TLS:" placeholder:"FILE" help:"Certificate chain of the data port, a PEM file. Without one the port speaks plain HTTP."`
	TLSKey           string `name:"tls-key" group:"TLS:" placeholder:"FILE" help:"Key of the data port's certificate, a PEM file."`
	TLSClientCA      string `name:"tls-client-ca" group:"TLS:" placeholder:"FILE" help:"CA that must have signed the certificates of the data port's clients, a PEM file. Without one clients need no certificate."`
	AdminTLSCert     string `name:"admin-tls-cert" group:"TLS:" placeholder:"FILE" help:"Certificate chain of the admin port, a PEM file. Without one the port speaks plain HTTP."`
	AdminTLSKey      string `name:"admin-tls-key" group:"TLS:" placeholder:"FILE" help:"Key of the admin port's certificate, a PEM file."`
	AdminTLSClientCA string `name:"admin-tls-client-ca" group:"TLS:" placeholder:"FILE" help:"CA that must have signed the certificates of the admin port's clients, a PEM file."`

	Redis      string `name:"redis" group:"Store:" default:"embedded:" help:"URL of the store: embedded: redis:// rediss:// redis-sentinel://h1,h2/master redis-cluster://h1,h2."`
	Prefix     string `name:"prefix" group:"Store:" default:"sw" help:"Prefix of every key in Redis."`
	Durability string `name:"durability" group:"Store:" default:"async" help:"When an entry is acknowledged: async (the primary has it) or replica=N (N replicas have it too)."`
	Role       string `name:"role" group:"Process:" default:"all" help:"Part of the service that this process runs: ingest, drain or all."`

	Default Namespace `embed:"" group:"Default namespace:"`
	// Namespaces come from the file only, and inherit the settings of Default.
	// Without any there is one, "default", with the settings of Default.
	Namespaces map[string]Namespace `kong:"-"`
	// QueueNamespaces are the namespaces of kind queue. They come from the file only.
	QueueNamespaces map[string]QueueNamespace `kong:"-"`
	// PHPNamespaces are the namespaces of kind php. They come from the file only.
	PHPNamespaces map[string]PHPNamespace `kong:"-"`

	Workers     int           `name:"workers" group:"Drain:" default:"${workers}" help:"Workers per namespace, each with one lease at a time."`
	SinkTimeout time.Duration `name:"sink-timeout" group:"Drain:" default:"${sink_timeout}" help:"Timeout of one write to a sink."`
	Lease       time.Duration `name:"lease" group:"Drain:" default:"${lease}" help:"Duration of a worker's lease on a partition. After a crash, the partition waits this long."`

	Lanes            int            `name:"lanes" group:"Ingest:" default:"${lanes}" help:"Group-commit lanes, each with one flush to the store at a time."`
	MaxConns         int            `name:"max-conns" group:"Ingest:" default:"${max_conns}" help:"Open connections before a new one closes the oldest without an admitted request, or is answered 503."`
	MaxConnsPerIP    int            `name:"max-conns-per-ip" group:"Ingest:" default:"${max_conns_per_ip}" help:"Open connections of one address (of IPv6: of a /64) before new ones are answered 503. Behind a proxy all clients have one."`
	MaxInflightBytes partition.Size `name:"max-inflight-bytes" group:"Ingest:" default:"${max_inflight_bytes}" help:"Bytes of requests held in memory before new ones are answered 503."`
	MaxBody          partition.Size `name:"max-body" group:"Ingest:" default:"${max_body}" help:"Maximum size of a request body as sent, compressed or not."`
	MaxDecompressed  partition.Size `name:"max-decompressed" group:"Ingest:" default:"${max_decompressed}" help:"Maximum size of a request body after decompression."`
	MaxEntries       int            `name:"max-entries" group:"Ingest:" default:"${max_entries}" help:"Maximum number of entries in a request."`
	MaxEntry         partition.Size `name:"max-entry" group:"Ingest:" default:"${max_entry}" help:"Maximum size of an entry's payload."`
	ReadTimeout      time.Duration  `name:"read-timeout" group:"Ingest:" default:"${read_timeout}" help:"Timeout for receiving a whole request."`

	LogLevel        string        `name:"log-level" group:"Process:" default:"info" help:"Minimum level of logged messages: debug, info, warn or error."`
	LogFormat       string        `name:"log-format" group:"Process:" default:"auto" help:"Format of the log: json, console, or auto (console on a terminal, else json)."`
	ShutdownDelay   time.Duration `name:"shutdown-delay" group:"Process:" default:"0s" help:"How long requests are still answered after a signal to stop, while /readyz already fails."`
	ShutdownTimeout time.Duration `name:"shutdown-timeout" group:"Process:" default:"15s" help:"Timeout for finishing requests and batches at shutdown."`

	// AdminTokens come from the file only: the tokens of the admin port beside AdminToken.
	AdminTokens []Token `kong:"-" file:"admin-tokens" keys:"name role hash"`
	// MaskFields come from the file only: keys of JSON objects whose values the admin port
	// hides.
	MaskFields []string `kong:"-" file:"mask-fields"`
	// Pools come from the file only: what Redis there is beside Redis, by name.
	Pools map[string]Pool `kong:"-" file:"pools"`
	// PushSinks come from the file only: the URLs of the sinks that rules of push name.
	PushSinks map[string]string `kong:"-" file:"sinks"`

	origins map[string]string // where the value of each key comes from, unless it is the default: a flag, a variable, or file:line
	Secrets sink.Secrets      `kong:"-"` // the values of placeholders in sink URLs
	filled  map[string]filled // the URLs whose secrets may change, by key
}

// filled is a URL with its placeholders, and a digest of it with their values.
type filled struct {
	raw string
	sum [32]byte
}

// Namespace holds the settings of one namespace: the policy of its partitions, and
// the sink of their batches.
type Namespace struct {
	Sink          string         `name:"sink" default:"stdout:" help:"URL of the sink that gets the batches: ${sinks}."`
	Fallback      string         `name:"fallback" placeholder:"URLS" help:"Fallback sinks, tried in order when the sink before rejects entries or is down. URLs, separated by spaces."`
	Capacity      int            `name:"capacity" default:"${capacity}" help:"Entries kept per partition. When a partition is full, the oldest are evicted."`
	MaxAge        time.Duration  `name:"max-age" default:"${max_age}" help:"Age at which an undelivered entry expires."`
	Batch         int            `name:"batch" default:"${batch}" help:"Maximum number of entries in a batch."`
	Linger        time.Duration  `name:"linger" default:"${linger}" help:"How long a batch that is not full waits for more entries."`
	Delivery      string         `name:"delivery" default:"${delivery}" help:"What a crash does to the batches in flight: at-least-once (delivered again) or at-most-once (lost)."`
	Shards        Shards         `name:"shards" default:"${shards}" help:"Groups of keys, each in one Redis Cluster slot, fixed at first use; auto: four a master of a Redis Cluster, else one."`
	MaxPartitions int            `name:"max-partitions" default:"${max_partitions}" help:"Maximum number of partitions with entries. New ones are answered 429."`
	MaxKeys       int            `name:"max-keys" default:"${max_keys}" help:"Maximum number of idempotency keys that are remembered, an equal part in each shard. Requests under new ones are answered 429."`
	MaxDead       int            `name:"max-dead" default:"${max_dead}" help:"Dead letters kept per shard. The oldest are dropped first."`
	MaxDeadBytes  partition.Size `name:"max-dead-bytes" default:"${max_dead_bytes}" help:"Bytes of dead letters kept per shard. The oldest are dropped first."`
	BackoffBase   time.Duration  `name:"backoff-base" default:"${backoff_base}" help:"Longest wait of a partition before the second attempt of a write that failed. Each further attempt doubles it."`
	BackoffMax    time.Duration  `name:"backoff-max" default:"${backoff_max}" help:"Longest wait of a partition between two attempts. The wait is random, between 0 and this bound."`

	// The keys that follow come from the file only, and are not inherited.

	Pool string `kong:"-" file:"pool"` // the name of one of the pools, empty for that of Redis
	// SinkCommand is what the sink exec: runs, program and arguments: who sets flags or
	// variables cannot start programs.
	SinkCommand []string `kong:"-" file:"sink-command"`
	// Tokens are those of the data port. Without any the namespace needs no authentication.
	Tokens      []Token  `kong:"-" file:"tokens" keys:"hash name rate new_partitions"`
	CORSOrigins []string `kong:"-" file:"cors-origins"`
	// What other vendors' SDKs send; see ingest.SDK.
	WriteKeys      []WriteKey `kong:"-" file:"write-keys"`
	PartitionPaths []string   `kong:"-" file:"partition-paths"`
	// Transform is done to entries before they are buffered.
	Transform []transform.Step `kong:"-" file:"transform"`
}

// WriteKey is an ingest.WriteKey in the form of the file: a text, or a map.
type WriteKey struct {
	Key           string       `name:"key"`
	Rate          ingest.Quota `name:"rate"`
	NewPartitions ingest.Quota `name:"new-partitions"`
}

// Sinks are the URLs of the sink and of its fallbacks.
func (n Namespace) Sinks() []string { return append([]string{n.Sink}, strings.Fields(n.Fallback)...) }

// Policy is the part of the settings that the store needs.
func (n Namespace) Policy() partition.Policy {
	p := partition.DefaultPolicy()
	CopyFields(&p, n)
	return p
}

// Load completes a Config that holds the flags and the defaults: it reads the
// environment, then the file, then validates. Its errors are usage errors, all at once.
func (c *Config) Load(p Process) error {
	settings := SettingsOf(c)
	c.Secrets = sink.Secrets{Env: p.LookupEnv, File: readSecret}
	var errs []error
	var err error
	if c.origins, err = FromEnv(settings, p); err != nil {
		errs = append(errs, err)
	}
	c.Namespaces = nil
	c.QueueNamespaces = nil
	c.PHPNamespaces = nil
	c.Pools = nil
	c.PushSinks = nil
	c.MaskFields = mask.DefaultFields()
	if c.File != "" {
		document, err := parseFile(c.File)
		if err != nil {
			// What follows from the missing namespaces and tokens would mislead.
			return UsageError{errors.Join(append(errs, err)...)}
		}
		errs = append(errs, c.apply(document, settings)...)
	}
	if c.Namespaces == nil && c.QueueNamespaces == nil && c.PHPNamespaces == nil {
		c.Namespaces = map[string]Namespace{"default": c.Default}
	}
	if err := errors.Join(append(errs, c.validate()...)...); err != nil {
		return UsageError{err}
	}
	return nil
}

// Names returns the namespaces in alphabetical order.
func (c *Config) Names() []string { return slices.Sorted(maps.Keys(c.Namespaces)) }

// validate returns an error for every setting that cannot work, with what to write
// instead. NewApp validates URLs, because the store and the sinks know theirs.
func (c *Config) validate() []error {
	f := &findings{Config: c}
	f.ports()
	f.lmstfy()
	f.oneOf("role", c.Role, "all", "ingest", "drain")
	embedded := strings.HasPrefix(c.Redis, "embedded:")
	if embedded && c.Role != "all" {
		f.wrong("role", c.Role, "all, because other processes cannot use an embedded store; or set redis, the same in all processes")
	}
	if replicas, err := ReplicasOf(c.Durability); err != nil || replicas > 0 && embedded {
		f.wrong("durability", c.Durability, "async, or replica=1 to replica=5 with a redis that has replicas; embedded: has none")
	}
	f.oneOf("log_level", c.LogLevel, "debug", "info", "warn", "error")
	f.oneOf("log_format", c.LogFormat, "auto", "json", "console")
	if c.ShutdownTimeout < 100*time.Millisecond || c.ShutdownTimeout > time.Hour {
		f.wrong("shutdown_timeout", c.ShutdownTimeout, "100ms to 1h; less is too short for committing a batch")
	}
	if c.ShutdownDelay < 0 || c.ShutdownDelay > time.Hour {
		f.wrong("shutdown_delay", c.ShutdownDelay, "0s to 1h")
	}
	for _, err := range Split(errors.Join(c.Ingest().Validate(), c.Drain().Validate())) {
		f.add(c.Locate(err))
	}
	f.pools()
	f.namespaces()
	f.queues()
	f.php()
	return f.errs
}

// Ingest is the configuration of the ingest server.
func (c *Config) Ingest() ingest.Config {
	i := ingest.DefaultConfig()
	CopyFields(&i, *c)
	i.Tokens = map[string][]ingest.Token{}
	i.CORSOrigins = map[string][]string{}
	i.SDKs = map[string]ingest.SDK{}
	for name, ns := range c.Namespaces {
		sdk := ingest.SDK{PartitionPaths: ns.PartitionPaths}
		for _, k := range ns.WriteKeys {
			sdk.WriteKeys = append(sdk.WriteKeys, ingest.WriteKey(k))
		}
		i.Tokens[name] = nil
		i.CORSOrigins[name] = ns.CORSOrigins
		i.SDKs[name] = sdk
		if steps, _ := ns.transform(name, c.Secrets); steps != nil { // validate names what is wrong
			if i.Transforms == nil {
				i.Transforms = map[string]*transform.Transform{}
			}
			i.Transforms[name] = steps
		}
		for _, t := range ns.Tokens {
			i.Tokens[name] = append(i.Tokens[name], t.ingest())
		}
	}
	for name, n := range c.PHPNamespaces {
		i.Tokens[name] = n.tokens()
	}
	i.Closed = c.closed()
	i.NamespaceKeys = !OtherThanLoopback(c.Listen)
	return i
}

// Drain is the configuration of the drainer.
func (c *Config) Drain() drain.Config {
	d := drain.DefaultConfig()
	CopyFields(&d, *c)
	return d
}

// FlagDefaults fills ${name} in the tags of Config and Namespace: the defaults of the
// packages, by the key of the setting, and the forms of sink URLs. They are no
// variables of kong: it copies and expands each of those again for each flag of each
// command, which took most of the time that a command needs to start.
func FlagDefaults(sinks string) kong.Option {
	var c Config
	CopyFields(&c, ingest.DefaultConfig())
	CopyFields(&c, drain.DefaultConfig())
	CopyFields(&c.Default, partition.DefaultPolicy())
	CopyFields(&c.Default, drain.DefaultConfig())
	names := []string{"${sinks}", sinks}
	for _, s := range SettingsOf(&c) {
		names = append(names, "${"+s.Key()+"}", s.text())
	}
	fill := strings.NewReplacer(names...)
	return kong.PostBuild(func(k *kong.Kong) error {
		return kong.Visit(k.Model.Node, func(v kong.Visitable, next kong.Next) error {
			if value, ok := v.(*kong.Value); ok {
				value.Default, value.Help = fill.Replace(value.Default), fill.Replace(value.Help)
			}
			return next(nil)
		})
	})
}

func (f *findings) namespaces() {
	if len(f.AllNames()) == 0 {
		f.add(f.FieldError("namespaces", errors.New("namespaces: none given: add one, or remove the key")))
	}
	owners := map[string]string{} // namespaces by the path of their file
	for _, name := range f.Names() {
		ns, at := f.Namespaces[name], "namespaces."+name+"."
		backoff := drain.DefaultConfig()
		CopyFields(&backoff, ns)
		f.under(at, ns.Policy().Validate(), backoff.Validate())
		if _, err := ns.transform(name, f.Secrets); err != nil {
			f.unusable(at+"transform", err)
		}
		if ns.SinkCommand != nil && !slices.Contains(ns.Sinks(), "exec:") {
			f.unusable(at+"sink_command", errors.New(`needs sink: "exec:", and the sink is another: change one of them`))
		}
		for i, raw := range ns.Sinks() {
			u, err := url.Parse(raw)
			if err != nil || u.Scheme != "file" {
				continue
			}
			// A file has one writer: the second sink would never open.
			where := path.Clean(u.Path)
			if other, taken := owners[where]; taken {
				f.wrong(at+KeyOfTier(i), where, "another file, because namespace "+other+" writes to this one")
			}
			owners[where] = name
		}
	}
	f.branches()
}

// Split returns the errors that were joined in err, none for nil.
func Split(err error) []error {
	if err == nil {
		return nil
	}
	if usage, ok := err.(UsageError); ok {
		return Split(usage.error)
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var list []error
	for _, err := range joined.Unwrap() {
		list = append(list, Split(err)...)
	}
	return list
}

// Locate adds to an error of another package where the value that it is about
// comes from.
func (c *Config) Locate(err error) error {
	var (
		field   *partition.FieldError
		setting *SettingError
		file    *transport.FileError
	)
	switch {
	case errors.As(err, &field):
		return c.FieldError(field.Field, err)
	case errors.As(err, &setting):
		return c.FieldError(setting.Key, err)
	case errors.As(err, &file):
		return c.FieldError(file.Setting, err)
	}
	return err
}

// SettingError is why the value of a setting cannot be used. It does not show the
// value, which may be a secret.
type SettingError struct {
	Key   string
	Cause error
}

func (e *SettingError) Error() string { return e.Key + ": " + e.Cause.Error() }
func (e *SettingError) Unwrap() error { return e.Cause }

// FieldError adds to err where the value of key comes from, and the settings that it
// depends on.
func (c *Config) FieldError(key string, err error) error {
	if texts := c.relatedTo(key, err); texts != "" {
		err = fmt.Errorf("%w; %s", err, texts)
	}
	if origin := c.origin(key); origin != "" {
		return fmt.Errorf("%s: %w", origin, err)
	}
	return err
}

// origin is where the value of key comes from, "" for the default. An inherited value of
// a namespace comes from where the setting of that name outside of namespaces does.
func (c *Config) origin(key string) string {
	if origin, ok := c.origins[key]; ok {
		return origin
	}
	return c.origins[key[strings.LastIndexByte(key, '.')+1:]]
}

// MaxSecret is the maximum size of a file with a secret. Keys of PEM files are some KB.
const MaxSecret = 64 << 10

// readSecret reads the file of a placeholder {file:/path}.
func readSecret(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular(): // reading a pipe or a device may not end
		return nil, errors.New("not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	secret, err := io.ReadAll(io.LimitReader(f, MaxSecret+1))
	if err == nil && len(secret) > MaxSecret {
		err = fmt.Errorf("larger than %s", partition.Size(MaxSecret))
	}
	return secret, err
}

// Default is the configuration of `spillway serve` without flags, file and environment.
func Default() (*Config, error) {
	var c struct {
		Config Config `embed:""`
	}
	parser, err := kong.New(&c, FlagDefaults(""))
	if err != nil {
		return nil, err
	}
	if _, err = parser.Parse(nil); err != nil {
		return nil, err
	}
	// It ignores the environment, so that a demo is the same everywhere.
	empty := Process{LookupEnv: func(string) (string, bool) { return "", false }}
	return &c.Config, c.Config.Load(empty)
}
