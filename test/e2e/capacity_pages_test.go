package e2e

import (
	"encoding/json"
	"strings"
	"testing"
)

// hostile is what a resource had better not be called.
const hostile = `<script>document.title="taken over"</script>` +
	`<img src=x onerror="document.title='taken over'">`

// A real browser shows the pages, in which whatever somebody calls a resource stays a text.
func (b *browser) testCapacityPages(t *testing.T) {
	t.Parallel()
	s, at := startShares(t)
	for _, name := range []string{"database", hostile} {
		getLease(t, at, name, "5", "--client", name)
	}
	page := b.openTab(t).settle("http://" + s.address + "/capacity")
	for _, want := range []string{
		"this is the master", `<a href="/capacity/database">database</a>`, "FAIR_SHARE",
		"proportional example",
		`&lt;script&gt;document.title="taken over"&lt;/script&gt;&lt;img src=x onerror=`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("/capacity in a browser has no %s:\n%s", want, page)
		}
	}
	before, _, _ := strings.Cut(page, `">&lt;script&gt;`)
	link := before[strings.LastIndex(before, `"`)+1:]
	detail := b.openTab(t).settle("http://" + s.address + link)
	if !strings.Contains(detail, `<h1>&lt;script&gt;document.title=`) {
		t.Errorf("%s in a browser does not have the resource's name as its head:\n%s", link, detail)
	}
	for _, shown := range []string{page, detail} {
		if strings.Contains(shown, "<title>taken over") || strings.Contains(shown, "<script>") ||
			strings.Contains(shown, "<img") {
			t.Errorf("a resource's name has become a script:\n%s", shown)
		}
	}
}

// The style is allowed by its hash, and stands in the page as it was hashed.
func TestCapacityPagesKeepTheirStyle(t *testing.T) {
	t.Parallel()
	s, _ := startShares(t)
	a := s.get(t, "/capacity")
	if !strings.Contains(a.body, "<style>:root") || strings.Contains(a.body, "ZgotmplZ") {
		t.Errorf("/capacity has not its style as it is written:\n%s", a.body)
	}
	policy := a.header.Get("Content-Security-Policy")
	if !strings.HasPrefix(policy, "default-src 'none'; style-src") {
		t.Errorf("/capacity has the policy %q, want nothing allowed but its style", policy)
	}
}

// What the page shows is there for programs too.
func TestCapacityPagesAsJSON(t *testing.T) {
	t.Parallel()
	s, at := startShares(t)
	getLease(t, at, "a/b", "5", "--client", "ada", "--priority", "3")
	var page struct {
		Server, MasterAddress string
		Master                bool
		Resource              struct {
			Has, Wants, Capacity float64
			Algorithm            string
		}
		Leases []struct {
			Client string `json:"client_id"`
			Has    float64
			Wants  []struct{ Priority, Wants float64 }
		}
	}
	for _, path := range []string{"/capacity/a/b", "/capacity/a%2Fb", "/capacity?resource=a/b"} {
		a := s.get(t, path, "Accept: application/json")
		if err := json.Unmarshal([]byte(a.body), &page); err != nil {
			t.Fatalf("%s = %s: %v", path, a, err)
		}
		if !page.Master || page.Server != at || page.Resource.Has != 5 ||
			page.Resource.Algorithm != "FAIR_SHARE" || len(page.Leases) != 1 ||
			page.Leases[0].Client != "ada" || page.Leases[0].Wants[0].Priority != 3 {
			t.Errorf("%s is %+v, want the master's, and ada's 5 of priority 3", path, page)
		}
	}
	s.want(t, "/capacity/other", `404 …resource "other" is unknown…`)
	s.want(t, "HEAD /capacity", "200")
	s.want(t, "DELETE /capacity/a", "405")
	s.want(t, "/Capacity/", "301")
	s.want(t, "/capacity/a%2", "400 …")
}

// Without --grpc there is no capacity, and no page of it.
func TestCapacityPagesNeedAServer(t *testing.T) {
	t.Parallel()
	s := start(t, "--grpc=")
	s.want(t, "/capacity", "404")
	s.want(t, "POST /v1/capacity/get", "404")
}
