package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"math/big"
	"net/url"
	"slices"
	"testing"
	"time"
)

// TestCertificateNames has certificates whose names of one sort are written like those of another.
func TestCertificateNames(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	commonName := func(name string) pkix.AttributeTypeAndValue {
		return pkix.AttributeTypeAndValue{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: name}
	}
	for _, c := range []struct {
		cert x509.Certificate
		want []string
	}{
		{x509.Certificate{Subject: pkix.Name{CommonName: "ops"}}, []string{"CN=ops"}},
		// Some programs take the first of several, and some the last.
		{x509.Certificate{Subject: pkix.Name{
			ExtraNames: []pkix.AttributeTypeAndValue{commonName("ops"), commonName("ci")}}}, nil},
		{x509.Certificate{URIs: []*url.URL{{Scheme: "spiffe", Host: "corp", Path: "/ci"}}},
			[]string{"spiffe://corp/ci"}},
		{x509.Certificate{URIs: []*url.URL{{Path: "CN=ops"}, {Path: "ci.example"}}}, nil},
		{x509.Certificate{DNSNames: []string{"ci.example", "CN=ops", "spiffe://corp/ci", "boss@example"}},
			[]string{"ci.example"}},
		{x509.Certificate{EmailAddresses: []string{"boss@example", "ci.example", "CN=ops@example"}},
			[]string{"boss@example"}},
	} {
		c.cert.SerialNumber = big.NewInt(1)
		der, err := x509.CreateCertificate(rand.Reader, &c.cert, &c.cert, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		if got := certificateNames(parsed); !slices.Equal(got, c.want) {
			t.Errorf("names of %v %v %v %v = %q, want %q", parsed.Subject, parsed.URIs, parsed.DNSNames,
				parsed.EmailAddresses, got, c.want)
		}
	}
}

// TestCertificateWithoutName has one that nothing can mean: its owner is not somebody without any.
func TestCertificateWithoutName(t *testing.T) {
	users := NewUsers(parse(t, "users: [{name: anonymous}]"), time.Now)
	if _, user := users.Admit(From{}); user == nil {
		t.Error("a client without a certificate stands for no user, want anonymous")
	}
	login, user := users.Admit(From{Certificate: new(x509.Certificate)})
	if user != nil || Missing(login).Error() != wrongCert {
		t.Errorf("a client with a certificate without names is %v, want no user", user)
	}
}
