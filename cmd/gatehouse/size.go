package main

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// A size is a flag's number of bytes, such as 64KiB, 128MiB or 2GiB. Without a unit it is in bytes.
type size int64

var units = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// String implements [pflag.Value].
func (s *size) String() string {
	// The largest unit that gives a whole number, so that Set reads the same value back.
	for _, unit := range units {
		if n := int64(*s); n != 0 && n%unit.bytes == 0 && unit.bytes > 1 {
			return strconv.FormatInt(n/unit.bytes, 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}

// Set implements [pflag.Value].
func (s *size) Set(text string) error {
	// Plain B comes last in units: the others end in it too.
	bytes := int64(1)
	for _, unit := range units {
		if number, ok := strings.CutSuffix(text, unit.name); ok {
			text = number
			bytes = unit.bytes
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/bytes {
		return errors.New("want " + wantSize)
	}
	*s = size(n * bytes)
	return nil
}

// Type implements [pflag.Value].
func (s *size) Type() string { return "size" }

const wantSize = "a number of bytes such as 64KiB, 128MiB or 2GiB"
