package access

import (
	"bytes"
	"sync"
)

// A Caller is who the requests of a connection are from. A client sends the same credentials with each
// request, so that these are looked at once. The connection counts for the user of its last request. The zero
// Caller has sent none.
type Caller struct {
	mu          sync.Mutex
	credentials []byte
	login       *Login
	counted     ConnectionCount
	ended       bool
}

// Identify returns who a request with these credentials is from. logIn reads them, if they are others than
// those of the request before.
func (c *Caller) Identify(
	users *Users, credentials []byte, logIn func() (*Login, error),
) (user *User, login *Login, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.login == nil || !bytes.Equal(c.credentials, credentials) {
		// They are copied, as the request's buffer is used again. The login goes before they are judged, so
		// that refused ones never stand for the user of the ones before.
		c.login, c.credentials = nil, append(c.credentials[:0], credentials...)
		login, err := logIn()
		if err != nil {
			return nil, nil, err
		}
		c.login = login
	}
	login = c.login
	// A file that changed since the last request is in force for this one.
	user = users.Current(login)
	if user == nil {
		c.login = nil // the user may be there again with the next policy
		return nil, nil, Missing(login)
	}
	// A request may outlive its connection, and nothing would end the counting again.
	if !c.ended {
		err = c.counted.Set(user)
	}
	return user, login, err
}

// End ends the counting of a connection that is closed. c may be nil.
func (c *Caller) End() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counted.End()
	c.ended = true
}

// A ConnectionCount counts a connection for one user at a time. The zero value counts it for none.
type ConnectionCount struct{ user *User }

// Set counts the connection for a user, and for no other any more. The error is one of a user who has too
// many.
func (c *ConnectionCount) Set(user *User) error {
	if c.user == user {
		return nil
	}
	// It counts for none if the new user has too many, and the next request tries again.
	c.End()
	err := user.openConnection()
	if err == nil {
		c.user = user
	}
	return err
}

// End counts it for no user any more.
func (c *ConnectionCount) End() {
	c.user.closeConnection()
	c.user = nil
}
