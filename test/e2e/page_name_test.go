package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// One name shows who holds and who waits, and draws what happens.
func (b *browser) testPageOfOneName(t *testing.T) {
	t.Parallel()
	s := start(t)
	useNames(t, s)
	tab := b.openPage(t, s.address, "#/lock/deploy")
	for _, want := range []string{
		"one at a time", "held", "ci-17 on build-3", "release 4.2", "ci-18 on build-4", "hotfix", "10 min",
	} {
		tab.shows(t, want, shownText+".includes('"+want+"')")
	}
	// Of the pixels of the chart some have the colour of the line of what waits.
	tab.shows(t, "a line in the chart", `(() => {
		const c = document.querySelector("canvas");
		const all = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
		const near = (i, want) => Math.abs(all[i] - want) < 5;
		let violet = 0;
		for (let i = 0; i < all.length; i += 4) {
			violet += near(i, 0x6a) && near(i + 1, 0x4f) && near(i + 2, 0xb8);
		}
		return violet > 3;
	})()`)
	tab.shows(t, "what the chart says", `document.querySelector(".chart").getAttribute("aria-label").
		includes("2 waiting")`)
	s.wait(t, "/v1/lock/deploy/acquire?key=d&owner=late")
	tab.says(t, "one more that waits", "late")
	tab.eval("location.hash = '#/gcra/partner'")
	tab.says(t, "the limits", "5 an hour, 100 a day", "5 of 5")
	s.get(t, "/v1/fixedwindow/busy/acquire?size=2&interval=86400000&cost=2&owner=greedy")
	refused := s.get(t, "/v1/fixedwindow/busy/acquire?size=2&interval=86400000&maxwait=0&owner=late")
	tab.eval("location.hash = '#/fixedwindow/busy'")
	tab.shows(t, "its users",
		"/Granted most lately[^]*greedy[^]*Refused most lately[^]*late/.test("+shownText+")")
	tab.photograph(t, "users")
	tab.eval("location.hash = '#/decision/" + refused.header.Get("Gatehouse-Decision") + "'")
	tab.says(t, "why it was refused", "0 of 2 were free", "greedy")
	tab.photograph(t, "explained")
	tab.eval("location.hash = '#/nothing/such'")
	tab.says(t, "no page", "No such page")
	tab.eval("location.hash = '#/lock/absent'")
	tab.says(t, "no name", "does not exist")
}

// Each action asks first, and does what it says.
func (b *browser) testPageActions(t *testing.T) {
	t.Parallel()
	s := start(t)
	useNames(t, s)
	tab := b.openPage(t, s.address, "#/lock/deploy")
	tab.says(t, "the line", "ci-19")
	do := func(action, verb, want string) {
		t.Helper()
		tab.click(action)
		tab.shows(t, action+" asks", "document.querySelector('dialog')?.open === true")
		tab.click(verb)
		tab.shows(t, action+" is done", "!document.querySelector('dialog') && "+want)
	}
	do("Delete", "Cancel", shownText+".includes('ci-17')")
	do("Bump ci-19", "Bump", "/ci-19[^]*ci-18/.test("+shownText+")")
	tab.click("Evict ci-17")
	tab.shows(t, "what an evict asks", "document.querySelector('dialog')?.open === true")
	tab.fill("dialog input[type=text]", "drained")
	tab.eval("document.querySelector('dialog input[type=checkbox]').click()")
	tab.photograph(t, "dialog")
	tab.click("Evict")
	tab.shows(t, "the next holder",
		"!document.querySelector('dialog') && !!document.querySelector('[aria-label=\"Evict ci-19\"]')")
	do("Close", "Close", "!!document.querySelector('h1 .badge') && "+shownText+".includes('Open')")
	s.want(t, "/v1/lock/free/acquire?key=a", "200")
	s.want(t, "/v1/lock/deploy/stats", "200 …closed…")
	do("Open", "Open", "!document.querySelector('h1 .badge')")
	do("Delete", "Delete", shownText+".includes('does not exist')")
	s.want(t, "/v1/lock/deploy/stats", "404")

	tab.eval("location.hash = '#/gcra/partner'")
	tab.says(t, "a full limiter", "5 of 5")
	do("Reset", "Reset", shownText+".includes('0 of 5')")
	do("Feedback", "Report", shownText+".includes('paused')")
	// What the server refuses is said in the dialog, which stays.
	tab.click("Feedback")
	tab.shows(t, "the question", "document.querySelector('dialog')?.open === true")
	s.want(t, "DELETE /v1/gcra/partner", "204")
	tab.click("Report")
	tab.shows(t, "the fault", "document.querySelector('dialog .fault')?.textContent.length > 10")
}

