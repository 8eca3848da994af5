package control

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"

	luacontrol "github.com/spillway-io/spillway/lua/control"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

// The errors of changes. Nothing was changed. A value outside its bounds is a
// *partition.FieldError; every other error is one of backend.
var (
	ErrExists   = errors.New("exists already")
	ErrNotFound = errors.New("no such entry")
	// ErrInFile: the file names it, and only the file can change it.
	ErrInFile = errors.New("the configuration file names it: change it there, and reload")
	// ErrOpen: the file lets everybody in, and what is made at run time does not change that.
	ErrOpen = errors.New("the configuration file lists no token there, so everybody is let in: list the first one in the file (spillway token " +
		"prints one with its hash) and reload; then further ones can be made")
	// ErrNoPool: the file has no such pool.
	ErrNoPool = errors.New("the configuration file has no such pool")
	// ErrTooMany: more than MaxEntries, MaxTokens or MaxBytes.
	ErrTooMany = errors.New("too many namespaces and tokens")
	// ErrConflict: other processes changed the document all the time.
	ErrConflict = errors.New("changed by another process at the same time: try again")
)

// maxTries is how often a change begins anew because another process was first.
const maxTries = 10

// maxDeleted is how many names of deleted entries the document keeps. Who read it before
// them reads all of it.
const maxDeleted = 1000

// edit is what a change makes of the document: values by the names of entries; empty: deleted.
type edit map[string]string

// CreateNamespace makes a namespace of kind queue. An empty Pool is DefaultPool.
// CreatedMS is set. The error wraps backend.ErrIncompatible where the Redis of the pool has no
// append-only file and the file does not say that it may be volatile.
func (c *Control) CreateNamespace(ctx context.Context, n Namespace) error {
	n.complete()
	if err := n.Validate(); err != nil {
		return err
	}
	return c.change(ctx, func(v view) (edit, error) {
		if err := c.mayCreate(ctx, v, &n); err != nil {
			return nil, err
		}
		return edit{n.entry(): n.encode()}, nil
	})
}

// DeleteNamespace deletes a namespace and all its tokens. First no process can store a job in it
// any more; then empty, nil for none, counts its jobs or ends them, and what stands beside jobs goes: see sweep.
// After an error the namespace is as before, unless the outcome is unknown: then it opens again after two minutes.
func (c *Control) DeleteNamespace(ctx context.Context, name string,
	empty func(context.Context) error) error {
	v := c.view()
	n, made := v.entries[(&Namespace{Name: name}).entry()].(*Namespace)
	if !made || v.inFile(name) || empty == nil {
		return c.deleteNamespace(ctx, name)
	}
	closed, end := context.WithTimeout(ctx, closeFor/2)
	defer end()
	err := c.closeNamespace(closed, n, closeFor)
	if err == nil {
		err = empty(closed)
	}
	if err == nil {
		err = c.sweep(closed, n)
	}
	if err == nil {
		err = c.deleteNamespace(ctx, name)
	}
	after, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	switch {
	case err == nil:
		// For a process that cannot read the document; others know by then, and may have made
		// one of that name: that stays open.
		_ = c.closeNamespace(after, n, forEver)
	case !errors.Is(err, backend.ErrUnknown):
		_ = c.closeNamespace(after, n, 0)
	}
	return err
}

// ledgers are those of a namespace, and the backend of its pool.
func (c *Control) ledgers(ctx context.Context, n *Namespace) (*backend.Backend, []string, error) {
	b, err := c.pool(n.Pool)
	if err != nil {
		return nil, nil, err
	}
	pipe := b.Background.Pipeline()
	ask := askShards(ctx, pipe, c.prefix, n.Name)
	_, _ = pipe.Exec(ctx) // each command has its own error
	shards, err := ask.shards(ctx, b, n.Policy.Shards)
	return b, space.Ledgers(c.prefix, n.Name, shards), err
}

// closeFor is longer than an act of the admin port takes.
const closeFor = 2 * time.Minute

const forEver = -time.Millisecond

