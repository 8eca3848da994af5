//go:build clients

// Package csharp holds the C# client. Its tests need Mono: make test-clients.
package csharp

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/ingest/client/clienttest"
)

// compile makes a program of the client and another source, and returns its path.
func compile(t *testing.T, source string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program.exe")
	out, err := exec.Command("mcs", "-langversion:7", "-warnaserror", "-r:System.Net.Http", "-out:"+program, "Spillway.cs", source).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

func TestConformanceOnMono(t *testing.T) {
	t.Parallel()
	clienttest.Run(t, clienttest.Process("mono", compile(t, "Driver.cs")))
}

func TestConformanceOfQueuesOnMono(t *testing.T) {
	t.Parallel()
	clienttest.RunQueues(t, clienttest.Program("mono", compile(t, "Driver.cs")))
}

func TestTheExamplesOfTheReadmeRunAsPrinted(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```csharp\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	wants := []struct{ url, printed string }{
		{clienttest.NewServer(t).URL, "True 2\n"},
		{clienttest.NewQueues().Serve(t), "True True\nada@example 1\nsent to ada@example\n{\"sent\":true}\n"},
	}
	if len(blocks) != len(wants) {
		t.Fatalf("the README has %d examples", len(blocks))
	}
	for i, want := range wants {
		source := filepath.Join(t.TempDir(), "Example.cs")
		if err := os.WriteFile(source, []byte(strings.ReplaceAll(blocks[i][1], "http://127.0.0.1:8080", want.url)), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("mono", compile(t, source)).CombinedOutput(); err != nil || string(out) != want.printed {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// There is no dotnet where this runs: the project is read as XML, and its sources are what compile takes.
func TestTheProjectIsComplete(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("Spillway.csproj")
	if err != nil {
		t.Fatal(err)
	}
	var project struct {
		Sdk           string `xml:"Sdk,attr"`
		PropertyGroup struct {
			TargetFramework, LangVersion, PackageId, Version, PackageLicenseExpression, PackageReadmeFile string
		}
		ItemGroup struct {
			Compile []struct {
				Include string `xml:"Include,attr"`
			}
		}
	}
	if err := xml.Unmarshal(text, &project); err != nil {
		t.Fatal(err)
	}
	p := project.PropertyGroup
	if project.Sdk != "Microsoft.NET.Sdk" || p.TargetFramework != "netstandard2.0" || p.LangVersion != "7.0" || p.PackageId != "Spillway" ||
		p.Version != "0.1.0" || p.PackageLicenseExpression != "Apache-2.0" || p.PackageReadmeFile != "README.md" {
		t.Errorf("got %+v", project)
	}
	if c := project.ItemGroup.Compile; len(c) != 1 || c[0].Include != "Spillway.cs" {
		t.Errorf("it compiles %v", c)
	}
}
