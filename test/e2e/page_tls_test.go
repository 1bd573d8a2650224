package e2e

import (
	"bytes"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/certstest"
)

// trustFlag has a browser take certificates of an authority whose own certificate is shown with them.
func trustFlag(t *testing.T, ca *certstest.Authority) string {
	t.Helper()
	block, _ := pem.Decode(readFile(t, ca.File))
	root, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	key := sha256.Sum256(root.RawSubjectPublicKeyInfo)
	return "--ignore-certificate-errors-spki-list=" + base64.StdEncoding.EncodeToString(key[:])
}

// chained is a certificate for localhost with that of its authority behind it.
func chained(t *testing.T, ca *certstest.Authority) certstest.Pair {
	t.Helper()
	pair := ca.Issue("localhost", time.Hour)
	both := bytes.Join([][]byte{readFile(t, pair.Cert), readFile(t, ca.File)}, nil)
	if err := os.WriteFile(pair.Cert, both, 0o600); err != nil {
		t.Fatal(err)
	}
	return pair
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// Over TLS the page is live, asks for a token, acts, and has the documentation, as without. A browser that
// does not know the authority shows nothing of it, and neither does one that asks without TLS.
func (b *browser) testPageOverTLS(t *testing.T) {
	t.Parallel()
	users := filepath.Join(t.TempDir(), "users.yaml")
	writeUsers(t, users, [2]string{"ops", `may: [{on: "*", do: manage}]`})
	s := start(t, tlsFlags(chained(t, b.authority), "--users", users)...)
	origin := "https://" + s.address
	program := &http.Client{Transport: &http.Transport{TLSClientConfig: b.authority.Client()}}
	take := func(name string) {
		askTLS(t, program, origin+"/v1/lock/"+name+"/acquire?key=a&owner=ci&expires=600000", canary+"ops")
	}
	take("deploy")
	tab := b.openTab(t)
	tab.visit(origin+"/", 1280, false)
	tab.shows(t, "the question", "document.querySelector('dialog input[type=password]') !== null")
	tab.fill("dialog input", canary+"ops")
	tab.click("Use it")
	tab.shows(t, "the name", shownNames+" === 'deploy'")
	tab.wantEval("the page", "isSecureContext && location.protocol", `"https:"`)
	take("later")
	tab.shows(t, "a name that is new", shownNames+".includes('later')")
	tab.photograph(t, "tls-1280")

	tab.visit(origin+"/", 390, true)
	tab.shows(t, "that it is live", "!!document.querySelector('.status.live')")
	tab.shows(t, "both names", shownNames+".includes('deploy') && "+shownNames+".includes('later')")
	tab.photograph(t, "tls-390")
	tab.wantQuiet("the page over TLS", origin)
	tab.wantEval("where the token is",
		"[sessionStorage.length, localStorage.length, document.cookie]", `[1,0,""]`)

	tab.eval("location.hash = '#/lock/deploy'")
	tab.says(t, "the holder", "ci")
	tab.wantQuiet("the view of a name over TLS", origin)
	tab.click("Delete")
	tab.shows(t, "the question", "document.querySelector('dialog')?.open === true")
	tab.click("Delete")
	tab.says(t, "that it is gone", "does not exist")

	// Without users a visit is enough for the documentation. The other tab may still be told that what it
	// shows is gone.
	open := "https://" + start(t, tlsFlags(chained(t, b.authority))...).address
	reading := b.openTab(t)
	reading.visit(open+"/docs/", 1280, false)
	reading.wantEval("the documentation", "document.querySelector('h1') !== null", true)
	reading.wantQuiet("the documentation over TLS", open)
	stranger := start(t, tlsFlags(chained(t, certstest.New(t)))...)
	for url, want := range map[string]string{
		"https://" + stranger.address + "/": "net::ERR_CERT_AUTHORITY_INVALID",
		origin + "/":                        "",
	} {
		var answer struct{ ErrorText string }
		tab.call("Page.navigate", map[string]any{"url": url}, &answer)
		if answer.ErrorText != want {
			t.Errorf("a visit to %s ends with %q, want %q", url, answer.ErrorText, want)
		}
	}
	tab.visit("http://"+s.address+"/", 1280, false)
	tab.wantEval("the page without TLS", "document.body.innerText.includes('want https')", true)
}

// askTLS asks with a token, and wants what was asked for.
func askTLS(t *testing.T, program *http.Client, url, token string) {
	t.Helper()
	request, err := http.NewRequestWithContext(soon(t), http.MethodPost, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	answer, err := program.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		t.Fatalf("%s = %s, want 200", strings.SplitN(url, "?", 2)[0], answer.Status)
	}
}
