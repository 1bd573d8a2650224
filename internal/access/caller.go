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
	counted     *User
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
		c.login, c.credentials = nil, append(c.credentials[:0], credentials...)
		login, err := logIn()
		if err != nil {
			return nil, nil, err
		}
		c.login = login
	}
	login = c.login
	user = users.Current(login)
	if user == nil {
		c.login = nil // the user may be there again with the next policy
		return nil, nil, Missing(login)
	}
	return user, login, c.countFor(user)
}

// countFor counts the connection for a user, and for no other any more. The lock is held.
func (c *Caller) countFor(user *User) error {
	if c.counted == user || c.ended {
		return nil
	}
	c.counted.CloseConnection()
	c.counted = nil
	err := user.OpenConnection()
	if err == nil {
		c.counted = user
	}
	return err
}

// End ends the counting of a connection that is closed. c may be nil.
func (c *Caller) End() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counted.CloseConnection()
	c.counted, c.ended = nil, true
}
