package doormanpb

import (
	"math"
	"strconv"
	"strings"
	"unicode"
)

// ShowName returns a name as people are shown it: as it is, or quoted if something in it cannot be seen. A
// server or client elsewhere may have chosen it to send a terminal commands.
func ShowName(name string) string {
	// Also spaces at the ends, which would not be seen in a table.
	hidden := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
	if name == "" || strings.ContainsFunc(name, hidden) || strings.TrimSpace(name) != name {
		return strconv.Quote(name)
	}
	return name
}

// ShowAmount returns an amount as people are shown it, with at most 4 digits behind the point: 25.4545. Below
// 0, or infinite, it is no limit.
func ShowAmount(amount float64) string {
	// Very large and very small amounts get an exponent: written out they would be rounded to 0, or be wrong
	// in the last digits.
	switch {
	case amount < 0 || math.IsInf(amount, 1):
		return "no limit"
	case amount >= 1e15 || amount != 0 && amount < 1e-4:
		return strconv.FormatFloat(amount, 'g', 6, 64)
	}
	return strconv.FormatFloat(math.Round(amount*1e4)/1e4, 'f', -1, 64)
}
