package params

import (
	"bytes"
	"math/bits"
	"strings"

	"github.com/gatehousehq/gatehouse"
)

// Values hold what a request gives for each parameter, as text. The zero Values hold nothing.
type Values struct {
	texts [numParameters][]byte // nil is absent
	named parameterSet          // those that were named, also without a value
}

// A parameterSet has a bit for each of its parameters.
type parameterSet uint32

// Of most groups of parameters a request names none, so that each group is looked at as a whole.
const (
	limiterOptions  parameterSet = 1<<(zoneParameter+1) - 1<<burstParameter
	ownerParameters parameterSet = 1<<(limitParameter+1) - 1<<ownerParameter
	reportFields    parameterSet = 1<<(resetParameter+1) - 1<<statusParameter
)

// Reset makes the Values hold nothing again.
func (f *Values) Reset() {
	// A request names few of them, and to clear all would cost as much as to read it.
	for named := f.named; named != 0; named &= named - 1 {
		f.texts[bits.TrailingZeros32(uint32(named))] = nil
	}
	f.named = 0
}

// Set gives a parameter a value, which the form does not copy. Names are read in any letter case, and
// the last of a repeated one counts. The error is of CodeInvalid.
func (f *Values) Set(name, value []byte) error {
	if !f.TrySet(name, value) {
		return Unknown(name)
	}
	return nil
}

// HasKey reports whether a key is given.
func (f *Values) HasKey() bool { return len(f.texts[keyParameter]) > 0 }

// Unknown is the error of CodeInvalid about a parameter that does not exist. more are parameters that its
// listener knows besides.
func Unknown(name []byte, more ...string) error {
	return gatehouse.Errorf(gatehouse.CodeInvalid, "parameter %s is unknown, want one of %s",
		Quote(name), strings.Join(append(Names(), more...), " "))
}

// parameterNamed returns the parameter with a name, in any letter case.
func parameterNamed(name []byte) (parameter int, known bool) {
	for i, proper := range names {
		// Most are written in lower case.
		if len(proper) == len(name) && (string(name) == proper || bytes.EqualFold(name, []byte(proper))) {
			return i, true
		}
	}
	return 0, false
}

// TrySet is Set for a listener that has parameters of its own: known is false if the form has no such one.
func (f *Values) TrySet(name, value []byte) (known bool) {
	i, known := parameterNamed(name)
	if known {
		f.setText(i, value)
	}
	return known
}

// setText gives a parameter a value.
func (f *Values) setText(parameter int, value []byte) {
	switch {
	case len(value) == 0 && (parameter == sizeParameter || parameter == keyParameter ||
		parameter == fenceParameter || parameter >= statusParameter):
		// An empty size, key or fence means the same as none, and so do no parents, and a header of
		// a third party that was not there.
		value = nil // as if it were absent
	case value == nil:
		// nil stands for absent, so an empty value must differ from it.
		value = []byte{}
	}
	f.texts[parameter] = value
	// Also one that counts as absent, as Reset has to look at it.
	f.named |= 1 << parameter
}
