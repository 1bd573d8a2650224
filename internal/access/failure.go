package access

import (
	"log/slog"
	"net/netip"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/prometheus/client_golang/prometheus"
)

// reasonOf is why a request was refused, as the label reason spells it.
func reasonOf(err error) string {
	switch code := gatehouse.CodeOf(err); {
	case code == gatehouse.CodeQuota:
		return "quota"
	case code == gatehouse.CodeForbidden:
		return "forbidden"
	// These share a code. Each has a fixed sentence, which distinguishes it.
	case err.Error() == wrongToken, err.Error() == wrongCert:
		return "wrong"
	case err.Error() == plainToken:
		return "plain"
	}
	return "missing"
}

// IsRefusal reports whether an error refuses a request for its sender.
func IsRefusal(err error) bool {
	code := gatehouse.CodeOf(err)
	return code == gatehouse.CodeUnauthenticated || code == gatehouse.CodeForbidden ||
		code == gatehouse.CodeQuota
}

// failureCounts are the refusals of a server.
type failureCounts struct {
	total   *prometheus.CounterVec
	log     *slog.Logger
	observe refusalObserver
	line    peer.RareLine
}

// failureLogEvery is how often the log tells of refusals at most. A client in a loop must not fill it.
const failureLogEvery = time.Second

// A refusalObserver is told of each refusal of a known user: the user's name, what was asked for, as the gate
// knows it, and whether it was a quota that refused, and not the rights. The key has no name where a
// connection, a page of all names or any request was refused, and then perhaps no kind. It is called under
// locks, and must not block.
type refusalObserver func(user string, key gatehouse.Key, quota bool)

// Register has failures counted and logged. observe may be nil.
func (u *Users) Register(metrics prometheus.Registerer, log *slog.Logger, observe refusalObserver) {
	f := &u.failures
	f.log, f.observe = log, observe
	f.total = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gatehouse_auth_failures_total",
		Help: "Requests that were refused for who sent them, by protocol and reason.",
	}, []string{"protocol", "reason"})
	stale := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "gatehouse_users_stale",
		Help: "1 if a newer version of the file of users has a fault, so that an older one is in force.",
	}, func() float64 {
		if u.Stale() {
			return 1
		}
		return 0
	})
	// The counter is made in any case, as CountFailure counts only if there is one.
	if metrics != nil {
		metrics.MustRegister(f.total, stale)
	}
}

// CountRefused tells the observer of an error that refuses the user something about a name, as the user calls
// it, and returns the error. It tells of no other errors. A nil user is refused nothing.
func (u *User) CountRefused(key gatehouse.Key, err error) error {
	if err == nil || u == nil || u.users == nil || u.users.failures.observe == nil || !IsRefusal(err) {
		return err
	}
	// Resources of capacity and parts of the server have no prefix.
	if key.Name != "" && int(key.Kind) < gatehouse.Kinds {
		key.Name = u.Inside(key.Name)
	}
	u.users.failures.observe(u.Name, key, gatehouse.CodeOf(err) == gatehouse.CodeQuota)
	return err
}

// CountFailure counts a request that was refused with an error, and logs it unless another was logged a
// moment ago. Errors of other sorts do not count. user is nil if it is not known. No token is ever logged.
func (u *Users) CountFailure(protocol string, err error, address netip.Addr, user *User) {
	f := &u.failures
	if f.total == nil || !IsRefusal(err) {
		return
	}
	reason := reasonOf(err)
	f.total.WithLabelValues(protocol, reason).Inc()
	// The metric counts each of them; only the log leaves some out, and says how many.
	silent, ok := f.line.MayLog(u.now(), failureLogEvery)
	if !ok {
		return
	}
	name := ""
	if user != nil {
		name = user.Name
	}
	f.log.Warn("refused a request", "protocol", protocol, "reason", reason, "address", address.String(),
		"user", name, "more", silent)
}

// Audit logs what the user has managed or forced, and from where.
func (u *User) Audit(op, key string, address netip.Addr) {
	if u == nil || u.users == nil || u.users.failures.log == nil {
		return
	}
	u.users.failures.log.Info("audit", "user", u.Name, "op", op, "key", key, "address", address.String())
}
