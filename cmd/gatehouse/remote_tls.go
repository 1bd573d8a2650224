package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/gatehousehq/gatehouse/internal/certs"
	"github.com/spf13/pflag"
)

// tlsOptions are the options of all commands that ask servers, for TLS.
type tlsOptions struct{ certs.ClientFiles }

// The environment variables for use instead of --ca, --cert and --cert-key.
const (
	caVariable      = "GATEHOUSE_CA"
	certVariable    = "GATEHOUSE_CERT"
	certKeyVariable = "GATEHOUSE_CERT_KEY"
)

// addTLSFlags adds the options.
func (o *tlsOptions) addTLSFlags(f *pflag.FlagSet) {
	f.StringVar(&o.CA, "ca", os.Getenv(caVariable),
		"file with the authority of the servers' certificates, or system; speak TLS; also "+caVariable)
	f.StringVar(&o.Cert, "cert", os.Getenv(certVariable),
		"file with a certificate to show to servers; also "+certVariable)
	f.StringVar(&o.Key, "cert-key", os.Getenv(certKeyVariable),
		"file with the key of --cert; also "+certKeyVariable)
}

// tlsConfig returns how servers are spoken to, nil when none of the options is given. The error is one of
// usage.
func (o *tlsOptions) tlsConfig() (*tls.Config, error) {
	if o.IsZero() {
		return nil, nil
	}
	config, err := o.Config()
	if err != nil {
		return nil, usageError{fmt.Errorf("TLS with --ca %q, --cert %q and --cert-key %q: %w",
			o.CA, o.Cert, o.Key, err)}
	}
	return config, nil
}

// explainTLS adds to an error of a connection what to do about it.
func explainTLS(err error) error {
	_, unknown := errors.AsType[x509.UnknownAuthorityError](err)
	var notTLS tls.RecordHeaderError
	switch {
	case unknown:
		return fmt.Errorf("%w; give --ca FILE with the authority that has signed it", err)
	case errors.As(err, &notTLS):
		return fmt.Errorf("%w; the server does not speak TLS there, want http:// and no --ca", err)
	}
	return err
}
