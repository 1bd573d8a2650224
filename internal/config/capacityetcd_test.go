//go:build linux || darwin

package config_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/config"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const key = "/gatehouse/capacity"

func TestAKeyOfEtcdIsFollowed(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	client := cluster.Client(t)
	l := watch(t, cluster.URL(key))
	l.fails("capacity configuration: etcd key /gatehouse/capacity does not exist")

	l.revision(l.applies, client, 1)
	l.revision(l.applies, client, 2)
	answer, err := client.Put(t.Context(), key, amounting(-1))
	must(t, err)
	l.fails(fmt.Sprintf("etcd:%s@%d:3:13: capacity is -1, want a number from 0 on",
		key, answer.Header.Revision))
	deleted, err := client.Delete(t.Context(), key)
	must(t, err)
	l.fails(fmt.Sprintf("etcd key %s was deleted at revision %d", key, deleted.Header.Revision))
	_, err = client.Put(t.Context(), key+"/below", amounting(7)) // is nothing to us
	must(t, err)
	version := l.revision(l.applies, client, 3)

	l.reload <- syscall.SIGHUP
	if again := l.applies(3); again != version {
		t.Errorf("the version = %q after the signal, want %q", again, version)
	}
	l.revision(l.applies, client, 4)
	templates, version, err := config.LoadCapacity(t.Context(), cluster.URL(key))
	if err != nil || templates[0].Capacity != 4 || !strings.HasPrefix(version, "etcd:"+key+"@") {
		t.Errorf("LoadCapacity = %v of %q, %v, want the capacity 4", templates, version, err)
	}
	if _, _, err := config.LoadCapacity(t.Context(), cluster.URL("/other")); err == nil ||
		err.Error() != "capacity configuration: etcd key /other does not exist" {
		t.Errorf("LoadCapacity(/other) = %v, want that it does not exist", err)
	}
}

// revision puts a configuration, and expects it with its revision as the version.
func (l *listener) revision(applies func(float64) string, client *clientv3.Client, amount float64) string {
	l.t.Helper()
	answer, err := client.Put(l.t.Context(), key, amounting(amount))
	must(l.t, err)
	version := applies(amount)
	if want := fmt.Sprintf("etcd:%s@%d", key, answer.Header.Revision); version != want {
		l.t.Errorf("the version = %q, want %q", version, want)
	}
	return version
}

// doorman's servers lost their configuration's changes, or their mastership, with etcd.
func TestEtcdCanDieAndComeBackAndForget(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	client := cluster.Client(t)
	l := watch(t, cluster.URL(key))
	l.fails("does not exist")
	version := l.revision(l.applies, client, 1)

	cluster.Kill(0)
	l.fails("etcd key /gatehouse/capacity: the connection is lost")
	l.fails("connection refused")
	cluster.Restart(t, 0)
	l.until(1, version)

	// While it is away somebody changes the key, and etcd forgets how it was before.
	cluster.Kill(0)
	l.fails("the connection is lost")
	cluster.Restart(t, 0)
	cluster.Healthy(t)
	persist(t, client, 2)
	version = persist(t, client, 3)
	answer, err := client.Get(t.Context(), key)
	must(t, err)
	_, err = client.Compact(t.Context(), answer.Header.Revision)
	must(t, err)
	l.until(3, version)
	l.revision(l.applies, client, 4)
}

// until expects templates of this version, maybe after others and failures. A put whose answer was lost may
// make it a later one, with the same templates.
func (l *listener) until(amount float64, version string) {
	l.t.Helper()
	for {
		n := l.next()
		if revisionOf(n.version) < revisionOf(version) {
			continue
		}
		if n.amount != amount {
			l.t.Fatalf("told %v of %q, want %v", n.amount, n.version, amount)
		}
		return
	}
}

func revisionOf(version string) int {
	_, revision, _ := strings.Cut(version, "@")
	n, _ := strconv.Atoi(revision) // 0 of a failure
	return n
}

// persist puts a configuration, also while a cluster looks for a leader, and returns its version.
func persist(t *testing.T, client *clientv3.Client, amount float64) string {
	t.Helper()
	for end := time.Now().Add(patience); ; {
		// A member whose leader died holds a question back for six seconds.
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		answer, err := client.Put(ctx, key, amounting(amount))
		cancel()
		if err == nil {
			return fmt.Sprintf("etcd:%s@%d", key, answer.Header.Revision)
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// One of three members is as good as all of them.
func TestAMemberOfEtcdThatDiesIsNotMissed(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 3)
	client := cluster.Client(t)
	_, err := client.Put(t.Context(), key, amounting(1))
	must(t, err)
	l := watch(t, cluster.URL(key))
	l.applies(1)
	for member, amount := range []float64{2, 3, 4} {
		cluster.Kill(member)
		l.until(amount, persist(t, client, amount))
		cluster.Restart(t, member)
		cluster.Healthy(t)
	}
}

func TestEtcdThatIsNotThereIsWaitedFor(t *testing.T) {
	t.Parallel()
	watch(t, "etcd://127.0.0.1:1/k").fails("connection refused")
	named := watch(t, "etcd://eve:secret@127.0.0.1:1/k") // a name needs etcd before the key is asked for
	if n := named.next(); n.err == nil || strings.Contains(n.err.Error(), "secret") {
		t.Errorf("told %v, want a failure without the password", n.err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := config.LoadCapacity(ctx, "etcd://127.0.0.1:1/k"); err == nil {
		t.Error("LoadCapacity = nil when nobody is there, want an error")
	}
}

// It takes connections and never answers.
func TestEtcdThatIsSilentIsToldToBe(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	_, err := cluster.Client(t).Put(t.Context(), key, amounting(1))
	must(t, err)
	cluster.Pause(0)
	l := watch(t, cluster.URL(key))
	l.fails("capacity configuration: etcd key /gatehouse/capacity: ")
	cluster.Resume(0)
	l.settles(1)
}
