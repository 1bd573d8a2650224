// Package certs reads certificates from files: those that the server shows, those that it asks clients for,
// and those that the program shows to other servers.
package certs

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse/internal/smallfile"
)

// The values of ServerFiles.ClientAuth.
const (
	AuthNone     = "none"     // clients are asked for no certificate
	AuthOptional = "optional" // one that is shown must be valid
	AuthRequire  = "require"  // each must show a valid one
)

// maxFile is the largest file that is read. Bundles of all public authorities have a quarter of it.
const maxFile = 1 << 20

// ServerFiles are where the certificate of a server is, and those of the authorities for its clients.
type ServerFiles struct {
	// Cert and Key are files in PEM form; Cert has the certificates of intermediate authorities behind that
	// of the server.
	Cert, Key string

	// ClientCA is a file with the authorities that sign certificates of clients; empty if there are none.
	ClientCA string

	// ClientAuth says whether clients need certificates; empty means AuthNone.
	ClientAuth string
}

// A Server has the certificates of a server, and reads them again when they change. Make one with Open.
type Server struct {
	files ServerFiles
	now   func() time.Time
	inUse atomic.Pointer[material]
	stale atomic.Bool
}

// A material is what was read from the files at one time.
type material struct {
	pair      tls.Certificate
	clientCAs *x509.CertPool
	sum       [sha256.Size]byte // of all files
}

// Open reads the certificates. The error names the file that cannot be used.
func Open(files ServerFiles, now func() time.Time) (*Server, error) {
	files.ClientAuth = cmp.Or(files.ClientAuth, AuthNone)
	s := &Server{files: files, now: now}
	// A server does not start with what it cannot use; only later the certificate before is there to stay.
	m, err := s.read()
	if err != nil {
		return nil, err
	}
	s.inUse.Store(m)
	return s, nil
}

// Expiry is when the certificate in use, or one of the authorities that come with it, is no longer valid.
func (s *Server) Expiry() time.Time { return expiry(&s.inUse.Load().pair) }

// Stale reports whether the files have changed and what they hold cannot be used.
func (s *Server) Stale() bool { return s.stale.Load() }

// Config returns how a listener speaks TLS, with the application protocols it knows. Each new connection gets
// the certificates that are in use then.
func (s *Server) Config(protocols ...string) *tls.Config {
	type made struct {
		of     *material
		config *tls.Config
	}
	var last atomic.Pointer[made]
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			// Connections that begin at the same time may each make it: all of them are the same.
			m := s.inUse.Load()
			known := last.Load()
			if known == nil || known.of != m {
				known = &made{m, s.configOf(m, protocols)}
				last.Store(known)
			}
			return known.config, nil
		},
	}
}

// configOf is the configuration of connections that begin while m is in use.
func (s *Server) configOf(m *material, protocols []string) *tls.Config {
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: protocols, Certificates: []tls.Certificate{m.pair},
	}
	if s.files.ClientAuth == AuthNone {
		// Clients that show nothing may resume their sessions.
		return config
	}
	// Here and not in Config, so that a new file of authorities holds for the next connection.
	config.ClientCAs = m.clientCAs
	config.ClientAuth = tls.VerifyClientCertIfGiven
	if s.files.ClientAuth == AuthRequire {
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	// A resumed session would not show its certificate again, which may be of an authority that is not in
	// use any more.
	config.SessionTicketsDisabled = true
	return config
}

// reload reads the files again. Without an error what they hold is in use; changed says whether it was not
// before.
func (s *Server) reload() (changed bool, err error) {
	m, err := s.read()
	s.stale.Store(err != nil)
	if err != nil {
		return false, err
	}
	// A folder also changes where files are only touched, or others lie in it: that is no news for the log.
	changed = m.sum != s.inUse.Load().sum
	if changed {
		s.inUse.Store(m)
	}
	return changed, nil
}

// read reads all files.
func (s *Server) read() (*material, error) {
	f := &s.files
	certText, err := readFile(f.Cert)
	if err != nil {
		return nil, err
	}
	keyText, err := readFile(f.Key)
	if err != nil {
		return nil, err
	}
	// Files that are replaced one after the other may be of two versions here. Then they do not fit, and
	// the second change has them read again.
	m := new(material)
	m.pair, err = tls.X509KeyPair(certText, keyText)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	// The one before may be valid for a while yet, and every client would refuse this one.
	if now, end := s.now(), expiry(&m.pair); now.After(end) {
		return nil, fmt.Errorf("certificate %s: it has expired at %s, want one that is valid",
			f.Cert, end.UTC().Format(time.RFC3339))
	}
	var caText []byte
	if f.ClientCA != "" {
		caText, err = readFile(f.ClientCA)
		if err != nil {
			return nil, err
		}
		m.clientCAs, err = parsePool(f.ClientCA, caText)
		if err != nil {
			return nil, err
		}
	}
	// The zero bytes keep a file that grows from looking like the next one that shrinks.
	m.sum = sha256.Sum256(bytes.Join([][]byte{certText, keyText, caText}, []byte{0}))
	return m, nil
}