// closeNamespace makes every process reject publishes to a namespace for some time, 0 ends that.
// forEver changes only what is closed.
func (c *Control) closeNamespace(ctx context.Context, n *Namespace, wait time.Duration) error {
	b, ledgers, err := c.ledgers(ctx, n)
	if err != nil {
		return err
	}
	calls := make([]*backend.Call, len(ledgers))
	for i, ledger := range ledgers {
		calls[i] = backend.NewCall(luacontrol.Close, nil, []string{ledger}, wait.Milliseconds())
	}
	b.Run(ctx, b.Background, calls)
	for _, call := range calls {
		err = errors.Join(err, call.Err)
	}
	return err
}

func (c *Control) deleteNamespace(ctx context.Context, name string) error {
	return c.change(ctx, func(v view) (edit, error) {
		n := &Namespace{Name: name}
		switch _, exists := v.entries[n.entry()]; {
		case v.inFile(name):
			return nil, ErrInFile
		case !exists:
			return nil, ErrNotFound
		}
		e := edit{n.entry(): ""}
		for _, entry := range append(v.of(tokenEntry, name), v.of(ruleEntry, name)...) {
			e[entry] = ""
		}
		return e, nil
	})
}

// CreateToken makes a token of a namespace of kind queue. An empty Name is ShortName of
// its hash. CreatedMS is set.
func (c *Control) CreateToken(ctx context.Context, t Token) error {
	return c.createToken(ctx, nil, t)
}

// CreateTokenIn is CreateToken, and makes the namespace first if there is none of that
// name. Both happen, or neither.
func (c *Control) CreateTokenIn(ctx context.Context, n Namespace, t Token) error {
	n.complete()
	if err := n.Validate(); err != nil {
		return err
	}
	t.Namespace = n.Name
	return c.createToken(ctx, &n, t)
}

func (c *Control) createToken(ctx context.Context, n *Namespace, t Token) error {
	if t.Name == "" {
		t.Name = ShortName(t.Hash)
	}
	t.CreatedMS = time.Now().UnixMilli()
	if err := t.Validate(); err != nil {
		return err
	}
	return c.change(ctx, func(v view) (edit, error) {
		e := edit{t.entry(): t.encode()}
		if v.snapshot.Namespace(t.Namespace) == nil {
			if n == nil {
				return nil, fmt.Errorf("namespace %s of kind queue: %w", t.Namespace, ErrNotFound)
			}
			if err := c.mayCreate(ctx, v, n); err != nil {
				return nil, err
			}
			e[n.entry()] = n.encode()
		}
		return e, v.mayCreateToken(&t)
	})
}

// DeleteToken deletes a token. No process admits requests with it a second later.
func (c *Control) DeleteToken(ctx context.Context, namespace string, hash [sha256.Size]byte) error {
	return c.change(ctx, func(v view) (edit, error) {
		name := (&Token{Namespace: namespace, Hash: hash}).entry()
		if t := v.snapshot.Token(namespace, hash); t != nil && t.FromFile {
			return nil, ErrInFile
		}
		if _, exists := v.entries[name]; !exists {
			return nil, ErrNotFound
		}
		return edit{name: ""}, nil
	})
}

// ChangeLimit replaces the limit of a token by what change returns; nil is none. An error
// of change is returned as it is. change is called again when another process was first.
func (c *Control) ChangeLimit(ctx context.Context, namespace string, hash [sha256.Size]byte,
	change func(now *Limit) (*Limit, error)) error {
	return c.change(ctx, func(v view) (edit, error) {
		used := v.snapshot.Token(namespace, hash)
		switch {
		case used == nil:
			return nil, ErrNotFound
		case used.FromFile:
			return nil, ErrInFile
		}
		t := *used
		var err error
		if t.Limit, err = change(t.Limit); err != nil {
			return nil, err
		}
		return edit{t.entry(): t.encode()}, t.Validate()
	})
}

// CreateAdmin makes a token of the admin port. CreatedMS is set.
func (c *Control) CreateAdmin(ctx context.Context, a Admin) error {
	a.CreatedMS = time.Now().UnixMilli()
	if err := a.Validate(); err != nil {
		return err
	}
	return c.change(ctx, func(v view) (edit, error) {
		if len(v.file.Admins) == 0 {
			return nil, fmt.Errorf("admin_tokens: %w", ErrOpen)
		}
		for _, other := range v.snapshot.Admins() {
			if other.Name == a.Name || other.Hash == a.Hash {
				return nil, fmt.Errorf("a token of the admin port of that name or hash %w", ErrExists)
			}
		}
		return edit{a.entry(): a.encode()}, nil
	})
}

