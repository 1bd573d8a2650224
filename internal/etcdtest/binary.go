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

// The etcdPackage is built from internal/tools/etcd, a module of its own: etcd's server needs many others.
const (
	modulePath  = "github.com/gatehousehq/gatehouse"
	etcdPackage = "go.etcd.io/etcd/server/v3"
	etcdVersion = "v3.7.3" // as in internal/tools/etcd/go.mod, which a test compares
)

// Binary is the path of the etcd program. It is built when it is not there yet, which takes a minute, and
// once for all processes of this user.
func Binary() (string, error) {
	folder, err := os.UserCacheDir()
	if err != nil {
		folder = os.TempDir() // no home
	}
	path := filepath.Join(folder, "gatehouse", "etcd-"+etcdVersion)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	// Packages are tested at the same time, and only one process builds.
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(path + ".lock")
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(path); err == nil {
		return path, nil // another process has built it meanwhile
	}
	if err := buildEtcd(path); err != nil {
		return "", fmt.Errorf("building etcd %s: %w", etcdVersion, err)
	}
	return path, nil
}

// lockFile waits until no other process holds the file. The kernel frees it when a process dies.
func lockFile(path string) (unlock func(), err error) {
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

// buildEtcd puts the program at the path once it is whole.
func buildEtcd(path string) error {
	folder, err := toolsFolder()
	if err != nil {
		return err
	}
	// Built under another name and then renamed: Binary takes a file that is there for a whole one.
	unfinished := path + ".unfinished"
	defer func() { _ = os.Remove(unfinished) }() // it is gone when all went well
	cmd := exec.Command("go", "build", "-ldflags=-s -w", "-o", unfinished, etcdPackage)
	cmd.Dir = folder
	// The program runs on this machine, also when the tests are built for another system.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOOS=", "GOARCH=")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build in %s: %w\n%s", folder, err, output)
	}
	return os.Rename(unfinished, path)
}

// toolsFolder is the folder of the module that names etcd. Tests run in folders of their own, so go is asked.
func toolsFolder() (string, error) {
	output, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", modulePath).Output()
	if err != nil {
		return "", fmt.Errorf("go list -m %s: %w", modulePath, err)
	}
	return filepath.Join(strings.TrimSpace(string(output)), "internal", "tools", "etcd"), nil
}
