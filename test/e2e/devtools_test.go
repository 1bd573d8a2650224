package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/certstest"
)

// A browser is driven by its DevTools protocol, over a pair of pipes. All tests that need one share it, as a
// browser is many processes and takes a second to start.
type browser struct {
	out       *os.File
	authority *certstest.Authority // which it trusts

	mu      sync.Mutex
	calls   int
	answers map[int]chan devtoolsMessage
	tabs    map[string]*tab // by session
}

// A tab can do what a browser's own tools can: set the size of the window and the colours a user prefers, and
// see what the page complains of and asks for. It shares no storage with other tabs.
type tab struct {
	t       *testing.T
	browser *browser
	session string // "" for calls to the browser itself
	loaded  chan struct{}
	settled chan struct{} // the virtual time of settle is over

	mu      sync.Mutex
	trouble []string // what the page complained of
	asked   []string // the addresses it asked for
}

type devtoolsMessage struct {
	ID      int             `json:"id"`
	Session string          `json:"sessionId"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

// TestInABrowser has all tests that need a browser.
func TestInABrowser(t *testing.T) {
	t.Parallel()
	b := startBrowser(t)
	t.Run("CapacityPages", b.testCapacityPages)
	t.Run("PageActions", b.testPageActions)
	t.Run("PageAsksForToken", b.testPageAsksForToken)
	t.Run("PageByKeys", b.testPageByKeys)
	t.Run("PageIsLive", b.testPageIsLive)
	t.Run("PageLooks", b.testPageLooks)
	t.Run("PageNames", b.testPageNames)
	t.Run("PageOfCapacity", b.testPageOfCapacity)
	t.Run("PageOfHostileNames", b.testPageOfHostileNames)
	t.Run("PageOfManyNames", b.testPageOfManyNames)
	t.Run("PageOfOneName", b.testPageOfOneName)
	t.Run("PageOfSharedStore", b.testPageOfSharedStore)
	t.Run("PageOverTLS", b.testPageOverTLS)
	t.Run("PageReconnects", b.testPageReconnects)
	t.Run("PageThatIsHidden", b.testPageThatIsHidden)
	t.Run("PageThatIsLeft", b.testPageThatIsLeft)
	t.Run("Manual", b.testManual)
	t.Run("PageOfAnotherSite", b.testPageOfAnotherSite)
	t.Run("ReboundPage", b.testReboundPage)
	t.Run("TryIt", b.testTryIt)
	t.Run("TryPageHasEveryOperation", b.testTryPageHasEveryOperation)
	t.Run("TryPageOfOneOperation", b.testTryPageOfOneOperation)
}

// startBrowser starts a browser that ends with the test.
func startBrowser(t *testing.T) *browser {
	t.Helper()
	in, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	theirs, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	authority := certstest.New(t)
	cmd := exec.CommandContext(ctx, "chromium", append(chromiumFlags(t), trustFlag(t, authority))...)
	cmd.ExtraFiles = []*os.File{theirs, ours} // descriptors 3 and 4, as the flag wants them
	cmd.WaitDelay = time.Second               // its children may outlive it
	if err := cmd.Start(); err != nil {
		t.Fatalf("this test needs chromium: %v", err)
	}
	_, _ = theirs.Close(), ours.Close() // the browser has its own
	b := &browser{
		out: out, authority: authority,
		answers: make(map[int]chan devtoolsMessage), tabs: make(map[string]*tab),
	}
	ended := make(chan struct{})
	go func() { b.read(in); close(ended) }()
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
		<-ended
	})
	return b
}

// openTab opens a tab that ends with the test.
func (b *browser) openTab(t *testing.T) *tab {
	t.Helper()
	d := &tab{t: t, browser: b, loaded: make(chan struct{}, 16), settled: make(chan struct{}, 16)}
	var made struct{ BrowserContextID, TargetID, SessionID string }
	d.call("Target.createBrowserContext", nil, &made)
	home := map[string]any{"browserContextId": made.BrowserContextID}
	d.call("Target.createTarget",
		map[string]any{"url": "about:blank", "browserContextId": made.BrowserContextID}, &made)
	d.call("Target.attachToTarget", map[string]any{"targetId": made.TargetID, "flatten": true}, &made)
	own := &tab{t: t, browser: b} // closes the tab from outside
	t.Cleanup(func() { own.call("Target.disposeBrowserContext", home, nil) })
	d.session = made.SessionID
	b.mu.Lock()
	b.tabs[d.session] = d
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Network", "Log"} {
		d.call(domain+".enable", nil, nil)
	}
	return d
}

// read takes in what the browser says until it ends.
func (b *browser) read(in *os.File) {
	defer func() { _ = in.Close() }()
	from := bufio.NewReader(in)
	for {
		text, err := from.ReadBytes(0)
		if err != nil {
			return
		}
		var m devtoolsMessage
		if json.Unmarshal(text[:len(text)-1], &m) == nil {
			b.note(m)
		}
	}
}

func (b *browser) note(m devtoolsMessage) {
	b.mu.Lock()
	waiting, from := b.answers[m.ID], b.tabs[m.Session]
	if m.Method == "" {
		delete(b.answers, m.ID)
	}
	b.mu.Unlock()
	switch {
	case m.Method == "" && waiting != nil:
		waiting <- m
	case from != nil:
		from.note(m)
	}
}

func (d *tab) note(m devtoolsMessage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch m.Method {
	case "Page.loadEventFired":
		d.loaded <- struct{}{}
	case "Emulation.virtualTimeBudgetExpired":
		d.settled <- struct{}{}
	case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded":
		d.trouble = append(d.trouble, string(m.Params))
	case "Network.requestWillBeSent":
		var p struct{ Request struct{ URL string } }
		_ = json.Unmarshal(m.Params, &p)
		d.asked = append(d.asked, p.Request.URL)
	}
}

// call has the browser do something, and reads its answer into result unless that is nil.
func (d *tab) call(method string, params map[string]any, result any) {
	d.t.Helper()
	if params == nil {
		params = map[string]any{}
	}
	answer := make(chan devtoolsMessage, 1)
	b := d.browser
	b.mu.Lock()
	b.calls++
	id := b.calls
	b.answers[id] = answer
	b.mu.Unlock()
	message := map[string]any{"id": id, "method": method, "params": params}
	if d.session != "" {
		message["sessionId"] = d.session
	}
	text, err := json.Marshal(message)
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := b.out.Write(append(text, 0)); err != nil {
		d.t.Fatalf("%s: %v", method, err)
	}
	m := receive(d.t, answer, method)
	if m.Error != nil {
		d.t.Fatalf("%s: %s", method, m.Error)
	}
	if result == nil {
		return
	}
	if err := json.Unmarshal(m.Result, result); err != nil {
		d.t.Fatalf("%s answered %s: %v", method, m.Result, err)
	}
}

// receive waits for what a browser sends, as long as anything may take.
func receive[T any](t *testing.T, from <-chan T, what string) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(5 * patience): // a browser is many processes
		t.Fatalf("%s: nothing came within %s", what, 5*patience)
	}
	return got
}

// visit shows a page in a window of a width, and returns when it is loaded. What was noted before is
// forgotten.
func (d *tab) visit(url string, width int, dark bool) {
	d.t.Helper()
	d.resize(width, dark)
	if strings.Contains(url, "#") { // a new fragment alone loads nothing
		d.call("Page.navigate", map[string]any{"url": "about:blank"}, nil)
		receive(d.t, d.loaded, "about:blank")
	}
	d.mu.Lock()
	d.trouble, d.asked = nil, nil
	d.mu.Unlock()
	d.call("Page.navigate", map[string]any{"url": url}, nil)
	receive(d.t, d.loaded, url)
}

// resize gives the window a width, and a user who prefers light or dark colours.
func (d *tab) resize(width int, dark bool) {
	d.t.Helper()
	d.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": 850, "deviceScaleFactor": 1, "mobile": width < 500,
	}, nil)
	scheme := map[bool]string{false: "light", true: "dark"}[dark]
	d.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
	}, nil)
}

// settle shows a page until its time, of which eight seconds pass in no time while it waits for nothing, is
// over. It returns what the page is then, as HTML.
func (d *tab) settle(url string) (html string) {
	d.t.Helper()
	d.call("Page.navigate", map[string]any{"url": "about:blank"}, nil)
	receive(d.t, d.loaded, "about:blank")
	d.call("Page.navigate", map[string]any{"url": url}, nil)
	receive(d.t, d.loaded, url)
	d.call("Emulation.setVirtualTimePolicy", map[string]any{
		"policy": "pauseIfNetworkFetchesPending", "budget": 8000,
	}, nil)
	receive(d.t, d.settled, url)
	text := d.eval("document.documentElement.outerHTML")
	if err := json.Unmarshal([]byte(text), &html); err != nil {
		d.t.Fatalf("%s shows %.200s: %v", url, text, err)
	}
	return html
}

// eval evaluates an expression in the page, and returns its value as JSON.
func (d *tab) eval(expression string) string {
	d.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	d.call("Runtime.evaluate", map[string]any{
		"expression": expression, "awaitPromise": true, "returnByValue": true,
	}, &answer)
	if answer.ExceptionDetails != nil {
		d.t.Fatalf("%s: %s", expression, answer.ExceptionDetails)
	}
	return string(answer.Result.Value)
}

// wantQuiet fails the test if the page complained, or asked for anything elsewhere. The browser tells of what
// breaks a content security policy as it does of errors.
func (d *tab) wantQuiet(page, origin string) {
	d.t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, text := range d.trouble {
		d.t.Errorf("%s complains: %.500s", page, text)
	}
	elsewhere := func(url string) bool {
		return !strings.HasPrefix(url, origin) && !strings.HasPrefix(url, "data:") && url != "about:blank"
	}
	if i := slices.IndexFunc(d.asked, elsewhere); i >= 0 {
		d.t.Errorf("%s asks for %s", page, d.asked[i])
	}
	if len(d.asked) == 0 {
		d.t.Errorf("%s was not asked for", page)
	}
}

// wantEval fails the test if an expression has another value.
func (d *tab) wantEval(page, expression string, want any) {
	d.t.Helper()
	if got := d.eval(expression); got != fmt.Sprint(want) {
		d.t.Errorf("%s: %s = %s, want %v", page, expression, got, want)
	}
}