// A server that asks for a token gets it in a header, and the actions are those of its user.
func (b *browser) testPageAsksForToken(t *testing.T) {
	t.Parallel()
	users := filepath.Join(t.TempDir(), "users.yaml")
	ops, opsLine := newToken(t, "ops", "- {on: '*', do: manage}")
	ann, annLine := newToken(t, "ann", "- {on: '*', do: read}", "- {on: 'lock/dep*', do: manage}",
		// The text before the first star decides which of these two is about lock/other.
		"- {on: 'lock/ot*', do: manage}", "- {on: 'lock/o?her*', do: read}")
	tenant, tenantLine := newToken(t, "tenant", "- {on: '*', do: use}", "- {on: server/activity, do: read}")
	tenantLine += "    prefix: team-1/\n"
	write := func(lines ...string) {
		if err := os.WriteFile(users, []byte("users:\n"+strings.Join(lines, "")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(opsLine, annLine, tenantLine)
	s := start(t, "--users", users)
	for _, name := range []string{"deploy", "other"} {
		s.get(t, "/v1/lock/"+name+"/acquire?key=a&owner=ci&expires=600000", "Authorization: Bearer "+ops)
	}
	tab := b.openTab(t)
	tab.visit("http://"+s.address+"/", 1280, false)
	tab.shows(t, "the question", "document.querySelector('dialog input[type=password]') !== null")
	give := func(token string) {
		tab.fill("dialog input", token)
		tab.click("Use it")
	}
	give("wrong")
	tab.shows(t, "that it is not known", "document.querySelector('dialog .fault') !== null")
	give(ann)
	tab.shows(t, "the names", "document.querySelectorAll('tbody tr').length === 2")
	tab.wantEval("where the token is",
		"[sessionStorage.length, localStorage.length, document.cookie]", `[1,0,""]`)
	tab.eval("location.hash = '#/lock/deploy'")
	tab.shows(t, "the actions of who manages", "!!document.querySelector('[aria-label=\"Evict ci\"]') && "+
		shownText+".includes('Delete')")
	tab.eval("location.hash = '#/lock/other'")
	tab.says(t, "the holder", "other", "ci")
	tab.shows(t, "no actions for one who reads", ""+
		"!document.querySelector('[aria-label=\"Evict ci\"]') && !"+shownText+".includes('Delete')")
	tab.click("Sign out")
	tab.shows(t, "the question again", "document.querySelector('dialog input[type=password]') !== null")
	tab.wantEval("what is left of the token", "sessionStorage.length", 0)

	// A tenant sees its own names, by its own words, and no sums over those of others.
	s.get(t, "/v1/lock/nightly/acquire?key=a&owner=cron", "Authorization: Bearer "+tenant)
	tab.eval("location.hash = '#/'")
	give(tenant)
	tab.shows(t, "the tenant's name alone", "document.querySelectorAll('tbody tr').length === 1 && "+
		shownText+".includes('nightly') && !document.querySelector('.totals')")
	tab.photograph(t, "tenant-1280")
	tab.testTenantNarrow(t, "http://"+s.address)
	tab.wantEval("what it is told of others",
		"['deploy','other','team-1'].filter(part => document.body.innerText.includes(part))", "[]")
	tab.eval("location.hash = '#/lock/nightly'")
	tab.says(t, "the tenant's holder", "nightly", "cron")
	tab.eval("location.hash = '#/'")
	tab.click("Sign out")
	tab.shows(t, "the question again", "document.querySelector('dialog input[type=password]') !== null")

	// A user that is gone is asked again, without a new visit.
	give(ann)
	tab.shows(t, "that it is live", "!!document.querySelector('.status.live')")
	write(opsLine)
	tab.shows(t, "the question once more", "document.querySelector('dialog .fault') !== null")
}

// testTenantNarrow looks at what the tenant of testPageAsksForToken is shown in a narrow window.
func (d *tab) testTenantNarrow(t *testing.T, origin string) {
	t.Helper()
	d.visit(origin+"/", 390, true)
	d.shows(t, "the tenant's name alone in a narrow window",
		"document.querySelectorAll('tbody tr').length === 1 && "+shownText+".includes('nightly')")
	d.wantEval("a narrow window", "document.documentElement.scrollWidth <= innerWidth", true)
	d.photograph(t, "tenant-390")
	d.eval("location.hash = '#/server'")
	d.says(t, "limits without how much is used", "--max-names", "You are", "tenant")
	d.wantEval("how much others use", "document.querySelectorAll('.limits .track').length", 0)
	d.photograph(t, "tenant-server-390")
	d.eval("location.hash = '#/'")
}

// newToken makes a token for a user, and the user's entry for the file of users.
func newToken(t *testing.T, name string, may ...string) (token, entry string) {
	t.Helper()
	status, token, lines := gatehouse(t, nil, "token", name)
	hash := regexp.MustCompile("sha256:[0-9a-f]{64}").FindString(lines)
	if status != 0 || hash == "" {
		t.Fatalf("gatehouse token %s ended with %d and wrote %q, want a hash", name, status, lines)
	}
	entry = fmt.Sprintf("  - name: %s\n    tokens: [%q]\n    may:\n", name, hash)
	for _, line := range may {
		entry += "      " + line + "\n"
	}
	return strings.TrimSpace(token), entry
}
