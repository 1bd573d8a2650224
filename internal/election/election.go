// Package election says who of several processes is master. They agree by one key in etcd.
//
// The master's key is attached to a lease. The master renews the lease; when it cannot, it stops being
// master by its own clock before etcd lets the lease end and another one takes the key.
package election

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/gatehousehq/gatehouse/internal/etcd"
)

const (
	defaultTTL = 10 * time.Second
	// minTTL is the smallest that etcd counts; it may give more than it is asked for. maxTTL is the longest
	// that anybody should wait for a new master.
	minTTL, maxTTL = time.Second, time.Hour
	// renewalsPerTTL is how many of them fall into the time of a lease: one may fail, and there is time for two
	// more attempts.
	renewalsPerTTL = 3
	// renewAttempts is how many attempts to renew fit into that time. None may take longer.
	renewAttempts = 5
	// marginFraction of the time of a lease is left unused at its end. That is for clocks that do not run
	// equally fast, and for whoever has just looked at Until and now acts.
	marginFraction = 10

	// maxCall is how long etcd may take for one answer, also while it elects a leader of its own. The next
	// call goes to another member. A renewal may have less.
	maxCall = 2 * time.Second
	// maxHeartbeat is the longest that a watch may be silent before it is asked for a sign of life, and minBeat
	// the shortest, for the shortest leases. So long it may take for its answer, too.
	minHeartbeat, maxHeartbeat = time.Second, 5 * time.Second
	// maxPause is the longest pause after a failure.
	maxPause = 2 * time.Second
)

// MaxCandidate is the longest name of a candidate in bytes, far above a host name with a port.
const MaxCandidate = 512

// A MasterStatus says who is master, as far as is known.
type MasterStatus struct {
	// Leading says that this candidate is master, until Until and no longer: who decides as master compares
	// Until with its clock each time. Until has a monotonic reading and is zero when this is no master.
	Leading bool
	Until   time.Time

	// Leader is the candidate that is master, maybe this one. It is empty when nobody is known to be.
	Leader string

	// Err is why etcd could not be asked, nil when all is well. It goes away by itself.
	Err error
}

// An Election is a key in etcd, which belongs to one of those who want it.
type Election struct {
	client *clientv3.Client
	leases pb.LeaseClient
	key    string
	ttl    time.Duration
}

// Open reads an address such as
//
//	etcd://host1:2379,host2:2379/path/of/key?ttl=10s
//
// ttl is how long a master that died stays master, in whole seconds from 1s to 1h; 10s when it is left out.
// All candidates should have the same. Etcd need not be there yet, unless the address has a user. The
// caller closes the election after its Run.
func Open(address string) (*Election, error) { return openWith(address) }

// Check says what is wrong with an address, nil when Open would take it. It asks nobody.
func Check(address string) error {
	_, err := parseAddress(address)
	return err
}

// parseAddress returns the only thing that an address has besides those of all etcd addresses.
func parseAddress(address string) (ttl time.Duration, err error) {
	_, query, err := etcd.Check(address)
	if err != nil {
		return 0, fmt.Errorf("election: %w", err)
	}
	ttl, err = parseTTL(query)
	if err != nil {
		return 0, fmt.Errorf("election: etcd address: %w", err)
	}
	return ttl, nil
}

func openWith(address string, options ...grpc.DialOption) (*Election, error) {
	ttl, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	client, key, _, err := etcd.Open(address, options...)
	if err != nil {
		return nil, fmt.Errorf("election: %w", err)
	}
	leases := pb.NewLeaseClient(client.ActiveConnection())
	return &Election{client: client, leases: leases, key: key, ttl: ttl}, nil
}

// parseTTL looks at the only parameter an address has.
func parseTTL(query url.Values) (time.Duration, error) {
	for name := range query {
		if name != "ttl" {
			return 0, fmt.Errorf("parameter %q is unknown, want ttl", name)
		}
	}
	if len(query["ttl"]) == 0 {
		return defaultTTL, nil
	}
	text := query["ttl"][0]
	ttl, err := time.ParseDuration(text)
	if err != nil || len(query["ttl"]) > 1 || ttl < minTTL || ttl > maxTTL || ttl%time.Second != 0 {
		return 0, fmt.Errorf("ttl is %q, want whole seconds from 1s to 1h", query["ttl"])
	}
	return ttl, nil
}

// Name is the same for all candidates: the members of etcd and the key, without user and password.
func (e *Election) Name() string {
	hosts := slices.Clone(e.client.Endpoints())
	slices.Sort(hosts)
	return strings.Join(hosts, ",") + e.key
}

// Close frees what Open took. An election that runs must have ended.
func (e *Election) Close() error { return e.client.Close() }

// Run takes part under the name candidate, for which others are told to ask, until ctx ends. It calls tell
// at each change, and at each renewal of its own mastership; never two at a time. Tell should return soon:
// when it returns from a call with Leading false, this candidate must not act as master any more.
//
// At the end the mastership is given back, so that the next master need not wait for the lease to end.
// An error says that this did not work, or that candidate is no name. What goes wrong with etcd
// meanwhile is told by Status.Err, and tried again.
func (e *Election) Run(ctx context.Context, candidate string, tell func(MasterStatus)) error {
	if candidate == "" || len(candidate) > MaxCandidate {
		return fmt.Errorf("election: candidate of %d bytes, want 1 to %d", len(candidate), MaxCandidate)
	}
	n := newNotifier(tell)
	defer n.close()
	pause := e.newBackoff()
	for {
		err := e.runTerm(ctx, candidate, n)
		switch {
		case ctx.Err() != nil && errors.Is(err, errNotGivenBack):
			return err
		case ctx.Err() != nil:
			return nil
		case err != nil:
			n.setError(err)
			pause.waitPause(ctx)
		default:
			pause = e.newBackoff()
		}
	}
}

// errNotGivenBack says that the next master has to wait until a lease ends by itself.
var errNotGivenBack = errors.New("election: the key was not given back")

// runTerm is one term: of this candidate, or of another until it ends.
func (e *Election) runTerm(ctx context.Context, candidate string, n *statusNotifier) error {
	seen, err := e.readKey(ctx)
	if err != nil {
		return err
	}
	if seen.leader == candidate {
		seen.leader = "" // its key is of an earlier life, of which nobody answers any more
	}
	n.setLeader(seen.leader, e.ttl)
	if seen.exists() {
		return e.awaitChange(ctx, seen, func() { n.setLeader(seen.leader, e.ttl) })
	}
	won, err := e.campaign(ctx, candidate)
	if won == nil {
		return err
	}
	e.holdKey(ctx, *won, candidate, n)
	n.endTerm() // before anybody else can win
	return e.revokeLease(ctx, won.lease)
}