// DeleteAdmin deletes a token of the admin port, by its name.
func (c *Control) DeleteAdmin(ctx context.Context, name string) error {
	return c.change(ctx, func(v view) (edit, error) {
		for entry, e := range v.entries { // also of one that is not in use
			if a, ok := e.(*Admin); ok && a.Name == name {
				return edit{entry: ""}, nil
			}
		}
		if slices.ContainsFunc(v.file.Admins, func(a Admin) bool { return a.Name == name }) {
			return nil, ErrInFile
		}
		return nil, fmt.Errorf("token %s of the admin port: %w", name, ErrNotFound)
	})
}

// mayCreate is nil when the namespace can be made, and its pool keeps what it accepts.
func (c *Control) mayCreate(ctx context.Context, v view, n *Namespace) error {
	if err := v.mayCreateNamespace(n); err != nil {
		return err
	}
	b, err := c.pool(n.Pool)
	if err == nil && !slices.Contains(v.file.Volatile, n.Pool) {
		err = b.CheckPersistence(ctx)
	}
	if err == nil {
		err = c.closeNamespace(ctx, n, 0) // one of that name may have been deleted
	}
	if err == nil {
		err = c.renumber(ctx, b, n)
	}
	if err != nil {
		return fmt.Errorf("pool %s: %w", n.Pool, err)
	}
	return nil
}

func (n *Namespace) complete() {
	if n.Pool == "" {
		n.Pool = DefaultPool
	}
	n.CreatedMS = time.Now().UnixMilli()
}

// change reads the document, lets make say what to change, and changes that unless
// another process was first; then it begins anew. It is in use here when change returns.
func (c *Control) change(ctx context.Context, make func(view) (edit, error)) error {
	for range maxTries {
		if err := c.Refresh(ctx); err != nil {
			return err
		}
		v := c.view()
		e, err := make(v)
		if err != nil || len(e) == 0 {
			return err
		}
		done, err := c.write(ctx, v, e)
		if err != nil {
			return err
		}
		if done {
			_ = c.Refresh(ctx) // it is changed, whatever this says
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	return ErrConflict
}

// write runs the script. done is false when another process was first.
func (c *Control) write(ctx context.Context, v view, e edit) (done bool, err error) {
	b, err := c.pool(DefaultPool)
	if err != nil {
		return false, err
	}
	argv := []any{v.version, v.epoch, newEpoch(), Format, MaxEntries, MaxBytes, maxDeleted}
	for name, value := range e {
		if len(value) > maxEntryBytes {
			return false, fmt.Errorf("an entry longer than %d KiB: %w", maxEntryBytes>>10, ErrTooMany)
		}
		argv = append(argv, name, value)
	}
	call := backend.NewCall(luacontrol.Change, nil, documentKeys(c.prefix), argv...)
	b.RunDurably(ctx, b.In, []*backend.Call{call})
	if call.Err != nil {
		return false, call.Err
	}
	status := call.Rest.Int()
	n := call.Rest.Int()
	switch {
	case call.Rest.Broken:
		return false, call.Misread()
	case status == 1 && call.Unconfirmed != nil:
		return false, call.Unconfirmed
	case status == 2:
		return false, backend.Wrap(backend.ErrIncompatible,
			fmt.Errorf("the control document has format %d, which a newer version made", n))
	case status == 3:
		return false, fmt.Errorf("%d would be more than %d: %w", n, MaxEntries, ErrTooMany)
	case status == 4:
		return false, fmt.Errorf("%d bytes would be more than %d: %w", n, MaxBytes, ErrTooMany)
	}
	return status == 1, nil
}

func newEpoch() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // it never fails: the runtime ends the process instead
	return hex.EncodeToString(random[:])
}

// pause lets the other process end, for 1 to 20 ms.
func pause(ctx context.Context) error {
	n, _ := rand.Int(rand.Reader, big.NewInt(19))
	select {
	case <-ctx.Done():
		return backend.Wrap(backend.ErrUnavailable, ctx.Err())
	case <-time.After(time.Duration(1+n.Int64()) * time.Millisecond):
		return nil
	}
}
