package lease

import (
	"context"
	"net/http"
)

// A Transport is a [http.RoundTripper] that waits for capacity before each request, so that a program keeps
// to a limit without any other change. A request whose context ends first fails with that context's error.
type Transport struct {
	// Limiter lets requests through. It is required.
	Limiter Waiter

	// Base makes the requests; nil is [http.DefaultTransport].
	Base http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	err := t.Limiter.Wait(r.Context())
	if err == nil {
		return t.baseTransport().RoundTrip(r)
	}
	if r.Body != nil {
		_ = r.Body.Close() // a RoundTripper always closes it; the error to report is err
	}
	if ended := context.Cause(r.Context()); ended != nil {
		err = ended // not wrapped: net/http checks whether it is a timeout
	}
	return nil, err
}

// CloseIdleConnections closes idle connections of Base. [http.Client.CloseIdleConnections] calls it.
func (t *Transport) CloseIdleConnections() {
	if base, ok := t.baseTransport().(interface{ CloseIdleConnections() }); ok {
		base.CloseIdleConnections()
	}
}

func (t *Transport) baseTransport() http.RoundTripper {
	if t.Base == nil {
		return http.DefaultTransport
	}
	return t.Base
}
