package capacity_test

import (
	"encoding/binary"
	"math"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// FuzzHolder drives a holder by any answers at any time. What may be used is always an amount, -1 only
// without a lease; and who calls Tick and Requests when Next says so is never told to do so again at once.
func FuzzHolder(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17})
	f.Add([]byte{0, 1, 1, 3, 255, 255, 255, 255, 255, 255, 255, 255, 1, 4, 3, 1, 0, 0, 0, 0, 0, 0, 240, 127})
	f.Fuzz(func(t *testing.T, ops []byte) {
		p := &player{t: t, ops: ops, now: time.Unix(noon, 0)}
		p.h = capacity.NewHolder(capacity.HolderConfig{
			Fallback: p.amount(), Random: func() float64 { return float64(p.next()) / 256 },
		})
		for len(p.ops) > 0 {
			p.play()
			p.check()
		}
	})
}

// A player turns bytes into what happens to a holder.
type player struct {
	t   *testing.T
	ops []byte
	now time.Time
	h   *capacity.Holder
}

func (p *player) next() byte {
	if len(p.ops) == 0 {
		return 0
	}
	b := p.ops[0]
	p.ops = p.ops[1:]
	return b
}

// amount is any number there is, often one that matters.
func (p *player) amount() float64 {
	some := [...]float64{0, -1, 1, 0.5, -200, 1e300, math.Inf(1), math.Inf(-1), math.NaN()}
	if b := p.next(); int(b) < len(some) {
		return some[b]
	}
	var bits [8]byte
	for i := range bits {
		bits[i] = p.next()
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(bits[:]))
}

// span is any time, often a few seconds.
func (p *player) span() time.Duration {
	if b := p.next(); b < 250 {
		return time.Duration(b-100) * 200 * time.Millisecond
	}
	return time.Duration(math.Float64bits(p.amount()))
}

func (p *player) play() {
	name := string(rune('a' + p.next()%3))
	switch p.next() % 6 {
	case 0:
		p.h.Want(name, int64(p.next()), float64(p.next()))
	case 1:
		p.h.Drop(name)
	case 2:
		p.now = p.now.Add(max(-time.Hour, min(p.span(), time.Hour)))
	case 3:
		p.h.Requests(p.now)
	case 4:
		p.h.Failed(p.now)
	case 5:
		var clock time.Time
		if p.next()%2 == 0 {
			clock = p.now.Add(p.span())
		}
		p.h.AnsweredBy(p.now, clock, []capacity.Grant{{
			Resource: name, Safe: p.amount(), Lease: capacity.Lease{
				Expiry: p.now.Add(p.span()), Refresh: p.span(), Capacity: p.amount(),
			},
		}})
	}
}

// check is what a driver does after each, and what must hold then.
func (p *player) check() {
	for _, c := range p.h.Tick(p.now) {
		amount, leased := p.h.Capacity(p.now, c.Resource)
		possible := amount >= 0 && amount <= math.MaxFloat64 || amount == -1 && !leased
		if !possible || amount != c.Amount || leased != c.Leased {
			p.t.Fatalf("capacity = %g, leased %t, told %+v, want an amount", amount, leased, c)
		}
	}
	p.h.Requests(p.now)
	if next := p.h.Next(); !next.IsZero() && !next.After(p.now) {
		p.t.Fatalf("Next after Tick and Requests = %s, want later than %s", next, p.now)
	}
}
