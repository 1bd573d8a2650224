package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// openPage opens a view of the page, and waits until it is live.
func (b *browser) openPage(t *testing.T, address, hash string) *tab {
	t.Helper()
	tab := b.openTab(t)
	tab.visit("http://"+address+"/"+hash, 1280, false)
	tab.shows(t, "the page at "+hash+" is live", "!!document.querySelector('.status.live')")
	return tab
}

// shownNames are the names that the page shows, in their order.
const shownNames = "[...document.querySelectorAll('tbody .name a')].map(a => a.textContent).join(' ')"

// fill puts a text into a field as a user does.
func (d *tab) fill(field, text string) {
	d.eval(fmt.Sprintf(`{ const e = document.querySelector(%q);
		e.value = %q;
		e.dispatchEvent(new Event(e.tagName === "SELECT" ? "change" : "input", { bubbles: true })); }`,
		field, text))
}

// click clicks the control with a name.
func (d *tab) click(name string) {
	d.t.Helper()
	d.wantEval("the control "+name, fmt.Sprintf(`(() => {
		const all = [...(document.querySelector("dialog") ?? document).querySelectorAll("button, a")];
		const found = all.find(e => (e.getAttribute("aria-label") ?? e.textContent).trim() === %q);
		found?.click();
		return Boolean(found);
	})()`, name), true)
}

// press presses a key, and lets it go.
func (d *tab) press(key, text string) {
	for _, kind := range []string{"keyDown", "keyUp"} {
		d.call("Input.dispatchKeyEvent", map[string]any{
			"type": kind, "key": key, "text": map[string]string{"keyDown": text}[kind],
			"windowsVirtualKeyCode": map[string]int{"Enter": 13, "Tab": 9, "Escape": 27}[key],
		}, nil)
	}
}

// The first name appears by itself. Search, kind and order choose, and are kept in the address.
func (b *browser) testPageNames(t *testing.T) {
	t.Parallel()
	s := start(t)
	tab := b.openPage(t, s.address, "")
	tab.shows(t, "there is an example", shownText+".includes('No names yet') && "+shownText+
		".includes('/v1/gcra/myapp/acquire?size=5&interval=60000')")
	s.get(t, "/v1/lock/first/acquire?key=a")
	tab.shows(t, "a name that is new", shownNames+" === 'first'")
	for i, name := range []string{"alpha", "beta", "gamma"} {
		for range 1 + 2*i {
			s.get(t, "/v1/fixedwindow/"+name+"/acquire?size=6&interval=86400000&maxwait=0")
		}
	}
	for _, c := range []struct{ do, want string }{
		{"sort=used", "first gamma beta alpha"},
		{"sort=name", "alpha beta first gamma"},
		{"sort=name&reverse=true", "gamma first beta alpha"},
		{"sort=used&kind=fixedwindow", "gamma beta alpha"},
	} {
		tab.eval("location.hash = '#/server'")
		tab.says(t, "the server", "--max-names")
		tab.eval("location.hash = '#/?" + c.do + "'")
		tab.shows(t, c.do+" shows "+c.want, shownNames+" === '"+c.want+"'")
	}
	tab.fill("input[type=search]", "A")
	tab.fill("select", "")
	tab.click("Name")
	tab.shows(t, "what has an a, by name", shownNames+" === 'alpha beta gamma'")
	tab.click("Name ↑")
	tab.shows(t, "the other way", shownNames+" === 'gamma beta alpha'")
	tab.wantEval("the column",
		"document.querySelector('[aria-sort]').getAttribute('aria-sort')", `"descending"`)
	tab.wantEval("the address", "location.hash", `"#/?search=A&sort=name&reverse=true"`)
	tab.fill("input[type=search]", "nothing")
	tab.says(t, "that there is none", "No such names")
	tab.click("Show all names")
	tab.shows(t, "all of them", shownNames+" === 'gamma first beta alpha'")
	tab.wantQuiet("the page of names", "http://"+s.address)
}

// What is granted, refused and waits is seen without a new search, also while the pointer rests on a row.
func (b *browser) testPageIsLive(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.get(t, "/v1/semaphore/gpu/acquire?size=2&key=a")
	tab := b.openPage(t, s.address, "")
	tab.says(t, "one of two", "1 of 2")
	tab.shows(t, "that frames tell about it",
		"document.querySelector('[data-label=\"Granted /s\"]').textContent === '0'")
	tab.eval("document.querySelector('tbody').dispatchEvent(new MouseEvent('mouseenter'))")
	s.get(t, "/v1/semaphore/gpu/acquire?size=2&key=b")
	s.get(t, "/v1/semaphore/gpu/acquire?size=2&key=c&maxwait=0")
	s.wait(t, "/v1/semaphore/gpu/acquire?size=2&key=d")
	tab.shows(t, "two of two, and one that waits", shownText+".includes('2 of 2') && "+
		"document.querySelector('td.waiting')?.textContent === '1' && !!document.querySelector('.bar.full')")
	tab.shows(t, "a rate and the last use", `/(now|\d+ s ago)/.test(`+shownText+")")
}