// expiry is when the first of a chain's certificates ends.
func expiry(pair *tls.Certificate) (end time.Time) {
	for i, der := range pair.Certificate {
		leaf, err := x509.ParseCertificate(der)
		if err != nil {
			continue // X509KeyPair has parsed the first, and clients ignore others that are odd
		}
		if i == 0 || leaf.NotAfter.Before(end) {
			end = leaf.NotAfter
		}
	}
	return end
}

// parsePool returns the authorities in a text.
func parsePool(path string, text []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	// An empty pool would refuse every certificate, with an error that names no file.
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM form, want those of authorities", path)
	}
	return pool, nil
}

// readFile reads a file.
func readFile(path string) ([]byte, error) {
	return smallfile.Read(path, smallfile.Wanted{What: "a file in PEM form", Size: maxFile})
}

// SystemCA is the ClientFiles.CA that stands for the authorities of the system.
const SystemCA = "system"

// ClientFiles say how the program speaks TLS to other servers.
type ClientFiles struct {
	// CA is a file with the authorities that sign certificates of servers; SystemCA and empty mean those of
	// the system.
	CA string

	// Cert and Key are what is shown to servers that ask for it; both or none.
	Cert, Key string
}

// IsZero reports whether no file is named.
func (f ClientFiles) IsZero() bool { return f == ClientFiles{} }

// FilesOf returns the files that the parameters ca, cert and key of an address name.
func FilesOf(parameters url.Values) ClientFiles {
	return ClientFiles{CA: parameters.Get("ca"), Cert: parameters.Get("cert"), Key: parameters.Get("key")}
}

// CheckPair returns an error if one half of the pair is missing.
func (f ClientFiles) CheckPair() error {
	if (f.Cert == "") != (f.Key == "") {
		return errors.New("one of cert and key is given without the other, want both or none")
	}
	return nil
}

// Latest returns what Config would return at the time of each call, or did last when the files could be used.
// So it is for those who begin connections again and again.
func (f ClientFiles) Latest() (func() *tls.Config, error) {
	// The first reading is checked, as there is nothing before it to use instead.
	config, err := f.Config()
	if err != nil {
		return nil, err
	}
	var last atomic.Pointer[tls.Config]
	last.Store(config)
	return func() *tls.Config {
		// Files that are being replaced may be half there for a moment.
		if config, err := f.Config(); err == nil {
			last.Store(config)
		}
		return last.Load()
	}, nil
}

// Config reads the files. The pair is read again for each connection that asks for it, so that one which is
// renewed is used; the authorities are not: see Latest.
func (f ClientFiles) Config() (*tls.Config, error) {
	if err := f.CheckPair(); err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	// Without RootCAs crypto/tls takes the authorities of the system.
	if f.CA != "" && f.CA != SystemCA {
		text, err := readFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		config.RootCAs, err = parsePool(f.CA, text)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
	}
	if f.Cert == "" {
		return config, nil
	}
	// It is read here too, so that what does not fit is an error now, and not at the first connection.
	pair, err := f.readPair()
	if err != nil {
		return nil, err
	}
	var last atomic.Pointer[tls.Certificate]
	last.Store(pair)
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		// A pair that is being replaced may not fit for a moment. The old one is good until it expires.
		if pair, err := f.readPair(); err == nil {
			last.Store(pair)
		}
		return last.Load(), nil
	}
	return config, nil
}

// readPair reads the certificate and its key.
func (f ClientFiles) readPair() (*tls.Certificate, error) {
	cert, err := readFile(f.Cert)
	if err != nil {
		return nil, fmt.Errorf("cert: %w", err)
	}
	key, err := readFile(f.Key)
	if err != nil {
		return nil, fmt.Errorf("key: %w", err)
	}
	// It checks that the key is that of the certificate.
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("cert %s and key %s: %w", f.Cert, f.Key, err)
	}
	return &pair, nil
}
