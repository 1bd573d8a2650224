package main

import (
	"cmp"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/spf13/pflag"
)

// The exit statuses of commands that ask a server, beside 0, 1 for failures and 2 for wrong usage.
const (
	statusAway       = 69 // no server answers; EX_UNAVAILABLE of sysexits.h
	statusNotGranted = 75 // not now; EX_TEMPFAIL
	statusLost       = 79 // a hold was lost while the command ran; sysexits.h ends with 78
)

// A statusError ends the program with a status of its own. Without an error it says nothing.
type statusError struct {
	status int
	err    error
}

// Error implements error.
func (e *statusError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// Unwrap returns the error itself.
func (e *statusError) Unwrap() error { return e.err }

// serversVariable is the environment variable with the servers, for use instead of --server.
const serversVariable = "GATEHOUSE_SERVER"

// remoteOptions are the options of all commands that ask servers over HTTP.
type remoteOptions struct {
	tlsOptions
	servers   []string
	timeout   time.Duration
	tokenFile string
}

// addFlags adds the options.
func (o *remoteOptions) addFlags(f *pflag.FlagSet) {
	servers := []string{client.DefaultAddress}
	if listed := os.Getenv(serversVariable); listed != "" {
		servers = strings.Split(listed, ",")
	}
	f.StringSliceVar(&o.servers, "server", servers,
		"addresses of servers, tried in turn; also "+serversVariable)
	o.addTLSFlags(f)
	addTokenFile(f, &o.tokenFile)
	f.DurationVar(&o.timeout, "timeout", 5*time.Second, "longest time that a server may take to answer")
}

// newClient returns a client of the servers.
func (o *remoteOptions) newClient() (*client.Client, error) {
	secure, err := o.tlsConfig()
	if err != nil {
		return nil, err
	}
	token, err := readToken(o.tokenFile)
	if err != nil {
		return nil, usageError{err}
	}
	// It sends nothing: an error is about the addresses, which the user has given.
	c, err := client.New(client.Config{Addresses: o.servers, Timeout: o.timeout, TLS: secure, Token: token})
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// failure is an error of a server with the status that it has.
func failure(err error) error {
	switch gatehouse.CodeOf(err) {
	case gatehouse.CodeUnavailable:
		return &statusError{statusAway, explainTLS(err)}
	case gatehouse.CodeInvalid:
		return usageError{err}
	}
	return err
}

// ownerOptions say for whom a command is, to the people who look at holders and waiters.
type ownerOptions struct{ name, host, purpose string }

// addFlags adds the options. Without them it is the user of this machine.
func (o *ownerOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.name, "owner", "", "who to show as holder and waiter; your user name by default")
	f.StringVar(&o.host, "host", "", "where that runs; the name of this machine by default")
	f.StringVar(&o.purpose, "purpose", "", "what for; the name of the command by default")
}

// owner returns the owner; otherwise is the purpose where none is given.
func (o *ownerOptions) owner(otherwise string) *gatehouse.Owner {
	owner := localOwner()
	owner.Name, owner.Host = cmp.Or(o.name, owner.Name), cmp.Or(o.host, owner.Host)
	owner.Purpose = o.purpose
	// The name of a program may be no valid text, by which the whole command would be refused.
	if owner.Purpose == "" && gatehouse.TextFault(otherwise) == "" {
		owner.Purpose = otherwise
	}
	return owner
}

// localOwner is the user of this program and this machine, as far as they can be found out.
func localOwner() *gatehouse.Owner {
	owner := new(gatehouse.Owner)
	if u, err := user.Current(); err == nil {
		owner.Name = u.Username
	}
	if host, err := os.Hostname(); err == nil {
		owner.Host = host
	}
	return owner
}
