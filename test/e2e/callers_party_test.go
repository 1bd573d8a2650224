package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// The headers of a call to the third party.
const (
	partyAccount = "Party-Account"
	partyCall    = "Party-Call"
	partyTokens  = "Party-Tokens"
	partyLong    = "Party-Long" // it may be held
)

// A party is a third party whose calls are limited. It counts what comes, and refuses when it is told to.
type party struct {
	address string

	mu       sync.Mutex
	arrivals map[string]arrival // by call
	counts   map[string]int     // of what was served, by account
	watched  map[string]func()  // called with the mutex held
	refuses  string             // an account
	until    time.Duration      // it refuses for so long
	pause    time.Duration
	released chan struct{}  // who calls is answered once it is closed; nil is at once
	held     map[string]int // calls that are not answered yet, by account
}

// An arrival is one call as the third party sees it.
type arrival struct {
	at     time.Duration
	tokens int64
	served bool
}

func newParty(t *testing.T) *party {
	t.Helper()
	p := &party{
		arrivals: map[string]arrival{}, counts: map[string]int{}, watched: map[string]func(){},
		held: map[string]int{},
	}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	p.address = s.URL
	return p
}

// ServeHTTP notes a call.
func (p *party) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	account, id := r.Header.Get(partyAccount), r.Header.Get(partyCall)
	tokens, err := strconv.ParseInt(r.Header.Get(partyTokens), 10, 64)
	if _, again := p.arrivals[id]; err != nil || again {
		http.Error(w, fmt.Sprint("again: ", again, ", ", err), http.StatusBadRequest)
		return
	}
	a := arrival{at: machineTime(), tokens: tokens}
	a.served = account != p.refuses || a.at >= p.until
	p.arrivals[id] = a
	if !a.served {
		w.Header().Set("Retry-After", strconv.Itoa(int(p.pause.Seconds())))
		w.WriteHeader(http.StatusTooManyRequests)
		return
	}
	p.counts[account]++
	if look := p.watched[account]; look != nil {
		look()
	}
	if released := p.released; released != nil && r.Header.Get(partyLong) != "" {
		p.held[account]++
		p.mu.Unlock()
		<-released
		p.mu.Lock()
	}
}

// hold answers no call that is long from now on before release, and returns when so many of each account
// stand there.
func (p *party) hold(t *testing.T, count int, accounts ...string) {
	t.Helper()
	p.mu.Lock()
	p.released = make(chan struct{})
	p.mu.Unlock()
	until(t, fmt.Sprintf("%d calls of each account are held", count), func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return !slices.ContainsFunc(accounts, func(account string) bool {
			return p.held[account] < count
		})
	})
}

// release answers all calls.
func (p *party) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.released)
	p.released = nil
}

// serves returns when it has served so many more calls of an account.
func (p *party) serves(t *testing.T, account string, more int) {
	t.Helper()
	done := make(chan struct{})
	p.mu.Lock()
	least := p.counts[account] + more
	p.watched[account] = func() {
		if p.counts[account] >= least {
			close(done)
			delete(p.watched, account)
		}
	}
	p.mu.Unlock()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("%s was not served %d calls within %s", account, more, patience)
	}
}

// refuse has all calls of an account refused from now on, for as long as their Retry-After says.
func (p *party) refuse(account string, pause time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses, p.pause, p.until = account, pause, machineTime()+pause
}
