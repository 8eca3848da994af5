package partition_test

import (
	"os"
	"strings"
	"testing"
)

func TestTheGlossaryExplainsTheTermsOfTheProject(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, glossary, ok := strings.Cut(string(doc), "\n// # Glossary\n")
	if !ok {
		t.Fatal("doc.go has no section Glossary")
	}
	for _, term := range []string{
		"namespace", "shard", "partition", "entry", "sequence", "capacity", "dead letter", "due", "batch", "linger", "range", "cut", "lease",
		"token", "claim", "commit", "release", "settle", "repair", "janitor", "lane", "zone", "headless list", "evicted", "expired", "lost",
		"reclaimed", "ledger", "residual",
	} {
		if !strings.Contains(glossary, "\n//\t"+term+"  ") {
			t.Errorf("the glossary does not explain %q", term)
		}
	}
}
