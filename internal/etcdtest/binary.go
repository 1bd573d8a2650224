//go:build linux || darwin

package etcdtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// The program is built from internal/tools/etcd, a module of its own: etcd's server needs many others.
const (
	ours    = "github.com/gatehousehq/gatehouse"
	program = "go.etcd.io/etcd/server/v3"
	version = "v3.7.3" // as in internal/tools/etcd/go.mod, which a test compares
)

// Binary is the path of the etcd program. It is built when it is not there yet, which takes a minute, and
// once for all processes of this user.
func Binary() (string, error) {
	folder, err := os.UserCacheDir()
	if err != nil {
		folder = os.TempDir() // no home
	}
	path := filepath.Join(folder, "gatehouse", "etcd-"+version)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil // somebody else has built it meanwhile
	}
	if err := build(path); err != nil {
		return "", fmt.Errorf("building etcd %s: %w", version, err)
	}
	return path, nil
}

// lock waits until no other process holds the file. The kernel frees it when a process dies.
func lock(path string) (unlock func(), err error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return func() { _ = file.Close() }, nil
}

// build puts the program at the path once it is whole.
func build(path string) error {
	folder, err := tools()
	if err != nil {
		return err
	}
	unfinished := path + ".unfinished"
	defer func() { _ = os.Remove(unfinished) }() // it is gone when all went well
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", unfinished, program)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS=", "GOARCH=")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build in %s: %w\n%s", folder, err, output)
	}
	return os.Rename(unfinished, path)
}

// tools is the folder of the module that names etcd. Tests run in folders of their own, so go is asked.
func tools() (string, error) {
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", ours).Output()
	if err != nil {
		return "", fmt.Errorf("go list -m %s: %w", ours, err)
	}
	return filepath.Join(strings.TrimSpace(string(output)), "internal", "tools", "etcd"), nil
}
