package packaging_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/freeport"
)

// longVariable has the tests run that "make installed" runs: they need root, debootstrap and a mirror.
const longVariable = "TESTED_LONG"

// built builds what make dist does for this machine's processor on Linux, and returns the folder.
func built(t *testing.T) string {
	t.Helper()
	if os.Getenv(longVariable) == "" {
		t.Skip("it is slow; make installed runs it")
	}
	folder := t.TempDir()
	target := "linux/" + runtime.GOARCH
	cmd := exec.CommandContext(t.Context(), "go", "run", ".", "-out", folder, "-only", target)
	cmd.Dir = "../tools/dist"
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("dist: %v\n%s", err, text)
	}
	return folder
}

// only is the one file that a pattern names.
func only(t *testing.T, pattern string) string {
	t.Helper()
	names, _ := filepath.Glob(pattern)
	if len(names) != 1 {
		t.Fatalf("%s is %q, want one file", pattern, names)
	}
	return names[0]
}

// A tree is a system in a folder.
type tree string

// run runs a command in the tree, and returns what it prints.
func (r tree) run(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "chroot", append([]string{string(r)}, args...)...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, text)
	}
	return string(text)
}

// has is whether the tree has a file.
func (r tree) has(path string) bool {
	_, err := os.Lstat(filepath.Join(string(r), path))
	return err == nil
}

// The deb is installed in a bare Debian. The command of its unit runs there as the unit's user, and is asked.
// What it holds outlives a restart, and the package is removed.
func TestDebian(t *testing.T) {
	release := built(t)
	debian := tree(filepath.Join(t.TempDir(), "debian"))
	cmd := exec.CommandContext(t.Context(), "debootstrap", "--variant=minbase", "bookworm", string(debian))
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("debootstrap: %v\n%s", err, text)
	}
	deb, err := os.ReadFile(only(t, filepath.Join(release, "*.deb")))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(string(debian), "gatehouse.deb"), deb, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Log(debian.run(t, "dpkg", "--install", "/gatehouse.deb"))
	t.Log(debian.run(t, "gatehouse", "version"), debian.run(t, "getent", "passwd", "gatehouse"))
	for _, path := range []string{
		"/etc/gatehouse/gatehouse.yaml", "/usr/lib/systemd/system/gatehouse.service",
		"/usr/share/bash-completion/completions/gatehouse", "/usr/share/zsh/vendor-completions/_gatehouse",
		"/usr/share/fish/vendor_completions.d/gatehouse.fish", "/usr/share/man/man1/gatehouse-serve.1.gz",
	} {
		if !debian.has(path) {
			t.Errorf("the deb installs no %s", path)
		}
	}
	debian.run(t, "install", "-d", "-m", "700", "-o", "gatehouse", "-g", "gatehouse", "/var/lib/gatehouse")

	address, stop := debian.serve(t)
	const hold = "/v1/lock/deploy/acquire?maxwait=0&expires=600000&key="
	wantStatus(t, address+hold+"a", http.StatusOK)
	stop()
	address, stop = debian.serve(t)
	wantStatus(t, address+hold+"b", http.StatusRequestTimeout)
	stop()

	debian.run(t, "dpkg", "--remove", "gatehouse")
	if debian.has("/usr/bin/gatehouse") || !debian.has("/etc/gatehouse/gatehouse.yaml") {
		t.Error("after a removal there is the program, or no configuration file")
	}
	debian.run(t, "dpkg", "--purge", "gatehouse")
	if debian.has("/etc/gatehouse") {
		t.Error("after a purge there is a configuration")
	}
}

// serve starts the command of the unit in the tree, as its user, and returns where it listens once it says it
// is well. Other tests may have its ports: the environment names others, as the unit's file may.
func (r tree) serve(t *testing.T) (address string, stop func()) {
	t.Helper()
	unit := filepath.Join(string(r), "usr", "lib", "systemd", "system", "gatehouse.service")
	user := find(t, unit, "^User=(.+)$")
	command := strings.Fields(find(t, unit, "^ExecStart=(.+)$"))
	address, err := freeport.Next()
	if err != nil {
		t.Fatal(err)
	}
	server := exec.Command("chroot", append([]string{"--userspec=" + user, string(r)}, command...)...)
	server.Env = []string{
		"GATEHOUSE_HTTP=" + address, "GATEHOUSE_RESP=localhost:0", "GATEHOUSE_GRPC=localhost:0",
	}
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			_ = server.Process.Kill()
			_ = server.Wait()
		}
	})
	await.True(t, "gatehouse health is 0 in the tree", func() bool {
		return exec.Command("chroot", string(r), "gatehouse", "health", "--server", address).Run() == nil
	})
	return "http://" + address, func() {
		stopped = true
		_ = server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil {
			t.Errorf("after SIGTERM it ends with %v, want status 0:\n%s", err, &log)
		}
	}
}

func wantStatus(t *testing.T, url string, want int) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	if answer.StatusCode != want {
		t.Errorf("%s = %d, want %d", url, answer.StatusCode, want)
	}
}

// The image is unpacked as a container runtime does it, and its command runs on what is in it alone.
func TestImageRuns(t *testing.T) {
	release := built(t)
	parts := untar(t, readText(t, only(t, filepath.Join(release, "*-image-*.tar"))))
	var index, found struct {
		Manifests, Layers []struct{ Digest string }
		Config            struct{ Digest string }
	}
	var config struct {
		Config struct {
			User            string
			Entrypoint, Cmd []string
		}
	}
	part := func(digest string) string { return parts["blobs/"+strings.Replace(digest, ":", "/", 1)] }
	for _, err := range []error{
		json.Unmarshal([]byte(parts["index.json"]), &index),
		json.Unmarshal([]byte(part(index.Manifests[0].Digest)), &found),
		json.Unmarshal([]byte(part(found.Config.Digest)), &config),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	layer, err := gzip.NewReader(strings.NewReader(part(found.Layers[0].Digest)))
	if err != nil {
		t.Fatal(err)
	}
	inside, err := io.ReadAll(layer)
	if err != nil {
		t.Fatal(err)
	}
	image := tree(t.TempDir())
	if err := os.Chmod(string(image), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, body := range untar(t, string(inside)) {
		path := filepath.Join(string(image), name)
		err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(body), 0o755))
		if err != nil {
			t.Fatal(err)
		}
	}
	command := append(append([]string{"--userspec=" + config.Config.User, string(image)},
		config.Config.Entrypoint...), config.Config.Cmd...)
	text, err := exec.CommandContext(t.Context(), "chroot", append(command, "--check")...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", command, err, text)
	}
	t.Logf("%q: %s", command, text)
}

// untar reads the files of an archive.
func untar(t *testing.T, archive string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	for r := tar.NewReader(strings.NewReader(archive)); ; {
		head, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if head.Typeflag != tar.TypeReg {
			continue
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[head.Name] = string(body)
	}
}
