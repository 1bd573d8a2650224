package redis_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/freeport"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/redis"
)

// leastRights are what docs/stores/redis.md tells to give.
var leastRights = []string{
	"resetchannels", "~gatehouse:*", "&gatehouse:*", "+evalsha", "+eval", "+get", "+getrange", "+set", "+del",
	"+time", "+publish", "+subscribe", "+scan", "+ping", "+info", "+hello", "+role", "+cluster|slots",
}

// A user with the least rights can do all that is needed; one who lacks one right is told which.
func TestLeastRights(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../docs/stores/redis.md")
	if err != nil || !strings.Contains(string(text), strings.Join(leastRights[1:], " ")) {
		t.Errorf("docs/stores/redis.md: %v, want it to tell the rights %q", err, leastRights[1:])
	}
	server := redistest.Start(t)
	give := func(user string, rights ...string) string {
		server.CLI(t, append([]string{"ACL", "SETUSER", user, "on", ">p@ss/word"}, rights...)...)
		return "redis://" + user + ":" + url.QueryEscape("p@ss/word") + "@" + server.Address
	}
	b := open(t, give("gate", leastRights...))
	heard := make(chan gatehouse.Key, 9)
	t.Cleanup(b.Listen(3, func(k gatehouse.Key) { heard <- k }))
	wantKey(t, heard, gatehouse.Key{})
	ask(t, b, key("a"), &cas.RecordChange{Next: record(1, "a"), Nonce: 1, Keep: time.Minute})
	ask(t, b, key("a"), &cas.RecordChange{
		If: 1, Next: record(2, "a"), Nonce: 2, Keep: time.Minute, Wake: []uint32{3},
	})
	wantKey(t, heard, key("a"))
	checkRange(t, b, []string{"a"})
	if policy, err := b.EvictionPolicy(t.Context()); err != nil || policy != redis.NoEviction {
		t.Errorf("the eviction policy = %q, %v, want %s", policy, err, redis.NoEviction)
	}
	ask(t, b, key("a"), &cas.RecordChange{If: 2, Nonce: 3})

	for name, lacks := range map[string]string{
		"nokeys": "~gatehouse:*", "noscripts": "+evalsha", "nosets": "+set", "nochannels": "&gatehouse:*",
	} {
		var rights []string
		for _, right := range leastRights {
			if right != lacks {
				rights = append(rights, right)
			}
		}
		other := open(t, give(name, rights...))
		ask(t, b, key(name), &cas.RecordChange{Next: record(1, ""), Nonce: 1, Keep: time.Minute})
		change := &cas.RecordChange{
			If: 1, Next: record(2, ""), Nonce: 2, Keep: time.Minute, Wake: []uint32{3}}
		_, err := other.Swap(soonest(t), key(name), change)
		if !errors.Is(err, cas.ErrRefused) || !strings.Contains(err.Error(), "NOPERM") &&
			!strings.Contains(err.Error(), "can't ") {
			t.Errorf("a change without %s: %v, want ErrRefused and the reason told", lacks, err)
		}
	}
	for _, name := range []string{"nokeys", "noscripts", "nosets", "nochannels"} {
		ask(t, b, key(name), &cas.RecordChange{If: 1, Read: true}) // it is as it was
		if reply := ask(t, b, key(name), &cas.RecordChange{If: 1, Nonce: 3}); !reply.Swapped {
			t.Errorf("after the refused change by %s = %+v, want the record as it was", name, reply)
		}
	}
}

// TLS with an authority of one's own, and with a certificate of the client.
func TestTLS(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	makeCertificates(t, folder)
	file := func(name string) string { return filepath.Join(folder, name) }
	address, err := freeport.Next()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	redistest.Start(t, "--tls-port", port, "--tls-auth-clients", "yes", "--tls-ca-cert-file", file("ca.pem"),
		"--tls-cert-file", file("server.pem"), "--tls-key-file", file("server.key"))
	good := "rediss://" + address + "?ca=" + file("ca.pem") + "&cert=" + file("client.pem") +
		"&key=" + file("client.key")
	b := open(t, good)
	change := &cas.RecordChange{Next: record(1, "a"), Nonce: 1, Keep: time.Minute}
	if reply := ask(t, b, key("a"), change); !reply.Swapped {
		t.Errorf("Swap = %+v, want it swapped", reply)
	}
	for address, why := range map[string]string{
		"rediss://" + address:                              "authority",
		"rediss://" + address + "?ca=" + file("ca.pem"):    "", // the server wants a certificate
		strings.Replace(good, "127.0.0.1", "localhost", 1): "localhost",
		"redis://" + address:                               "",
	} {
		b := open(t, address)
		var err error
		redistest.Until(t, func() bool {
			err = b.Ping(soonest(t))
			// A busy machine takes longer than a second to shake hands, and a try that failed is shared.
			return err == nil || !strings.Contains(err.Error(), "deadline exceeded")
		})
		if !errors.Is(err, cas.ErrNotSent) || !strings.Contains(err.Error(), why) {
			t.Errorf("Ping of %s: %v, want ErrNotSent with %q", address, err, why)
		}
	}
}

// makeCertificates writes an authority, a server's certificate for 127.0.0.1 and a client's.
func makeCertificates(t *testing.T, folder string) {
	t.Helper()
	var authority *x509.Certificate
	var authorityKey *ecdsa.PrivateKey
	for i, name := range []string{"ca", "server", "client"} {
		own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		certificate := &x509.Certificate{
			SerialNumber: big.NewInt(int64(i + 1)), Subject: pkix.Name{CommonName: name},
			NotAfter: time.Now().Add(time.Hour), IsCA: i == 0, BasicConstraintsValid: true,
			KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
			ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
			IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}
		if i == 0 {
			authority, authorityKey = certificate, own
		}
		data, err := x509.CreateCertificate(rand.Reader, certificate, authority, &own.PublicKey, authorityKey)
		if err != nil {
			t.Fatal(err)
		}
		private, err := x509.MarshalPKCS8PrivateKey(own)
		if err != nil {
			t.Fatal(err)
		}
		write := func(name, kind string, data []byte) {
			text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data})
			if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write(name+".pem", "CERTIFICATE", data)
		write(name+".key", "PRIVATE KEY", private)
	}
}
