// Package certstest is a certificate authority for tests.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/certs"
)

// An Authority signs certificates. Make one with New.
type Authority struct {
	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	dir  string

	// File has its certificate.
	File string
}

// New returns a new authority, whose files end with the test.
func New(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{tb: tb, key: newKey(tb), dir: tb.TempDir()}
	template := newTemplate(tb, "Test Authority", lasts)
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	must(tb, err)
	a.cert, err = x509.ParseCertificate(der)
	must(tb, err)
	a.File = filepath.Join(a.dir, "ca.pem")
	must(tb, os.WriteFile(a.File, encode("CERTIFICATE", der), 0o600))
	return a
}

// CopyTo has a file hold the authority's certificate alone.
func (a *Authority) CopyTo(path string) {
	a.tb.Helper()
	text, err := os.ReadFile(a.File)
	must(a.tb, err)
	must(a.tb, os.WriteFile(path, text, 0o600))
}

// lasts is how long certificates are valid.
const lasts = 24 * time.Hour

// A Pair is a certificate and its key, in files.
type Pair struct{ Cert, Key string }

// Server returns a certificate for localhost.
func (a *Authority) Server() Pair { return a.Issue("localhost", lasts) }

// Issue returns a certificate for localhost and for a common name, which ends after that time; one that is
// negative has expired. It serves both ends of a connection.
func (a *Authority) Issue(name string, after time.Duration) Pair {
	a.tb.Helper()
	dir, err := os.MkdirTemp(a.dir, "pair")
	must(a.tb, err)
	p := Pair{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
	cert, key := a.IssueText(name, after)
	must(a.tb, os.WriteFile(p.Cert, cert, 0o600))
	must(a.tb, os.WriteFile(p.Key, key, 0o600))
	return p
}

// IssueText is Issue, without files.
func (a *Authority) IssueText(name string, after time.Duration) (cert, key []byte) {
	a.tb.Helper()
	template := newTemplate(a.tb, name, after)
	template.DNSNames = []string{"localhost"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	// Servers of one test are clients in another.
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	private := newKey(a.tb)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	must(a.tb, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	must(a.tb, err)
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", secret)
}

// Open returns a server with a certificate, which asks clients for theirs as auth says.
func (a *Authority) Open(auth string) *certs.Server {
	a.tb.Helper()
	pair := a.Server()
	server, err := certs.Open(certs.ServerFiles{
		Cert: pair.Cert, Key: pair.Key, ClientCA: a.File, ClientAuth: auth,
	}, time.Now)
	must(a.tb, err)
	return server
}

// Versions are those of TLS that servers speak.
var Versions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// Handshake makes a connection one in a version of TLS, 0 for the newest.
func (a *Authority) Handshake(conn net.Conn, version uint16, pairs ...Pair) *tls.Conn {
	a.tb.Helper()
	config := a.Client(pairs...)
	config.MaxVersion = version
	client := tls.Client(conn, config)
	must(a.tb, client.HandshakeContext(a.tb.Context()))
	return client
}

// Client returns how a client trusts the authority, and shows the pairs, of which there may be none.
func (a *Authority) Client(pairs ...Pair) *tls.Config {
	a.tb.Helper()
	config := &tls.Config{RootCAs: x509.NewCertPool(), ServerName: "localhost", MinVersion: tls.VersionTLS12}
	config.RootCAs.AddCert(a.cert)
	for _, p := range pairs {
		pair, err := tls.LoadX509KeyPair(p.Cert, p.Key)
		must(a.tb, err)
		config.Certificates = append(config.Certificates, pair)
	}
	return config
}

func newTemplate(tb testing.TB, name string, after time.Duration) *x509.Certificate {
	tb.Helper()
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	must(tb, err)
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-2 * lasts), NotAfter: now.Add(after),
	}
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(tb, err)
	return key
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
