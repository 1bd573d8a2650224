package access

import (
	"crypto/x509"
	"encoding/asn1"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A Policy is what one version of a file says. It does not change.
type Policy struct {
	// Path is the file's.
	Path string

	sum    tokenHash // of the text
	users  []*User
	byName map[string]*User
	tokens map[tokenHash]*User
	certs  map[string]*User
}

// Len returns how many users there are.
func (p *Policy) Len() int { return len(p.users) }

// User returns the user with a name, nil if there is none.
func (p *Policy) User(name string) *User { return p.byName[name] }

// Users are the users of a server: the policy in force, and what each user has at present. It is safe for use
// by many goroutines. A nil *Users means that rights are off.
type Users struct {
	policy atomic.Pointer[Policy]
	stale  atomic.Bool
	now    func() time.Time
	began  time.Time

	mu    sync.Mutex
	usage map[string]*usage // by the name of the user, and for anonymous ones with the address
	anon  map[string]*User  // of the policy in force, by address
	waits map[*Wait]struct{}

	sweepNext int64 // when addresses may be looked at again, by elapsed

	failures failureCounts

	gate       lookUpGate // what has begun is looked up by it; nil if it is not
	recounting atomic.Bool

	refusePlain bool
	proxies     []netip.Prefix
}

// Unknown returns the user of a request whose sender is not known: it may do nothing.
func Unknown() *User { return &User{Name: "unknown"} }

// NewUsers returns the users of a policy. now is the clock by which rates and holds are counted.
func NewUsers(p *Policy, now func() time.Time) *Users {
	u := &Users{now: now, began: now(), usage: make(map[string]*usage), waits: make(map[*Wait]struct{})}
	u.SetPolicy(p)
	return u
}

// SetPolicy puts a policy in force, as a whole: a request is judged by the old one or by the new one.
// Requests that wait, and may not any more, are refused. It reports false, and changes nothing, if the text
// of the file is that of the policy in force.
func (u *Users) SetPolicy(p *Policy) (changed bool) {
	u.mu.Lock()
	// Also where the text is the old one: the faulty version has been put back then.
	u.stale.Store(false)
	if before := u.policy.Load(); before != nil && before.sum == p.sum {
		u.mu.Unlock()
		return false
	}
	// Counts go by the name, so that a new file does not give users what they have a second time.
	for _, user := range p.users {
		user.usage, user.users = u.usageOf(user.Name, &user.most), u
	}
	// Those at addresses were made from the policy before, with its rights and quotas.
	u.anon = make(map[string]*User)
	u.policy.Store(p)
	u.forgetUsage(p)
	ended := make(map[*Wait]error)
	for w := range u.waits {
		if err := w.judge(u.lookUp(w.login)); err != nil {
			// Out of the set, so that the next policy does not refuse it again.
			delete(u.waits, w)
			ended[w] = err
		}
	}
	u.mu.Unlock()
	// Not under the lock: a canceled request may be answered at once, which ends its Wait.
	for w, err := range ended {
		w.refuse(err)
	}
	return true
}

// SetStale notes that a newer version of the file could not be used.
func (u *Users) SetStale() { u.stale.Store(true) }

// Stale reports whether a newer version of the file could not be used.
func (u *Users) Stale() bool { return u.stale.Load() }

// A Login is how a client has shown who it is. It outlives the policy under which it was made.
type Login struct {
	hash      tokenHash
	token     bool
	certified bool // it has shown a certificate, be it one without a name
	certs     []string
	address   netip.Addr
	current   atomic.Pointer[User]
}

// The words of refused logins. They are the same whatever was wrong, so that no client learns which tokens or
// users there are.
const (
	wrongToken = "the token is not valid on this server"
	noToken    = "this server asks who you are; send a token"
	plainToken = "a token came over a connection that others can read; use TLS, and make a new token"
	wrongCert  = "the certificate belongs to no user of this server"
)

// A From is where a request is from.
type From struct {
	Address netip.Addr
	// Certificate is the client's, verified; nil if it gave none.
	Certificate *x509.Certificate
	// Secure says that the connection has TLS.
	Secure bool
}

// RefusePlain has tokens refused that others could read on their way: those of connections without TLS that
// are neither from this machine nor from these proxies. It is called before the users are used.
func (u *Users) RefusePlain(proxies []netip.Prefix) { u.proxies, u.refusePlain = proxies, true }

// IsReadable reports whether others can read what comes from there, so that all tokens are refused.
func (u *Users) IsReadable(from From) bool {
	// Sockets for both versions give IPv4 addresses in the form of IPv6, which no prefix of IPv4 contains.
	address := from.Address.Unmap()
	return u.refusePlain && !from.Secure && address.IsValid() && !address.IsLoopback() &&
		!slices.ContainsFunc(u.proxies, func(p netip.Prefix) bool { return p.Contains(address) })
}

// LogIn returns the login of a client that gave a token, and the user it stands for. claimed is the user that
// the client says it is, "" if it does not say.
func (u *Users) LogIn(token []byte, claimed string, from From) (*Login, *User, error) {
	// Before the token is looked at, so that the answer says nothing about whether it is right.
	if u.IsReadable(from) {
		return nil, nil, gatehouse.Errorf(gatehouse.CodeUnauthenticated, plainToken)
	}
	// A file that was made with an empty variable has the hash of nothing.
	if len(token) == 0 || len(token) > maxToken {
		return nil, nil, gatehouse.Errorf(gatehouse.CodeUnauthenticated, wrongToken)
	}
	l := &Login{token: true, hash: hashToken(token)}
	user := u.Current(l)
	// A wrong name and a wrong token are refused alike, so that names cannot be tried out.
	if user == nil || claimed != "" && claimed != user.Name {
		return nil, nil, gatehouse.Errorf(gatehouse.CodeUnauthenticated, wrongToken)
	}
	return l, user, nil
}

// Admit returns the login of a client that gave no token: of the user of its certificate, or of the anonymous
// user at its address. user is nil if there is none; the client may log in later.
func (u *Users) Admit(from From) (l *Login, user *User) {
	l = &Login{address: from.Address.Unmap()}
	if from.Certificate != nil {
		l.certified, l.certs = true, certificateNames(from.Certificate)
	}
	return l, u.Current(l)
}

// MayListen returns an error unless a JARL listener may ask for its limiter now. Its guard is its own list of
// addresses; only a file that has a user of the listener's name says more.
func (u *Users) MayListen(key gatehouse.Key) error {
	user := u.policy.Load().byName[jarlPrefix+key.Name]
	// Without such a user a listener needs none, even where a file refuses all that is anonymous.
	if user == nil {
		return nil
	}
	if err := user.TakeRate(); err != nil {
		return err
	}
	return user.Require(key.Kind, key.Name, gatehouse.LevelUse, "a reservation of")
}

// Missing is the error of a client whose login stands for no user.
func Missing(l *Login) error {
	switch {
	case l != nil && l.token: // which was valid under an earlier policy
		return gatehouse.Errorf(gatehouse.CodeUnauthenticated, wrongToken)
	case l != nil && l.certified:
		return gatehouse.Errorf(gatehouse.CodeUnauthenticated, wrongCert)
	}
	return gatehouse.Errorf(gatehouse.CodeUnauthenticated, noToken)
}

// Current returns who a login stands for under the policy in force, nil if for none any more. It costs one
// atomic load while the policy is the same.
func (u *Users) Current(l *Login) *User {
	p := u.policy.Load()
	if user := l.current.Load(); user != nil && user.policy == p {
		return user
	}
	u.mu.Lock()
	user := u.lookUp(l)
	u.mu.Unlock()
	// A policy that came meanwhile makes what is stored here differ from the next load, so it is looked up
	// again.
	l.current.Store(user)
	return user
}

// lookUp finds the user of a login. The lock is held.
func (u *Users) lookUp(l *Login) *User {
	p := u.policy.Load()
	if l.token {
		return p.tokens[l.hash]
	}
	for _, name := range l.certs {
		if user := p.certs[name]; user != nil {
			return user
		}
	}
	// A client with a certificate of no user is not let in as one without a certificate.
	anonymous := p.byName[Anonymous]
	if anonymous == nil || l.certified {
		return nil
	}
	return u.anonymousAt(anonymous, l.address)
}

// certificateNames are the names by which a file can mean a certificate: its common name and those of its
// subject's alternatives. An authority may check one sort of them and not another, so that none may pass for
// one of another sort: a URI has a scheme, an email address an @, and a host neither.
func certificateNames(cert *x509.Certificate) []string {
	var names []string
	// Of several common names the library has the last, and other programs may take the first.
	if cert.Subject.CommonName != "" && countCommonNames(cert) == 1 {
		names = append(names, "CN="+cert.Subject.CommonName)
	}
	for _, uri := range cert.URIs {
		// Without a scheme it could read as a host.
		if uri.IsAbs() {
			names = append(names, uri.String())
		}
	}
	for _, host := range cert.DNSNames {
		// A host with one of these could read as a URI, an email address or CN=.
		if !strings.ContainsAny(host, "=:/@") {
			names = append(names, host)
		}
	}
	for _, address := range cert.EmailAddresses {
		if strings.Contains(address, "@") && !strings.ContainsAny(address, "=:/") {
			names = append(names, address)
		}
	}
	return names
}

// countCommonNames counts the common names of a certificate. Programs disagree which of several is meant.
func countCommonNames(cert *x509.Certificate) (n int) {
	for _, name := range cert.Subject.Names {
		if name.Type.Equal(asn1.ObjectIdentifier{2, 5, 4, 3}) {
			n++
		}
	}
	return n
}
