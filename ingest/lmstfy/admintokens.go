package lmstfy

import (
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/control"
)

const (
	minToken     = 20 // bytes of a token that the user chooses
	maxNamespace = 64 // bytes
)

// createToken makes a token, and the namespace if there is none.
func (a *Admin) createToken(w http.ResponseWriter, r *http.Request, who string) {
	name := r.PathValue("namespace")
	text := r.FormValue("token")
	description := r.FormValue("description")
	snapshot := a.Control.Snapshot()
	pool := r.FormValue("pool")
	ns := snapshot.Namespace(name)
	if ns != nil && pool == "" {
		pool = ns.Pool
	}
	switch {
	case description == "":
		answerText(w, http.StatusBadRequest, "invalid description")
	case text != "" && len(text) < minToken:
		answerText(w, http.StatusBadRequest, "the user token was too short")
	case len(name) > maxNamespace:
		answerText(w, http.StatusBadRequest, "the namespace name was too long")
	case !validName(name, "") || !partition.ValidNamespace(name):
		answerText(w, http.StatusBadRequest, "namespace name contains forbidden characters")
	case pool != "" && !slices.Contains(a.Pools(), pool):
		answerText(w, http.StatusBadRequest, "the pool was not exists")
	case ns != nil && ns.Pool != pool:
		answerText(w, http.StatusBadRequest, "the namespace is in the pool "+ns.Pool)
	case strings.Contains(text, ":"):
		answerText(w, http.StatusBadRequest, "the user token has a ':', which ends the name of a pool")
	default:
		a.create(w, r, control.NewNamespace(name, pool, who),
			control.Token{Text: text, Description: description, CreatedBy: who})
	}
}

func (a *Admin) create(w http.ResponseWriter, r *http.Request, ns control.Namespace,
	t control.Token) {
	if t.Text == "" {
		t.Text = rand.Text() // 130 bits
	}
	t.Hash = control.HashToken(t.Text)
	made := a.Control.Snapshot().Namespace(ns.Name) == nil
	err := a.Control.CreateTokenIn(r.Context(), ns, t)
	if made && err == nil {
		a.Record(r, "create_namespace", ns.Name, "pool "+ns.Pool, nil)
	}
	a.Record(r, "create_token", ns.Name, "name "+control.ShortName(t.Hash), err)
	if err != nil {
		if errors.Is(err, control.ErrExists) && a.Control.Snapshot().Token(ns.Name, t.Hash) != nil {
			answerText(w, http.StatusBadRequest, "the token has already existed")
			return
		}
		a.rejected(w, "create a token", err)
		return
	}
	answerIndented(w, http.StatusCreated, map[string]string{"token": shown(ns.Pool, t.Text)})
}

// listTokens lists the tokens that were made here. Of others only hashes are stored.
func (a *Admin) listTokens(w http.ResponseWriter, r *http.Request, _ string) {
	pool := r.FormValue("pool")
	if pool != "" && !slices.Contains(a.Pools(), pool) {
		answerText(w, http.StatusBadRequest, "the pool was not exists")
		return
	}
	tokens := map[string]string{}
	snapshot := a.Control.Snapshot()
	if ns := snapshot.Namespace(r.PathValue("namespace")); ns != nil && (pool == "" ||
		pool == ns.Pool) {
		for _, t := range snapshot.Tokens(ns.Name) {
			if t.Text != "" {
				tokens[shown(ns.Pool, t.Text)] = t.Description
			}
		}
	}
	answerIndented(w, http.StatusOK, map[string]map[string]string{"tokens": tokens})
}

// deleteToken deletes a token. Its answer is the same for one that is gone.
func (a *Admin) deleteToken(w http.ResponseWriter, r *http.Request, _ string) {
	name, hash := tokenOf(r)
	err := a.Control.DeleteToken(r.Context(), name, hash)
	a.Record(r, "revoke_token", name, "name "+control.ShortName(hash), err)
	if err != nil && !errors.Is(err, control.ErrNotFound) {
		a.rejected(w, "delete a token", err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// tokenOf is the token that a path names, "[pool:]token". A namespace is in one pool, so the
// pool says nothing.
func tokenOf(r *http.Request) (namespace string, hash [32]byte) {
	text := r.PathValue("token")
	if _, after, found := strings.Cut(text, ":"); found {
		text = after
	}
	return r.PathValue("namespace"), control.HashToken(text)
}

// shown is a token as a client sends it.
func shown(pool, text string) string {
	if pool == "" || pool == DefaultPool {
		return text
	}
	return pool + ":" + text
}

// rejected answers an error of Control: what the file forbids and values out of bounds are
// the client's business, the rest is the store's.
func (a *Admin) rejected(w http.ResponseWriter, what string, err error) {
	var field *partition.FieldError
	for _, own := range []error{control.ErrInFile, control.ErrExists, control.ErrTooMany,
		control.ErrConflict, control.ErrNoPool, control.ErrOpen} {
		if errors.Is(err, own) {
			answerText(w, http.StatusBadRequest, err.Error())
			return
		}
	}
	if errors.As(err, &field) {
		answerText(w, http.StatusBadRequest, err.Error())
		return
	}
	a.failed(w, what, err)
}
