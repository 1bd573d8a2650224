package access

import (
	"crypto/x509"
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

	users  []*User
	byName map[string]*User
	tokens map[Hash]*User
	certs  map[string]*User
}

// User returns the user with a name, nil if there is none.
func (p *Policy) User(name string) *User { return p.byName[name] }

// Users are the users of a server: the policy in force, and what each user has at present. It is safe for use
// by many goroutines. A nil *Users means that rights are off.
type Users struct {
	policy atomic.Pointer[Policy]
	stale  atomic.Bool
	now    func() time.Time

	mu    sync.Mutex
	usage map[string]*usage // by the name of the user, and for anonymous ones with the address
	anon  map[string]*User  // of the policy in force, by address
	waits map[*Wait]struct{}

	sweepNext int64 // when addresses may be looked at again; Unix ns

	failures failureCounts
}

// NewUsers returns the users of a policy. now is the clock by which rates and holds are counted.
func NewUsers(p *Policy, now func() time.Time) *Users {
	u := &Users{now: now, usage: make(map[string]*usage), waits: make(map[*Wait]struct{})}
	u.SetPolicy(p)
	return u
}

// SetPolicy puts a policy in force, as a whole: a request is judged by the old one or by the new one.
// Requests that wait, and may not any more, are refused.
func (u *Users) SetPolicy(p *Policy) {
	u.mu.Lock()
	for _, user := range p.users {
		user.usage = u.usageOf(user.Name, &user.most)
	}
	u.anon = make(map[string]*User)
	u.policy.Store(p)
	u.stale.Store(false)
	var ended []*Wait
	for w := range u.waits {
		user := u.lookUp(w.login)
		// The limits that it states were judged when it came; they are in force by now.
		if user == nil || !user.May(w.key.Kind, w.key.Name, w.level) {
			delete(u.waits, w)
			ended = append(ended, w)
		}
	}
	u.mu.Unlock()
	// Not under the lock: a canceled request may be answered at once, which ends its Wait.
	for _, w := range ended {
		w.refuse(w.user.refusal("waiting for "+w.key.String(), w.level))
	}
}

// SetStale notes that a newer version of the file could not be used.
func (u *Users) SetStale() { u.stale.Store(true) }

// Stale reports whether a newer version of the file could not be used.
func (u *Users) Stale() bool { return u.stale.Load() }

// A Login is how a client has shown who it is. It outlives the policy under which it was made.
type Login struct {
	hash    Hash
	token   bool
	certs   []string
	address netip.Addr
	name    string // of a user who needs to show nothing: a JARL listener
	current atomic.Pointer[User]
}

// The words of refused logins. They are the same whatever was wrong, so that nobody learns which tokens or
// users there are.
const (
	wrongToken = "the token is not valid on this server"
	noToken    = "this server asks who you are; send a token"
	wrongCert  = "the certificate belongs to no user of this server"
)

// LogIn returns the login of a client that gave a token, and the user it stands for. claimed is the user that
// the client says it is, "" if it does not say.
func (u *Users) LogIn(token []byte, claimed string) (*Login, *User, error) {
	l := &Login{token: true}
	if len(token) <= maxToken {
		l.hash = hashToken(token)
	}
	user := u.Current(l)
	if user == nil || claimed != "" && claimed != user.Name {
		return nil, nil, gatehouse.Errorf(gatehouse.CodeUnauthenticated, wrongToken)
	}
	return l, user, nil
}

// Admit returns the login of a client that gave no token: of the user of its certificate, or of the anonymous
// user at its address. user is nil if there is none; the client may log in later.
func (u *Users) Admit(cert *x509.Certificate, address netip.Addr) (l *Login, user *User) {
	l = &Login{address: address.Unmap()}
	if cert != nil {
		l.certs = certificateNames(cert)
	}
	return l, u.Current(l)
}

// LogInJARL returns the login of the listener with a name. Its guard is its own list of addresses.
func (u *Users) LogInJARL(name string) *Login { return &Login{name: jarlPrefix + name} }

// Missing is the error of a client that is known by nothing.
func Missing(l *Login) error {
	if l != nil && len(l.certs) > 0 {
		return gatehouse.Errorf(gatehouse.CodeUnauthenticated, wrongCert)
	}
	return gatehouse.Errorf(gatehouse.CodeUnauthenticated, noToken)
}

// Current returns who a login stands for under the policy in force, nil if nobody any more. It costs one
// atomic load while the policy is the same.
func (u *Users) Current(l *Login) *User {
	p := u.policy.Load()
	if user := l.current.Load(); user != nil && user.policy == p {
		return user
	}
	u.mu.Lock()
	user := u.lookUp(l)
	u.mu.Unlock()
	l.current.Store(user)
	return user
}

// lookUp finds the user of a login. The lock is held.
func (u *Users) lookUp(l *Login) *User {
	p := u.policy.Load()
	switch {
	case l.name != "":
		return p.byName[l.name]
	case l.token:
		return p.tokens[l.hash]
	}
	for _, name := range l.certs {
		if user := p.certs[name]; user != nil {
			return user
		}
	}
	// A certificate that nobody has is no reason to let its owner in as somebody without any.
	anonymous := p.byName[Anonymous]
	if anonymous == nil || len(l.certs) > 0 {
		return nil
	}
	return u.anonymousAt(anonymous, l.address)
}

// certificateNames are the names by which a file can mean a certificate: its common name and those of its
// subject's alternatives.
func certificateNames(cert *x509.Certificate) []string {
	var names []string
	if cert.Subject.CommonName != "" {
		names = append(names, "CN="+cert.Subject.CommonName)
	}
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	// Such a name must not pass for one of another sort.
	for _, name := range slices.Concat(cert.DNSNames, cert.EmailAddresses) {
		if !strings.ContainsAny(name, "=:/") {
			names = append(names, name)
		}
	}
	return names
}
