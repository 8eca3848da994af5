// Package console is the page of the admin port for people: what is lost, whose, why, and the
// means to act. Its files are in page/, as a browser reads them: no build step. The page asks
// the admin API of the same origin and nothing else. DESIGN.md has the reasons.
package console

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

//go:embed page
var embedded embed.FS

// policy lets the page use what this origin serves, and nothing that a text could smuggle in: no
// inline script or style, no HTML from strings, no frame, no form.
const policy = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'; require-trusted-types-for 'script'"

// contentTypes are by file extension: the tables of the operating system may say otherwise.
var contentTypes = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
	".mjs":  "text/javascript; charset=utf-8",
	".svg":  "image/svg+xml",
	"":      "text/plain; charset=utf-8", // the licences
}

type file struct {
	content           string
	contentType, etag string
}

// Handler serves the page at / and its files below /console/. Any other path is answered 404 and
// any method but GET and HEAD 405; what may be asked, and by whom, is up to the caller.
func Handler() http.Handler {
	files := map[string]file{}
	var modules []string // else a browser hears of each from the one that needs it, in seven steps
	for name, f := range load() {
		files["/console/"+name] = f
		if f.contentType == contentTypes[".js"] && !strings.HasSuffix(name, ".iife.min.js") {
			modules = append(modules, "<console/"+name+">; rel=modulepreload")
		}
	}
	files["/"] = files["/console/index.html"]
	delete(files, "/console/index.html")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := files[r.URL.Path]
		switch {
		case !ok:
			http.NotFound(w, r)
			return
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		header := w.Header()
		header.Set("Content-Security-Policy", policy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-cache") // asks each time; an upgrade shows at once
		header.Set("Content-Type", f.contentType)
		header.Set("Etag", f.etag)
		if r.URL.Path == "/" {
			header.Set("Link", strings.Join(modules, ", "))
		}
		if r.Header.Get("If-None-Match") == f.etag {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		header.Set("Content-Length", fmt.Sprint(len(f.content)))
		if r.Method == http.MethodGet {
			_, _ = w.Write([]byte(f.content)) // a browser that left needs no answer
		}
	})
}

// load reads the files of the page, by their path below page/.
func load() map[string]file {
	files := map[string]file{}
	err := fs.WalkDir(embedded, "page", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := embedded.ReadFile(name)
		sum := sha256.Sum256(content)
		files[strings.TrimPrefix(name, "page/")] = file{
			content:     string(content),
			contentType: contentTypes[path.Ext(name)],
			etag:        `"` + hex.EncodeToString(sum[:8]) + `"`,
		}
		return err
	})
	if err != nil {
		panic(err) // the files are part of the program
	}
	return files
}
