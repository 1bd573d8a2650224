// Command dist builds what people install: archives of the program for each system, deb, rpm, an image, a chart and
// the files for Compose. The version is that of the program, everywhere. See docs/install.md.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// A release is what all that is built has in common.
type release struct {
	source  string    // the folder of the repository
	out     string    // the folder to write to
	version string    // without the v
	time    time.Time // of all files: that of the commit, so that one commit makes the same files each time
	manual  []file    // completion scripts and man pages, by their names
}

// A target is a system and a processor to build for.
type target struct{ system, processor string }

// targets are what the program is built for. Packages and images are for those of Linux.
var targets = []target{
	{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}, {"windows", "amd64"},
}

func main() {
	var r release
	var only string
	flag.StringVar(&r.source, "source", "../../..", "folder of the repository")
	flag.StringVar(&r.out, "out", "../../../dist", "folder to write to")
	flag.StringVar(&only, "only", "", "build for one target, such as linux/amd64; empty is all")
	flag.Parse()
	if err := r.build(only); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// build builds everything, or everything of one target.
func (r *release) build(only string) error {
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "gatehouse-dist-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	r.time = r.commitTime()
	if err := r.prepare(work); err != nil {
		return err
	}
	for _, t := range targets {
		if only != "" && only != t.system+"/"+t.processor {
			continue
		}
		binary := filepath.Join(work, t.system+"-"+t.processor)
		if err := r.compile(t, binary); err != nil {
			return err
		}
		if err := r.pack(t, binary); err != nil {
			return fmt.Errorf("%s/%s: %w", t.system, t.processor, err)
		}
	}
	// Chart and Compose hold for all targets, and are made once.
	if err := r.packChart(); err != nil {
		return err
	}
	return r.packCompose()
}

// commitTime is SOURCE_DATE_EPOCH, or when the commit was made. Without both it is the beginning of 1970.
func (r *release) commitTime() time.Time {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		out, _ := exec.Command("git", "-C", r.source, "log", "-1", "--format=%ct").Output()
		text = strings.TrimSpace(string(out))
	}
	seconds, _ := strconv.ParseInt(text, 10, 64)
	return time.Unix(seconds, 0).UTC()
}

// compile builds the program for a target: static, without names of folders and symbols. Its version is then the
// constant of the source and not one of the commit.
func (r *release) compile(t target, binary string) error {
	// No name of a folder and no state of the repository gets in, so that the same commit makes the same
	// bytes.
	cmd := exec.Command("go", "build", "-tags", "otel", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w",
		"-o", binary, "./cmd/gatehouse")
	cmd.Dir, cmd.Stderr = r.source, os.Stderr
	// GOFLAGS of the environment must not change what is released.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+t.system, "GOARCH="+t.processor, "GOFLAGS=")
	return cmd.Run()
}

// prepare builds the program for this machine, and asks it for its version, completion scripts and man pages.
func (r *release) prepare(work string) error {
	here := filepath.Join(work, "here")
	if err := r.compile(target{runtime.GOOS, runtime.GOARCH}, here); err != nil {
		return err
	}
	// The program is asked, so that version and pages are those of what is packed.
	told, err := exec.Command(here, "version", "--json").Output()
	if err != nil {
		return err
	}
	var about struct{ Version string }
	if err := json.Unmarshal(told, &about); err != nil {
		return err
	}
	r.version = strings.TrimPrefix(about.Version, "v")
	for _, c := range []struct{ shell, name string }{
		{"bash", "gatehouse.bash"}, {"zsh", "_gatehouse"}, {"fish", "gatehouse.fish"},
	} {
		script, err := exec.Command(here, "completion", c.shell).Output()
		if err != nil {
			return err
		}
		r.manual = append(r.manual, file{path: c.name, body: script})
	}
	// The pages as files of their own: their number changes with the commands.
	folder := filepath.Join(work, "man")
	if err := exec.Command(here, "man", folder).Run(); err != nil {
		return err
	}
	pages, err := readFolder(folder)
	r.manual = append(r.manual, pages...)
	return err
}

// pack writes all that contains the program of one target.
func (r *release) pack(t target, binary string) error {
	body, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	if err := r.packArchive(t, body); err != nil {
		return err
	}
	// All further forms are for Linux alone.
	if err := r.writeSBOM(t, binary); err != nil || t.system != "linux" {
		return err
	}
	files, err := r.systemFiles(body)
	if err != nil {
		return err
	}
	if err := r.packDeb(t, files); err != nil {
		return err
	}
	if err := r.packRPM(t, files); err != nil {
		return err
	}
	return r.packImage(t, body)
}

// write writes one result, and says so.
func (r *release) write(name string, body []byte) error {
	fmt.Printf("%9d  %s\n", len(body), name)
	return os.WriteFile(filepath.Join(r.out, name), body, 0o644)
}
