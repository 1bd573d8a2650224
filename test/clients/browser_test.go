package clients

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"testing"
	"time"
)

// The JavaScript client runs in a browser, on a page of another origin that the server lets in.
func TestBrowser(t *testing.T) {
	t.Parallel()
	result := make(chan string, 1)
	mux := http.NewServeMux()
	mux.Handle("/src/", http.FileServer(http.Dir("../../clients/js")))
	mux.HandleFunc("GET /page", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, "../../clients/js/test/browser.html")
	})
	mux.HandleFunc("POST /result", func(_ http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		result <- string(text)
	})
	page := httptest.NewServer(mux)
	t.Cleanup(page.Close)
	gate := addressIn(startServer(t, "--cors", page.URL))

	profile, err := os.MkdirTemp("", "chromium") //nolint:usetesting // written to until the end
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "chromium", "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-background-networking", "--disable-dev-shm-usage", "--no-first-run",
		"--user-data-dir="+profile,
		page.URL+"/page?server="+gate)
	if err := cmd.Start(); err != nil {
		t.Fatalf("this test needs chromium: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.RemoveAll(profile)
	})
	const want = "renewed, Refused, place 1, counted 2, grant of 2"
	select {
	case got := <-result:
		if got != want {
			t.Errorf("the page found %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Errorf("the page found nothing within %s", patience)
	}
}
