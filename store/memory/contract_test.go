package memory_test

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/gatehousehq/gatehouse/store/storetest"
)

// place is the memory of one process.
type place struct{ store *memory.Store }

func (p place) Open() storetest.Server { return storetest.Server{Store: p.store, Close: func() {}} }

func (p place) End() {}

func setup() storetest.Setup {
	return storetest.Setup{
		Start:   func(storetest.T) storetest.Place { return place{memory.New(memory.Config{})} },
		Virtual: true, Servers: 1, Unit: time.Second, Slack: 100 * time.Millisecond,
		Linger: 2*memory.DefaultLinger + time.Minute, // a name that was released is looked at again by then
	}
}

func TestContract(t *testing.T) { storetest.Run(t, setup()) }

func TestHistories(t *testing.T) {
	s := setup()
	s.Virtual = false
	storetest.Histories(t, s, storetest.Calls(t, 30_000))
}

func TestGrantHistories(t *testing.T) {
	s := setup()
	s.Virtual = false
	storetest.GrantHistories(t, s, storetest.GrantCalls(t, 3000))
}
