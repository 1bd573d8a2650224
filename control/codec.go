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
	c := stateCodec{data: data}
	c.codeState(s)
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
	// The zero state is read into in place: each part is overwritten by what the data says.
	s := New(kind)
	c := stateCodec{data: data, reading: true}
	c.codeState(s)
	if c.endDecoding() != nil {
		return nil, gatehouse.Errorf(gatehouse.CodeInternal, "stored %s: %w", kind, c.fault)
	}
	return s, nil
}

// A stateCodec writes the form of a state, or reads one. Which of them it does is its business alone: a state
// says once what its form consists of, so that what is written and what is read cannot drift apart. Writing
// changes nothing in the state.
//
// Numbers are varints, as most are small; instants take 8 bytes. A form is of no use to anyone but Decode:
// it does not say what its parts are.
type stateCodec struct {
	data    []byte // what was written, or what is still to be read
	reading bool
	version byte  // the number of the format that is read or written
	fault   error // the first thing wrong with what was read; what is read after it is 0
}

// codeState codes a state of any kind. It names all types, as to pass the codec through an interface would
// make it escape to the heap.
func (c *stateCodec) codeState(s State) {
	// A pointer that is passed to an unknown method counts as escaping, and each record that is written
	// would allocate its codec.
	switch s := s.(type) {
	case anyLimiter:
		step := s.stepAt(0, nil)
		step.codeFields(c, step.first)
	case *Semaphore:
		s.codeFields(c)
	case *Event:
		s.codeFields(c)
	case *Watchdog:
		s.codeFields(c)
	case *Counter:
		s.codeFields(c)
	case *Barrier:
		s.codeFields(c)
	case *GrantRecord:
		s.codeFields(c)
	default:
		panic(fmt.Sprintf("control: a %T has no stored form", s))
	}
}

// codeMeter codes a meter. It names all types for the same reason.
func (c *stateCodec) codeMeter(m limitMeter) {
	switch m := m.(type) {
	case *tokenBucketMeter:
		m.codeFields(c)
	case *gcraMeter:
		m.codeFields(c)
	case *fixedWindowMeter:
		m.codeFields(c)
	case *slidingWindowMeter:
		m.codeFields(c)
	case *slidingLogMeter:
		m.codeFields(c)
	case *paceMeter:
		m.codeFields(c)
	// A new meter has to be named here before it can be stored.
	default:
		panic(fmt.Sprintf("control: a %T has no stored form", m))
	}
}

// failDecoding notes what is wrong with a form.
func (c *stateCodec) failDecoding(format string, args ...any) {
	// The first fault is the cause. Dropping the rest of the data makes every further read fail quickly.
	if c.fault == nil {
		c.fault, c.data = fmt.Errorf(format, args...), nil
	}
}

// endDecoding says what was wrong with a form that should have been read to its end.
func (c *stateCodec) endDecoding() error {
	if len(c.data) > 0 {
		c.failDecoding("%d bytes more than expected", len(c.data))
	}
	return c.fault
}

// codeByte codes one byte up to most.
func (c *stateCodec) codeByte(p *byte, most byte) {
	switch {
	case !c.reading:
		c.data = append(c.data, *p)
	case len(c.data) == 0:
		// A truncated record reads as an error, never as a panic.
		c.failDecoding("cut off")
	case c.data[0] > most:
		c.failDecoding("byte of %d, want 0 to %d", c.data[0], most)
	default:
		*p, c.data = c.data[0], c.data[1:]
	}
}

// codeVersion codes the number of a format, with which every form begins. It grows with a change after
// which old forms are read in another way: what is read may be of any number up to the latest.
func (c *stateCodec) codeVersion(latest byte) {
	c.version = latest
	c.codeByte(&c.version, math.MaxUint8)
	if c.version == 0 || c.version > latest {
		c.failDecoding("format %d, want 1 to %d", c.version, latest)
	}
}

// codeEarlierVersion is version for a state that can be written in an earlier format too: servers that do
// not know the latest read what does not need it.
func (c *stateCodec) codeEarlierVersion(enough, latest byte) {
	// A reader accepts all versions; only a writer chooses, the earliest one that can say it all. So a
	// fleet can be updated server by server.
	if c.reading {
		c.codeVersion(latest)
		return
	}
	c.codeVersion(enough)
}

