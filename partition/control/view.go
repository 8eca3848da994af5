package control

import (
	"fmt"
	"slices"
	"strings"
)

// A view is what a change is decided on.
type view struct {
	*document
	file     *File
	snapshot *Snapshot
}

func (c *Control) view() view {
	c.mu.Lock()
	defer c.mu.Unlock()
	file := c.file
	return view{c.copy, &file, c.Snapshot()}
}

func (v view) inFile(namespace string) bool {
	n := v.snapshot.Namespace(namespace)
	return n != nil && n.FromFile || slices.Contains(v.file.Buffers, namespace)
}

// of are the entries of a kind that a namespace has, whether in use or not.
func (v view) of(kind, namespace string) (names []string) {
	for name := range v.entries {
		if strings.HasPrefix(name, kind+namespace+":") {
			names = append(names, name)
		}
	}
	return names
}

func (v view) mayCreateNamespace(n *Namespace) error {
	_, exists := v.entries[n.entry()]
	switch {
	case slices.Contains(v.file.Buffers, n.Name):
		return fmt.Errorf("namespace %s is a buffer: %w", n.Name, ErrInFile)
	case v.inFile(n.Name):
		return fmt.Errorf("namespace %s: %w", n.Name, ErrInFile)
	case exists:
		return fmt.Errorf("namespace %s: %w", n.Name, ErrExists)
	case n.Pool != DefaultPool && !slices.Contains(v.file.Pools, n.Pool):
		return fmt.Errorf("pool %s: %w", n.Pool, ErrNoPool)
	}
	return nil
}

func (v view) mayCreateToken(t *Token) error {
	_, exists := v.entries[t.entry()]
	switch {
	case exists || v.snapshot.Token(t.Namespace, t.Hash) != nil:
		return fmt.Errorf("token %s: %w", t.Name, ErrExists)
	case slices.Contains(v.file.Open, t.Namespace):
		return fmt.Errorf("namespace %s: %w", t.Namespace, ErrOpen)
	case slices.ContainsFunc(v.snapshot.Tokens(t.Namespace),
		func(other *Token) bool { return other.Name == t.Name }):
		return fmt.Errorf("token named %s: %w", t.Name, ErrExists)
	case len(v.of(tokenEntry, t.Namespace)) >= MaxTokens:
		return fmt.Errorf("namespace %s: %d tokens are the most: %w", t.Namespace, MaxTokens, ErrTooMany)
	}
	return nil
}
