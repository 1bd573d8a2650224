package zone

import (
	"archive/zip"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLoad(t *testing.T) {
	for _, name := range []string{"", "UTC", "Europe/Berlin", "America/Argentina/ComodRivadavia"} {
		one, err := Load(name)
		if err != nil {
			t.Fatalf("Load(%q) = %v", name, err)
		}
		if other, _ := Load(name); other != one {
			t.Errorf("Load(%q) read it twice", name)
		}
		if want := name; name != "" && one.String() != want {
			t.Errorf("Load(%q) = %s", name, one)
		}
	}
	if utc, _ := Load(""); utc != time.UTC {
		t.Errorf(`Load("") = %s, want UTC`, utc)
	}
}

func TestLoadUnknown(t *testing.T) {
	for _, name := range []string{
		"Local", "Europe/Nowhere", "../etc/passwd", "/etc/passwd", "Europe/./Berlin", "Europe//Berlin",
		"Europe/Berlin/", "Europe", ".", "\x00", strings.Repeat("x", maxName+1),
	} {
		if zone, err := Load(name); err == nil || len(err.Error()) > 350 {
			t.Errorf("Load(%q) = %v, %v, want a short error", name, zone, err)
		}
	}
}

// The list of names is that of the database that is part of the program.
func TestNames(t *testing.T) {
	// A program compiled with -trimpath does not know where Go is.
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(strings.TrimSpace(string(root)), "lib", "time", "zoneinfo.zip")
	database, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = database.Close() }()
	listed := "\n" + compiledIn
	for _, file := range database.File {
		if !strings.HasSuffix(file.Name, "/") && !strings.Contains(listed, "\n"+file.Name+"\n") {
			t.Errorf("names.txt lacks %s, want the files of %s", file.Name, name)
		}
	}
	for name := range strings.Lines(compiledIn) {
		if _, err := Load(strings.TrimSpace(name)); err != nil {
			t.Error(err)
		}
	}
}

// A name that is unknown is found out without asking the system, and nothing remembers it.
func TestUnknownCostsNothing(t *testing.T) {
	const rounds = 1000
	names := make([]string, rounds+1)
	for i := range names {
		names[i] = fmt.Sprintf("Europe/Nowhere%d", i)
	}
	i := 0
	allocated := testing.AllocsPerRun(rounds, func() {
		if _, err := Load(names[i]); err == nil {
			t.Errorf("Load(%q) found a zone", names[i])
		}
		i++
	})
	if allocated > 5 { // those of the error; package time makes some 30 to open files
		t.Errorf("Load of an unknown zone allocates %v times, want at most 5", allocated)
	}
}

func BenchmarkUnknown(b *testing.B) {
	for b.Loop() {
		_, _ = Load("Europe/Nowhere")
	}
}