// codeBool codes whether something is so, and returns it.
func (c *stateCodec) codeBool(p *bool) bool {
	v := byte(boolToInt(*p))
	c.codeByte(&v, 1)
	if c.reading {
		*p = v == 1
	}
	return v == 1
}

// codeUint64 codes any number from 0.
func (c *stateCodec) codeUint64(p *uint64) {
	if !c.reading {
		c.data = binary.AppendUvarint(c.data, *p)
		return
	}
	v, n := binary.Uvarint(c.data)
	// Uvarint reports a truncated or an overlong number by n <= 0.
	if n <= 0 {
		c.failDecoding("no number where one is expected")
		v, n = 0, 0
	}
	*p, c.data = v, c.data[n:]
}

// codeInt64 codes any number.
func (c *stateCodec) codeInt64(p *int64) {
	v := uint64(*p)<<1 ^ uint64(*p>>63) // small ones of both signs become small
	c.codeUint64(&v)
	if c.reading {
		*p = int64(v>>1) ^ -int64(v&1) // and back
	}
}

// codeUpTo codes a number from 0 up to most.
func (c *stateCodec) codeUpTo(p *int64, most int64) {
	v := uint64(*p) // from 0
	c.codeUint64(&v)
	if !c.reading {
		return
	}
	*p = int64(v)         // checked below
	if v > uint64(most) { // from 0
		c.failDecoding("number of %d, want 0 to %d", v, most)
		*p = 0
	}
}

// codeSize codes how many there may be.
func (c *stateCodec) codeSize(p *int64) { c.codeUpTo(p, gatehouse.MaxSize) }

// codeAnswers codes how often something was answered.
func (c *stateCodec) codeAnswers(p *int32) {
	answers := int64(*p)
	c.codeUpTo(&answers, maxAnswers)
	if c.reading {
		*p = int32(answers) // at most maxAnswers
	}
}

// codeDuration codes a length of time.
func (c *stateCodec) codeDuration(p *time.Duration) {
	c.codeUpTo((*int64)(p), int64(gatehouse.MaxDuration))
}

// codeInstant codes Unix nanoseconds.
func (c *stateCodec) codeInstant(p *int64) {
	switch {
	case !c.reading:
		c.data = binary.LittleEndian.AppendUint64(c.data, uint64(*p)) // as bits
	case len(c.data) < 8:
		c.failDecoding("cut off")
		*p = 0
	default:
		*p, c.data = int64(binary.LittleEndian.Uint64(c.data)), c.data[8:] // as bits
	}
}

// codeTime codes a time, to the nanosecond and without its zone. The zero time stays so.
func (c *stateCodec) codeTime(p *time.Time) {
	// The zero time lies outside of what UnixNano can express, so that it needs a value of its own.
	const zero = math.MinInt64
	at := int64(zero)
	if !p.IsZero() {
		at = p.UnixNano()
	}
	c.codeInstant(&at)
	if c.reading && at != zero {
		*p = time.Unix(0, at)
	}
}

// codeString codes a text of any bytes.
func (c *stateCodec) codeString(p *string) {
	n := c.codeLength(len(*p), 1)
	if !c.reading {
		c.data = append(c.data, *p...)
		return
	}
	*p, c.data = string(c.data[:n]), c.data[n:]
}

// codeSlice codes how many items of a list follow, each of which takes at least so many bytes, and makes room
// for those that are read.
func codeSlice[T any](c *stateCodec, list *[]T, least int) {
	n := c.codeLength(len(*list), least)
	if c.reading && n > 0 {
		*list = make([]T, n)
	}
}

// codeLength codes how many items follow, each of which takes at least so many bytes, and returns it.
func (c *stateCodec) codeLength(n, least int) int {
	v := int64(n)
	c.codeUpTo(&v, math.MaxInt64)
	// A length that the data cannot hold is refused before anything is allocated for it: otherwise a few
	// damaged bytes could ask for gigabytes.
	if c.reading && v > int64(len(c.data)/least) {
		c.failDecoding("%d items in %d bytes", v, len(c.data))
		v = 0
	}
	return int(v)
}
