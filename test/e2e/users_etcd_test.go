package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// usersKey is the key of etcd that has the users.
const usersKey = "/gatehouse/users"

// A usersInEtcd is a server whose users are in etcd, and a connection to it of the user ci.
type usersInEtcd struct {
	*server
	t      *testing.T
	client *clientv3.Client
	redis  *redisConn
}

// put writes users.
func (u *usersInEtcd) put(text string) {
	u.t.Helper()
	if _, err := u.client.Put(u.t.Context(), usersKey, text); err != nil {
		u.t.Fatal(err)
	}
}

// putLevel gives ci a level on locks.
func (u *usersInEtcd) putLevel(level string) {
	u.t.Helper()
	u.put(fmt.Sprintf("users: [{name: ci, tokens: [%q], may: [{on: 'lock/*', do: %s}, "+
		"{on: server/metrics, do: read}]}]", hashOf(canary+"ci"), level))
}

// may reports whether ci may send a command.
func (u *usersInEtcd) may(command string) bool {
	u.redis.send(command)
	return !strings.HasPrefix(u.redis.answer(), "-NOPERM")
}

func (u *usersInEtcd) mayUse() bool { return u.may("GH.ACQUIRE lock/a KEY k MAXWAIT 0") }

// isStale reports whether what etcd has is not in force.
func (u *usersInEtcd) isStale() bool {
	_, text := u.ask(u.t, asked{method: "GET", path: "/metrics", token: canary + "ci"})
	return strings.Contains(text, "gatehouse_users_stale 1\n")
}

// TestUsersInEtcd keeps the users under a key of etcd: a change is in force at once, also on connections that
// are open; a fault, a key that is deleted and an etcd that is away change nothing, and are told.
func TestUsersInEtcd(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	source := etcd.URL(usersKey)
	u := &usersInEtcd{t: t, client: etcd.Client(t)}
	wantNoStart := func(why string) {
		t.Helper()
		status, _, said := gatehouse(t, nil, "serve", "--http", "localhost:0", "--users", source)
		if status == 0 || !strings.Contains(said, "reading the users: etcd key "+usersKey+why) {
			t.Errorf("a server without users ended with %d and said %q, want %q", status, said, why)
		}
	}
	wantNoStart(" does not exist")
	u.putLevel("read")
	u.server = start(t, "--users", source)
	u.redis = dialRedis(t, u.redisAddress(t))
	u.redis.want("AUTH "+canary+"ci", "OK")
	if u.mayUse() || u.isStale() {
		t.Error("ci took a lock, or its right to read is stale")
	}
	u.putLevel("use")
	until(t, "the right to use", u.mayUse)

	u.put("users: [{name: ci, may: [{on: 'lock/*', do: everything}]}]")
	awaitLine(t, u.journal, `etcd:`+usersKey+`@`)
	until(t, "that a fault is told", u.isStale)
	if !u.mayUse() {
		t.Error("a fault took the right away")
	}
	u.putLevel("use")
	until(t, "that it is mended", func() bool { return !u.isStale() })
	if _, err := u.client.Delete(t.Context(), usersKey); err != nil {
		t.Fatal(err)
	}
	until(t, "that a deletion is told", u.isStale)
	u.putLevel("manage")
	until(t, "the right to manage", func() bool { return u.may("GH.DELETE lock/a") })
	status, text, said := gatehouse(t, nil, "token", "can", "ci", "delete", "lock/a", "--users", source)
	if status != 0 || !strings.HasPrefix(text, "yes: etcd:"+usersKey+"@") {
		t.Errorf("token can = %d %q %q, want yes and where it says so", status, text, said)
	}

	etcd.Stop(0)
	until(t, "that etcd is away is told", u.isStale)
	if !u.mayUse() {
		t.Error("etcd took the right away when it went")
	}
	wantNoStart(": ")
	etcd.Restart(t, 0)
	u.putLevel("read")
	until(t, "the right to read alone", func() bool { return !u.mayUse() })
}

// TestUsersSources has addresses that can never be right.
func TestUsersSources(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"etcd:/users":                `--users is no source: etcd address: scheme is "", want etcd://`,
		"etcd://ada:pw@h/u?x=1":      `--users is no source: etcd address: parameter "x" is unknown`,
		"etcd://h":                   "--users is no source: etcd address: no key",
		filepath.Join("none", "u.x"): "reading the users: stat none/u.x: no such file",
	} {
		status, _, said := gatehouse(t, nil, "serve", "--check", "--users", source)
		if status == 0 || !strings.Contains(said, want) || strings.Contains(said, "pw") {
			t.Errorf("--users %s ended with %d and said %q, want %q", source, status, said, want)
		}
	}
}
