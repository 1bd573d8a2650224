package e2e

import (
	"net/http"
	"path/filepath"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/certstest"
)

// testPageOverTLS opens the page of a server with TLS and users: it asks for the token, is live, and all that
// it loads comes over TLS.
func (b *browser) testPageOverTLS(t *testing.T) {
	t.Parallel()
	ca := certstest.New(t)
	file := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, file, [2]string{"ops", `may: [{on: "*", do: manage}]`})
	s := start(t, tlsFlags(ca.Server(), "--users", file)...)
	transport := &http.Transport{TLSClientConfig: ca.Client()}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport}
	acquire := func(name string) {
		t.Helper()
		url := "https://" + s.address + "/v1/lock/" + name + "/acquire?key=a&maxwait=0"
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+canary+"ops")
		response, err := client.Do(request)
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("%s = %v, %v, want 200", url, response, err)
		}
		_ = response.Body.Close()
	}
	acquire("before")
	tab := b.openTab(t)
	tab.call("Security.enable", nil, nil)
	// Its authority is known to nobody else.
	tab.call("Security.setIgnoreCertificateErrors", map[string]any{"ignore": true}, nil)
	tab.visit("https://"+s.address+"/", 390, true)
	tab.shows(t, "the question", "document.querySelector('dialog input[type=password]') !== null")
	tab.fill("dialog input", canary+"ops")
	tab.click("Use it")
	tab.shows(t, "a name, live", shownNames+" === 'before' && !!document.querySelector('.status.live')")
	acquire("later")
	tab.shows(t, "another name", shownNames+".includes('later')")
	tab.wantEval("whether it is safe", "isSecureContext && location.protocol", `"https:"`)
	tab.wantEval("what came otherwise", "performance.getEntriesByType('resource')"+
		".map(r => r.name).filter(n => !n.startsWith('https:'))", "[]")
}
