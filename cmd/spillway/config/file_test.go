package config

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestOriginErrorsNameLineAndSayWhatToWrite(t *testing.T) {
	t.Parallel()
	const notAList = `not a list: write ["https://game.example"], or "*" for every page`
	tests := []struct{ name, file, want string }{
		{"a path", `cors_origins: ["https://kart.example/"]`, `3: namespaces.kart.cors_origins[0]: "https://kart.example/" is not an origin as browsers send it: write "https://kart.example"`},
		{"a wildcard", "cors_origins:\n      - https://a.example\n      - https://*.example", `5: namespaces.kart.cors_origins[1]: "https://*.example": a part of an origin cannot be a *: list each origin, or write "*" alone to allow every page`},
		{"no scheme", "cors_origins: [kart.example]", `3: namespaces.kart.cors_origins[0]: "kart.example" is not an origin: write scheme://host or scheme://host:port, such as https://game.example`},
		{"no list", "cors_origins: https://kart.example", "3: namespaces.kart.cors_origins: " + notAList},
		{"no value", "cors_origins:", "3: namespaces.kart.cors_origins: " + notAList},
		{"an empty list", "cors_origins: []", `3: namespaces.kart.cors_origins: empty list: write ["https://game.example"], or "*" for every page, or remove the key to allow no page`},
		{"a number", "cors_origins: [5]", `3: namespaces.kart.cors_origins[0]: not text: `},
		{"a list in it", "cors_origins: [[https://a.example]]", `3: namespaces.kart.cors_origins[0]: not text: `},
		{"twice", "cors_origins: [https://a.example, https://a.example]", "3: namespaces.kart.cors_origins[1]: duplicate origin, first on line 3: remove one"},
		{"all and one", `cors_origins: ["*", https://a.example]`, `3: namespaces.kart.cors_origins[0]: "*" beside other origins: remove either`},
		{"at the top", "sink: \"null:\"\ncors_origins: \"*\"", "4: cors_origins: unknown key: each namespace has its own: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c, err := loadConfig(t, nil, nil, "namespaces:\n  kart:\n    "+tt.file+"\n")
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.ReplaceAll(err.Error(), filepath.Dir(c.File)+string(filepath.Separator), "")
			if !strings.HasPrefix(got, "spillway.yaml:"+tt.want) || strings.Contains(got, "\n") {
				t.Errorf("got  %s\nwant spillway.yaml:%s", got, tt.want)
			}
		})
	}
}

func TestFallbacksAreAListOrAText(t *testing.T) {
	t.Parallel()
	for _, file := range []string{
		"fallback: \"file:///a null:\"\n", "fallback: [\"file:///a\", \"null:\"]\n", "namespaces:\n  default:\n    fallback:\n      - file:///a\n      - \"null:\"\n",
	} {
		c, err := loadConfig(t, nil, nil, file)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Namespaces["default"].Fallback; got != "file:///a null:" {
			t.Errorf("%s: got %q", file, got)
		}
	}
}
