package redis_test

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/redis"
)

// swapAll makes many records at once, and returns what came of each.
func swapAll(t *testing.T, b *redis.Backend, many int) []error {
	t.Helper()
	if err := b.Ping(soonest(t)); err != nil {
		t.Fatal(err)
	}
	errs, _ := startAll(b, "name-", many, patience)
	return errs
}

// runs is how often a script was run.
func runs(t *testing.T, server *redistest.Server) (n int) {
	t.Helper()
	calls := regexp.MustCompile(`cmdstat_eval(?:sha)?:calls=(\d+)`)
	for _, found := range calls.FindAllStringSubmatch(server.CLI(t, "INFO", "commandstats"), -1) {
		some, _ := strconv.Atoi(found[1])
		n += some
	}
	return n
}

// Changes that come together are made by few runs of the script, and each has its own outcome.
func TestTogether(t *testing.T) {
	t.Parallel()
	const many, wrong = 1000, 500
	server := redistest.Start(t)
	b := open(t, "redis://"+server.Address)
	server.CLI(t, "RPUSH", fmt.Sprint("gatehouse:lock/name-", wrong), "x")
	for i, err := range swapAll(t, b, many) {
		if i == wrong && !errors.Is(err, cas.ErrRefused) || i != wrong && err != nil {
			t.Errorf("record %d: %v, want ErrRefused for %d alone", i, err, wrong)
		}
	}
	if n := runs(t, server); n > many/4 {
		t.Errorf("the script was run %d times for %d changes at once, want far fewer", n, many)
	}
	if n := server.Int(t, "DBSIZE"); n != many {
		t.Errorf("there are %d keys, want %d", n, many)
	}
}

// A key that a user may not touch is refused by itself, though Redis refuses all that is asked with it.
func TestForbiddenKey(t *testing.T) {
	t.Parallel()
	const many = 300
	server := redistest.Start(t)
	rights := []string{"ACL", "SETUSER", "gate", "on", ">password", "resetkeys", "~gatehouse:ping"}
	rights = append(rights, leastRights[2:]...)
	for digit := range 9 { // but for those that begin with a 9
		rights = append(rights, fmt.Sprintf("~gatehouse:lock/name-%d*", digit))
	}
	server.CLI(t, rights...)
	b := open(t, "redis://gate:password@"+server.Address)
	for i, err := range swapAll(t, b, many) {
		forbidden := fmt.Sprint(i)[0] == '9'
		if forbidden != errors.Is(err, cas.ErrRefused) || !forbidden && err != nil {
			t.Errorf("record %d: %v, want ErrRefused: %v", i, err, forbidden)
		}
	}
}

// A cluster that does not look like one, as behind some proxies, refuses keys of different slots in one run.
func TestHiddenCluster(t *testing.T) {
	t.Parallel()
	const many = 300
	node := redistest.StartNode(t, "--rename-command", "CLUSTER", "HIDDEN")
	node.CLI(t, "HIDDEN", "ADDSLOTSRANGE", "0", "16383")
	redistest.Until(t, func() bool { return node.CLI(t, "SET", "x", "x") == "OK" })
	b := open(t, "redis://"+node.Address)
	for range 2 {
		for i, err := range swapAll(t, b, many) {
			if err != nil {
				t.Errorf("record %d: %v, want it swapped", i, err)
			}
		}
		node.CLI(t, "FLUSHALL")
	}
}
