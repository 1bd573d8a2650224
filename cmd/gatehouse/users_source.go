package main

import (
	"context"
	"fmt"
	"io/fs"
	"runtime"
	"strings"

	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/etcdkey"
	"github.com/gatehousehq/gatehouse/internal/smallfile"
)

// This file is where users are kept: in a file, or under a key of etcd.

// A usersSource is where users are.
type usersSource struct {
	address string          // a file, or a key of etcd
	read    etcdkey.Reading // what etcd had when the server started
}

// isEtcdAddress reports whether a source is a key of etcd, and not a file.
func isEtcdAddress(source string) bool { return strings.HasPrefix(source, "etcd:") }

// loadPolicy reads users from a file or from a key of etcd.
func loadPolicy(ctx context.Context, source string) (*access.Policy, error) {
	if !isEtcdAddress(source) {
		return readUsersFile(source)
	}
	if err := etcdkey.Check(source); err != nil {
		return nil, err
	}
	return parseReading(etcdkey.Read(ctx, source))
}

// parseReading returns the users that were found at a key of etcd.
func parseReading(r etcdkey.Reading) (*access.Policy, error) {
	if r.Err != nil {
		return nil, fmt.Errorf("reading the users: %w", r.Err)
	}
	return access.ParsePolicy(r.Version, r.Text)
}

// maxUsersFile bounds a file of users, in bytes.
const maxUsersFile = 8 << 20

// readUsersFile reads a file of users. Its error has every fault with its line and column. A file that others
// may read, or that its group may write, is refused. Links are followed.
func readUsersFile(path string) (*access.Policy, error) {
	text, err := smallfile.Read(path, smallfile.Wanted{
		What: "a file of users", Size: maxUsersFile, Check: func(info fs.FileInfo) error {
			// Windows has no such bits.
			const others, groupWrites = 0o006, 0o020
			mode := info.Mode().Perm()
			if runtime.GOOS == "windows" || mode&(others|groupWrites) == 0 {
				return nil
			}
			return fmt.Errorf("%s has the mode %04o, want one that others cannot read and the group cannot "+
				"write, such as 0600 or 0640: chmod 600 %s", path, mode, path)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("reading the users: %w", err)
	}
	return access.ParsePolicy(path, text)
}