// Names that would be markup are texts, in both views.
func (b *browser) testPageOfHostileNames(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, name := range []string{
		`%3Cimg%20src=x%20onerror=document.title='taken%20over'%3E`,
		`%22%20onmouseover=%22document.title='taken'`,
		`javascript:alert(1)`, `%23%2F..%2F%3Fa=b%26c`, `%25E0%25A4`,
	} {
		s.get(t, "/v1/lock/"+name+"/acquire?key=a&owner=%3Cscript%3Edocument.title='taken'%3C/script%3E")
	}
	tab := b.openPage(t, s.address, "")
	tab.shows(t, "five names", "document.querySelectorAll('tbody tr').length === 5")
	for i := range 5 {
		link := fmt.Sprintf("document.querySelectorAll('tbody .name a')[%d]", i)
		tab.shows(t, "five names again", "document.querySelectorAll('tbody .name a').length === 5")
		name := tab.eval(link + ".textContent")
		tab.eval(link + ".click()")
		tab.says(t, "its holder", "<script>document.title")
		tab.wantEval("the head", "document.querySelector('h1 span').textContent === "+name, true)
		tab.wantEval(name, "document.querySelectorAll('main img, main script').length", 0)
		tab.eval("history.back()")
	}
	tab.wantEval("the title", "document.title.includes('taken over')", false)
	tab.wantQuiet("the page of hostile names", "http://"+s.address)
}

// A server that ends and starts again is noticed, and its page goes on.
func (b *browser) testPageReconnects(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	first, err := launch(t.Context(), settings{flags: []string{"--http", "localhost:" + port}})
	if err != nil {
		t.Fatal(err)
	}
	first.get(t, "/v1/lock/before/acquire?key=a")
	tab := b.openPage(t, first.address, "")
	tab.shows(t, "a name", shownNames+" === 'before'")
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	tab.shows(t, "that the server is gone", "!!document.querySelector('.status.lost')")
	second := start(t, "--http", "localhost:"+port)
	second.get(t, "/v1/lock/after/acquire?key=a")
	tab.shows(t, "the new server's name",
		shownNames+" === 'after' && !!document.querySelector('.status.live')")
}

// A page that is left for another one of the server closes its stream, also if the browser keeps it for the
// way back, on which it goes on.
func (b *browser) testPageThatIsLeft(t *testing.T) {
	t.Parallel()
	s := start(t)
	tab := b.openPage(t, s.address, "#/server")
	other := b.openPage(t, s.address, "")
	readers := "/Reading this page\\n%d/.test(" + shownText + ")"
	tab.shows(t, "two readers", fmt.Sprintf(readers, 2))
	other.eval("location.href = 'docs/'")
	tab.shows(t, "one reader", fmt.Sprintf(readers, 1))
	other.shows(t, "the documentation",
		"location.pathname === '/docs/' && document.readyState === 'complete'")
	other.eval("history.back()")
	tab.shows(t, "two readers again", fmt.Sprintf(readers, 2))
}

// A tab that is hidden for half a minute closes its stream, and opens one again when it is seen: then it
// shows what has happened meanwhile. A tab that is hidden for a moment keeps it.
func (b *browser) testPageThatIsHidden(t *testing.T) {
	t.Parallel()
	s := start(t)
	tab := b.openTab(t)
	// The half minute ends when the test says so.
	tab.call("Page.addScriptToEvaluateOnNewDocument", map[string]any{"source": `{
		const [set, clear] = [setTimeout, clearTimeout];
		window.setTimeout = (f, ms, ...more) =>
			ms === 30000 ? (window.halfMinute = f, -1) : set(f, ms, ...more);
		window.clearTimeout = id => id === -1 ? window.halfMinute = null : clear(id);
	}`}, nil)
	tab.visit("http://"+s.address+"/", 1280, false)
	tab.shows(t, "that it is live", "!!document.querySelector('.status.live')")
	looking := b.openPage(t, s.address, "#/server")
	readers := "/Reading this page\\n%d/.test(" + shownText + ")"
	looking.shows(t, "two readers", fmt.Sprintf(readers, 2))

	tab.setWindow("minimized")
	tab.shows(t, "that it is hidden", "document.hidden && !!window.halfMinute")
	tab.setWindow("normal")
	tab.shows(t, "that it is seen", "!document.hidden && !window.halfMinute")
	tab.wantEval("after a moment it is live", "!!document.querySelector('.status.live')", true)

	tab.setWindow("minimized")
	tab.shows(t, "that it is hidden again", "document.hidden && !!window.halfMinute")
	tab.eval("window.halfMinute()")
	looking.shows(t, "one reader", fmt.Sprintf(readers, 1))
	s.get(t, "/v1/lock/meanwhile/acquire?key=a")
	tab.wantEval("what a hidden tab shows", shownNames, `""`)
	tab.setWindow("normal")
	tab.shows(t, "what was made meanwhile, live",
		shownNames+" === 'meanwhile' && !!document.querySelector('.status.live')")
	looking.shows(t, "two readers again", fmt.Sprintf(readers, 2))
	tab.wantQuiet("the page", "http://"+s.address)
}

