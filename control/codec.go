package control

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// Encode appends the stored form of a state to data. Equal states have equal forms.
func Encode(data []byte, s State) []byte {
	c := codec{data: data}
	c.state(s)
	return c.data
}

// Decode reads the stored form of a state, which is one of its own: data may be used again. A form that
// Encode did not write is an error, or makes a state that does no harm; it takes no more memory than some
// times its length.
func Decode(kind gatehouse.Kind, data []byte) (State, error) {
	if kind == 0 || int(kind) >= gatehouse.Kinds {
		return nil, gatehouse.Errorf(gatehouse.CodeInternal, "there is no kind %d, want 1 to %d",
			kind, gatehouse.Kinds-1)
	}
	s := New(kind)
	c := codec{data: data, reading: true}
	c.state(s)
	if c.end() != nil {
		return nil, gatehouse.Errorf(gatehouse.CodeInternal, "stored %s: %w", kind, c.fault)
	}
	return s, nil
}

// A codec writes the form of a state, or reads one. Which of them it does is its business alone: a state
// says once what its form consists of, so that what is written and what is read cannot drift apart. Writing
// changes nothing in the state.
//
// Numbers are varints, as most are small; instants take 8 bytes. A form is of no use to anyone but Decode:
// it does not say what its parts are.
type codec struct {
	data    []byte // what was written, or what is still to be read
	reading bool
	form    byte  // the number of the format that is read or written
	fault   error // the first thing wrong with what was read; what is read after it is 0
}

// state codes a state of any kind. It names all types, as a call through an interface would make the
// codec escape to the heap.
func (c *codec) state(s State) {
	switch s := s.(type) {
	case *limited[bucket, *bucket]:
		s.code(c, &s.first)
	case *limited[gcra, *gcra]:
		s.code(c, &s.first)
	case *limited[fixedWindow, *fixedWindow]:
		s.code(c, &s.first)
	case *limited[slidingWindow, *slidingWindow]:
		s.code(c, &s.first)
	case *limited[slidingLog, *slidingLog]:
		s.code(c, &s.first)
	case *limited[pace, *pace]:
		s.code(c, &s.first)
	case *Semaphore:
		s.code(c)
	case *Event:
		s.code(c)
	case *Watchdog:
		s.code(c)
	case *Counter:
		s.code(c)
	case *Barrier:
		s.code(c)
	default:
		panic(fmt.Sprintf("control: a %T has no stored form", s))
	}
}

// meter codes a meter. It names all types for the same reason.
func (c *codec) meter(m meter) {
	switch m := m.(type) {
	case *bucket:
		m.code(c)
	case *gcra:
		m.code(c)
	case *fixedWindow:
		m.code(c)
	case *slidingWindow:
		m.code(c)
	case *slidingLog:
		m.code(c)
	case *pace:
		m.code(c)
	default:
		panic(fmt.Sprintf("control: a %T has no stored form", m))
	}
}

// fail notes what is wrong with a form.
func (c *codec) fail(format string, args ...any) {
	if c.fault == nil {
		c.fault, c.data = fmt.Errorf(format, args...), nil
	}
}

// end says what was wrong with a form that should have been read to its end.
func (c *codec) end() error {
	if len(c.data) > 0 {
		c.fail("%d bytes more than expected", len(c.data))
	}
	return c.fault
}

// byte codes one byte up to most.
func (c *codec) byte(p *byte, most byte) {
	switch {
	case !c.reading:
		c.data = append(c.data, *p)
	case len(c.data) == 0:
		c.fail("cut off")
	case c.data[0] > most:
		c.fail("byte of %d, want 0 to %d", c.data[0], most)
	default:
		*p, c.data = c.data[0], c.data[1:]
	}
}

// version codes the number of a format, with which every form begins. It grows with a change after
// which old forms are read in another way: what is read may be of any number up to the latest.
func (c *codec) version(latest byte) {
	c.form = latest
	c.byte(&c.form, math.MaxUint8)
	if c.form == 0 || c.form > latest {
		c.fail("format %d, want 1 to %d", c.form, latest)
	}
}

// oldVersion is version for a state that can be written in an earlier format too: servers that do not know
// the latest read what does not need it.
func (c *codec) oldVersion(enough, latest byte) {
	if c.reading {
		c.version(latest)
		return
	}
	c.version(enough)
}

// bool codes whether something is so, and returns it.
func (c *codec) bool(p *bool) bool {
	v := byte(count(*p))
	c.byte(&v, 1)
	if c.reading {
		*p = v == 1
	}
	return v == 1
}

// uint64 codes any number from 0.
func (c *codec) uint64(p *uint64) {
	if !c.reading {
		c.data = binary.AppendUvarint(c.data, *p)
		return
	}
	v, n := binary.Uvarint(c.data)
	if n <= 0 {
		c.fail("no number where one is expected")
		v, n = 0, 0
	}
	*p, c.data = v, c.data[n:]
}

// int64 codes any number.
func (c *codec) int64(p *int64) {
	v := uint64(*p)<<1 ^ uint64(*p>>63) // #nosec G115 -- small ones of both signs become small
	c.uint64(&v)
	if c.reading {
		*p = int64(v>>1) ^ -int64(v&1) // #nosec G115 -- and back
	}
}

// upTo codes a number from 0 up to most.
func (c *codec) upTo(p *int64, most int64) {
	v := uint64(*p) // #nosec G115 -- from 0
	c.uint64(&v)
	if !c.reading {
		return
	}
	*p = int64(v)         // #nosec G115 -- checked below
	if v > uint64(most) { // #nosec G115 -- from 0
		c.fail("number of %d, want 0 to %d", v, most)
		*p = 0
	}
}

// size codes how many there may be.
func (c *codec) size(p *int64) { c.upTo(p, gatehouse.MaxSize) }

// duration codes a length of time.
func (c *codec) duration(p *time.Duration) { c.upTo((*int64)(p), int64(gatehouse.MaxDuration)) }

// instant codes Unix nanoseconds.
func (c *codec) instant(p *int64) {
	switch {
	case !c.reading:
		c.data = binary.LittleEndian.AppendUint64(c.data, uint64(*p)) // #nosec G115 -- as bits
	case len(c.data) < 8:
		c.fail("cut off")
		*p = 0
	default:
		*p, c.data = int64(binary.LittleEndian.Uint64(c.data)), c.data[8:] // #nosec G115 -- as bits
	}
}

// time codes a time, to the nanosecond and without its zone. The zero time stays so.
func (c *codec) time(p *time.Time) {
	const zero = math.MinInt64
	at := int64(zero)
	if !p.IsZero() {
		at = p.UnixNano()
	}
	c.instant(&at)
	if c.reading && at != zero {
		*p = time.Unix(0, at)
	}
}

// string codes a text of any bytes.
func (c *codec) string(p *string) {
	n := c.items(len(*p), 1)
	if !c.reading {
		c.data = append(c.data, *p...)
		return
	}
	*p, c.data = string(c.data[:n]), c.data[n:]
}

// items codes how many items follow, each of which takes at least so many bytes, and returns it.
func (c *codec) items(n, least int) int {
	v := int64(n)
	c.upTo(&v, math.MaxInt64)
	if c.reading && v > int64(len(c.data)/least) {
		c.fail("%d items in %d bytes", v, len(c.data))
		v = 0
	}
	return int(v)
}
