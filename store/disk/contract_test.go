package disk

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/store/storetest"
)

// A place is a folder.
type place struct {
	t   *testing.T
	dir string
}

// Open implements storetest.Place.
func (p *place) Open() storetest.Server {
	s, err := Open(p.dir, Config{})
	if err != nil {
		p.t.Fatal(err)
	}
	return storetest.Server{Store: s, Close: func() { end(p.t, s) }}
}

// End implements storetest.Place.
func (p *place) End() {}

// What every store promises.
func TestContract(t *testing.T) { storetest.Run(t, setup(t)) }

func TestHistories(t *testing.T) { storetest.Histories(t, setup(t), storetest.Calls(t, 2000)) }

func setup(t *testing.T) storetest.Setup {
	t.Helper()
	return storetest.Setup{
		Start:   func(storetest.T) storetest.Place { return &place{t, t.TempDir()} },
		Servers: 1, Unit: 300 * time.Millisecond, Slack: 200 * time.Millisecond, Lasts: true,
	}
}

func TestGrantHistories(t *testing.T) {
	storetest.GrantHistories(t, setup(t), storetest.GrantCalls(t, 600))
}
