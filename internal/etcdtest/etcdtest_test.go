//go:build linux || darwin

package etcdtest

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestBinary also builds the program ahead of all others that need it.
func TestBinary(t *testing.T) {
	t.Parallel()
	path, err := Binary()
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("Binary() = %s, which is %v, %v, want a program", path, info, err)
	}
	folder, err := toolsFolder()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	if err != nil || !strings.Contains(string(text), etcdPackage+" "+etcdVersion+" ") {
		t.Errorf("internal/tools/etcd/go.mod reads\n%s\n%v, want %s %s in it", text, err, etcdPackage,
			etcdVersion)
	}
}

// put writes a.
func put(t *testing.T, client *clientv3.Client, value string, timeout time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	_, err := client.Put(ctx, "a", value)
	return err
}

// read is what a is.
func read(t *testing.T, client *clientv3.Client) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	response, err := client.Get(ctx, "a")
	if err != nil || len(response.Kvs) != 1 {
		t.Fatalf("get a = %v, %v, want one key", response, err)
	}
	return string(response.Kvs[0].Value)
}

func TestOneMember(t *testing.T) {
	t.Parallel()
	c := Start(t, 1)
	client := c.Client(t)
	if err := put(t, client, "1", patience); err != nil {
		t.Fatal(err)
	}

	c.Pause(0)
	if err := put(t, client, "2", 100*time.Millisecond); err == nil {
		t.Error("a paused etcd answered, want it not to")
	}
	c.Resume(0)
	c.Healthy(t)
	paused := read(t, client)
	if paused != "1" && paused != "2" {
		t.Errorf("after the pause a = %q, want 1, or 2 if that was on its way", paused)
	}

	c.Kill(0)
	if err := put(t, client, "3", 100*time.Millisecond); err == nil {
		t.Error("a killed etcd answered, want it not to")
	}
	c.Restart(t, 0)
	c.Healthy(t)
	if got := read(t, client); got != paused {
		t.Errorf("after the restart a = %q, want %q: its data stay", got, paused)
	}
	c.Stop(0)
}

func TestThreeMembers(t *testing.T) {
	t.Parallel()
	c := Start(t, 3)
	client := c.Client(t)
	leader := c.Leader(t)
	next := (leader + 1) % 3
	c.MoveLeader(t, next)
	// on a busy machine they elect by themselves
	for end := time.Now().Add(patience); c.Leader(t) != next; {
		if time.Now().After(end) {
			t.Fatalf("after MoveLeader(%d) the leader is %d", next, c.Leader(t))
		}
		c.MoveLeader(t, next)
	}
	c.Kill(next)
	if got := c.Leader(t); got == next {
		t.Errorf("the leader is %d, which was killed", got)
	}
	c.Healthy(t)
	if err := put(t, client, "1", patience); err != nil {
		t.Errorf("with 2 of 3 members put = %v, want none", err)
	}
	c.Stop(c.Leader(t))
	if err := put(t, client, "2", 200*time.Millisecond); err == nil {
		t.Error("with 1 of 3 members put works, want it not to")
	}
	for n := range 3 {
		if !c.members[n].isRunning() {
			c.Restart(t, n)
		}
	}
	c.Healthy(t)
	if got := read(t, client); got != "1" && got != "2" {
		t.Errorf("a = %q, want 1, or 2 if that was on its way", got)
	}
}
