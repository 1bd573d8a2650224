package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
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
}

// An arrival is one call as the third party sees it.
type arrival struct {
	at     time.Duration
	tokens int64
	served bool
}

func newParty(t *testing.T) *party {
	t.Helper()
	p := &party{arrivals: map[string]arrival{}, counts: map[string]int{}, watched: map[string]func(){}}
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