// setWindow makes the window of a tab minimized, which hides the tab, or normal.
func (d *tab) setWindow(state string) {
	var window struct{ WindowID int }
	d.call("Browser.getWindowForTarget", nil, &window)
	d.call("Browser.setWindowBounds", map[string]any{
		"windowId": window.WindowID, "bounds": map[string]string{"windowState": state},
	}, nil)
}

// Among 100,000 names the first row is there soon, and no more rows than anybody reads.
func (b *browser) testPageOfManyNames(t *testing.T) {
	t.Parallel()
	s := start(t)
	const many = 100_000
	c := dialRedis(t, s.redisAddress(t))
	commands := make([]string, 0, 1000)
	for i := range many {
		commands = append(commands, fmt.Sprintf("GH.ACQUIRE gcra/user:%05d SIZE 30 INTERVAL 60000", i))
		if len(commands) == cap(commands) {
			c.send(commands...)
			for range commands {
				c.answer()
			}
			commands = commands[:0]
		}
	}
	began := time.Now()
	tab := b.openPage(t, s.address, "")
	tab.shows(t, "a hundred rows", "document.querySelectorAll('tbody tr').length === 100")
	t.Logf("of %d names the first rows are there after %s", many, time.Since(began).Round(time.Millisecond))
	tab.says(t, "how many there are", "100,000", "The first 100 of more")
	tab.fill("input[type=search]", "R:7777")
	tab.shows(t, "the ten that a search finds", "document.querySelectorAll('tbody tr').length === 10")
	tab.wantEval("the last of them", "[...document.querySelectorAll('tbody .name a')].at(-1).textContent",
		`"user:77779"`)
}

// All can be done by keys alone.
func (b *browser) testPageByKeys(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.get(t, "/v1/lock/deploy/acquire?key=a&owner=ci&expires=600000")
	s.get(t, "/v1/lock/other/acquire?key=a")
	tab := b.openPage(t, s.address, "")
	tab.shows(t, "two names", "document.querySelectorAll('tbody tr').length === 2")
	tab.press("/", "/")
	for _, letter := range "depl" {
		tab.press(string(letter), string(letter))
	}
	tab.shows(t, "the name that was typed", shownNames+" === 'deploy'")
	focused := "document.activeElement.textContent.trim()"
	for range 20 {
		if tab.eval(focused) == `"deploy"` {
			break
		}
		tab.press("Tab", "")
	}
	tab.press("Enter", "\r")
	tab.shows(t, "the holder", "!!document.querySelector('[aria-label=\"Evict ci\"]')")
	tab.eval("document.querySelector('[aria-label=\"Evict ci\"]').focus()")
	tab.press("Enter", "\r")
	tab.shows(t, "the question", "document.querySelector('dialog')?.open === true")
	tab.press("Escape", "")
	tab.shows(t, "no question", "!document.querySelector('dialog')")
	tab.wantEval("the focus", "document.activeElement.getAttribute('aria-label')", `"Evict ci"`)
	tab.press("Enter", "\r")
	tab.shows(t, "the question again", "document.querySelector('dialog')?.open === true")
	tab.wantEval("the focus in it", "document.activeElement.closest('dialog') !== null", true)
	tab.press("x", "x")
	tab.press("Enter", "\r")
	tab.says(t, "that it was evicted", "Evicted: lock/deploy")
}

// Capacity stands in the same house. A resource that would be markup is a text.
func (b *browser) testPageOfCapacity(t *testing.T) {
	t.Parallel()
	s, at := startShares(t)
	for _, name := range []string{"database", hostile} {
		getLease(t, at, name, "5", "--client", "ada")
	}
	tab := b.openPage(t, s.address, "#/capacity")
	tab.says(t, "the resources", "database", "FAIR_SHARE", "is master", hostile)
	tab.wantEval("a hostile resource", "document.querySelectorAll('main img, main script').length", 0)
	tab.wantEval("the link",
		"document.querySelector('tbody a').getAttribute('href').startsWith('capacity/')", true)
	tab.wantQuiet("the view of capacity", "http://"+s.address)
}

// On a shared store the page of one server finds the names of all, and says what it shows.
func (b *browser) testPageOfSharedStore(t *testing.T) {
	t.Parallel()
	servers := startShared(t, redistest.Start(t), 2, patient...)
	servers[0].want(t, "/v1/lock/deploy/acquire?key=a&owner=ci&expires=600000", "200")
	servers[0].wait(t, "/v1/lock/deploy/acquire?key=b&owner=far")
	tab := b.openPage(t, servers[1].address, "")
	tab.shows(t, "the name of the other server", shownNames+" === 'deploy'")
	tab.eval("location.hash = '#/lock/deploy'")
	tab.says(t, "its holder, and what the figures are of", "ci", "what all servers of this store did")
	tab.eval("location.hash = '#/server'")
	tab.says(t, "the store", "redis://", "(shared)")
}
