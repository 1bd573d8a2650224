package e2e

import "strings"

// ofLimiter is a request to a limiter that is none of what is kept.
func ofLimiter(call string) string { return get("/v1/gcra/kept/" + call) }

// noLimits is the answer to limits that cannot be read.
func noLimits(part string) string {
	return `400 Bad Request: limits has "` + part + `", want limits such as 10/1s,200/1m,5000/day`
}

// besides is how limits are refused beside what they stand instead of.
const besides = `", want it instead of size, interval and burst, not besides`

// noZone is the answer to a time zone that there is not.
func noZone(zone string) string {
	return `400 Bad Request: gcra/kept zone "` + zone +
		`" is unknown, want an IANA name such as Europe/Berlin`
}

// badLimits are refused by every limiter in the same words, and make none.
var badLimits = []badInput{
	{"no limits", ofLimiter("acquire?limits="), []string{noLimits("")}},
	{"limits without a sign", ofLimiter("acquire?limits"), []string{noLimits("")}},
	{"a limit without a window", ofLimiter("acquire?limits=10"), []string{noLimits("10")}},
	{"a limit with an empty window", ofLimiter("acquire?limits=10/"), []string{noLimits("10/")}},
	{"a limit without a size", ofLimiter("acquire?limits=/1s"), []string{noLimits("/1s")}},
	{"a comma at the end", ofLimiter("acquire?limits=10/1s,"), []string{noLimits("")}},
	{"a comma in front", ofLimiter("acquire?limits=,10/1s"), []string{noLimits("")}},
	{"semicolons between limits", ofLimiter("acquire?limits=10/1s;20/1m"),
		[]string{noLimits("10/1s;20/1m")}},
	{"a window without a unit", ofLimiter("acquire?limits=10/1000"), []string{noLimits("10/1000")}},
	{"a window of an unknown unit", ofLimiter("acquire?limits=10/1d"), []string{noLimits("10/1d")}},
	{"a window of the calendar in upper case", ofLimiter("acquire?limits=10/Day"),
		[]string{noLimits("10/Day")}},
	{"two days", ofLimiter("acquire?limits=10/2day"), []string{noLimits("10/2day")}},
	{"a year", ofLimiter("acquire?limits=10/year"), []string{noLimits("10/year")}},
	{"two windows for one size", ofLimiter("acquire?limits=10/1s/1m"), []string{noLimits("10/1s/1m")}},
	{"a negative size of a limit", ofLimiter("acquire?limits=-1/1s"), []string{noLimits("-1/1s")}},
	{"a size of a limit with a plus sign", ofLimiter("acquire?limits=%2B1/1s"), []string{noLimits("+1/1s")}},
	{"a fraction as size of a limit", ofLimiter("acquire?limits=1.5/1s"), []string{noLimits("1.5/1s")}},
	{"an exponent as size of a limit", ofLimiter("acquire?limits=1e3/1s"), []string{noLimits("1e3/1s")}},
	{"a size of a limit above the largest", ofLimiter("acquire?limits=1000000000000000/1s"),
		[]string{noLimits("1000000000000000/1s")}},
	{"a size of a limit beyond 64 bits", ofLimiter("acquire?limits=18446744073709551617/1s"),
		[]string{noLimits("18446744073709551617/1s")}},
	{"a window of 0", ofLimiter("acquire?limits=10/0s"), []string{
		"400 Bad Request: limits has 10/0s, want a window above 0 and at most 100 years"}},
	{"a negative window", ofLimiter("acquire?limits=10/-1s"), []string{
		"400 Bad Request: limits has 10/-1s, want a window above 0 and at most 100 years"}},
	{"a window of more than 100 years", ofLimiter("acquire?limits=10/876001h"), []string{
		"400 Bad Request: limits has 10/876001h, want a window above 0 and at most 100 years"}},
	{"a window beyond 64 bits", ofLimiter("acquire?limits=10/9999999999h"),
		[]string{noLimits("10/9999999999h")}},
	{"the same window twice", ofLimiter("acquire?limits=10/60s,20/1m"), []string{
		"400 Bad Request: limits has 20/1m after 10/1m, want windows each longer than the one before"}},
	{"the same day twice", ofLimiter("acquire?limits=10/day,20/1s,30/day"), []string{
		"400 Bad Request: limits has 30/day after 10/day, want windows each longer than the one before"}},
	{"nine limits", ofLimiter("acquire?limits=" + strings.Repeat("1/1s,", 8) + "1/1s"), []string{
		"400 Bad Request: limits are 9, want at most 8"}},
	{"limits and a size", ofLimiter("acquire?limits=10/1s&size=1"), []string{
		`400 Bad Request: limits is "10/1s` + besides}},
	{"limits and an interval", ofLimiter("acquire?interval=1000&limits=10/1s"), []string{
		`400 Bad Request: limits is "10/1s` + besides}},
	{"limits and a burst", ofLimiter("peek?burst=5&limits=10/1s"), []string{
		`400 Bad Request: limits is "10/1s` + besides}},
	{"a cost above the smallest of several limits", ofLimiter("reserve?limits=10/1s,7/1m&cost=8"), []string{
		"400 Bad Request: gcra/kept: cost 8 can never fit a size of 7"}},
	{"a rate beyond nanoseconds", ofLimiter("acquire?size=2000000&interval=1"), []string{
		"400 Bad Request: gcra/kept: 2000000/1ms is more than one per nanosecond; want a lower rate"}},
	{"a burst that takes too long to come back", ofLimiter("acquire?interval=3153600000000&burst=1"),
		[]string{"400 Bad Request: gcra/kept: a burst of 1 at 1/876000h takes more than 100 years to come " +
			"back; want a lower one"}},

	{"an interval in words", ofLimiter("acquire?interval=hour"), []string{
		`400 Bad Request: interval is "hour", want milliseconds, or day, week or month`}},
	{"an interval with a unit", ofLimiter("acquire?interval=1s"), []string{noNumber("interval", "1s")}},
	{"an interval of 0, of a limiter", ofLimiter("reserve?interval=0"), []string{noNumber("interval", "0")}},
	{"an empty interval", ofLimiter("peek?interval="), []string{noNumber("interval", "")}},
	{"a negative burst", ofLimiter("acquire?burst=-1"), []string{noNumber("burst", "-1")}},
	{"an empty burst", ofLimiter("acquire?burst="), []string{noNumber("burst", "")}},
	{"a burst with a sign", ofLimiter("acquire?burst=%2B1"), []string{noNumber("burst", "+1")}},
	{"a burst above the largest", ofLimiter("acquire?burst=999999999999999"),
		[]string{noNumber("burst", "999999999999999")}},
	{"a negative guard", ofLimiter("acquire?guard=-1"), []string{noNumber("guard", "-1")}},
	{"a guard of more than 100 years", ofLimiter("acquire?guard=3153600000001"),
		[]string{noNumber("guard", "3153600000001")}},
	{"a guard that is no number", ofLimiter("acquire?guard=5ms"), []string{noNumber("guard", "5ms")}},
	{"an empty mode", ofLimiter("acquire?mode="), []string{
		`400 Bad Request: mode is "", want one of estimate fine strict reserve paced classic`}},
	{"a mode that there is not", get("/v1/pace/kept/reserve?mode=slow"), []string{
		`400 Bad Request: mode is "slow", want one of reserve paced classic`}},
	{"another kind's mode", get("/v1/slidingwindow/kept/peek?mode=classic"), []string{
		`400 Bad Request: mode is "classic", want one of estimate fine strict`}},
	{"a zone that there is not", ofLimiter("acquire?interval=day&zone=Moon/Tycho"),
		[]string{noZone("Moon/Tycho")}},
	{"a zone that leads out of the zones", ofLimiter("peek?limits=1/1s,2/day&zone=../../etc/passwd"),
		[]string{noZone("../../etc/passwd")}},
	{"a zone of 65 bytes", ofLimiter("acquire?zone=" + strings.Repeat("z", 65)), []string{
		"400 Bad Request: zone has 65 bytes, want at most 64"}},
	{"a wrong escape in a zone", ofLimiter("acquire?zone=Europe%2"), []string{
		`400 Bad Request: zone is "Europe%2", want every % followed by two hexadecimal digits`}},
	{"a cost of 0 that is no peek", ofLimiter("delay?cost=0"), []string{noNumber("cost", "0")}},
	{"a negative cost of a refund", ofLimiter("refund?cost=-1"), []string{noNumber("cost", "-1")}},
	{"a bad limit where it is not needed", get("/v1/counter/kept/count?limits=1"), []string{noLimits("1")}},
	{"a bad burst where it is not needed", get("/v1/semaphore/kept/release?key=mine&burst=x"),
		[]string{noNumber("burst", "x")}},
	{"a bad mode where it is not needed", get("/v1/counter/kept/reset?mode=x"), []string{
		`400 Bad Request: mode is "x", want one of estimate fine strict reserve paced classic`}},
	{"no key to cancel", ofLimiter("cancel"), []string{
		"400 Bad Request: key is missing, want the key that reserve was given"}},
	{"a peek at nothing", ofLimiter("peek"), []string{"404 Not Found: gcra/kept does not exist"}},
	{"a delay at nothing", ofLimiter("delay"), []string{"404 Not Found: gcra/kept does not exist"}},
	{"a refund of nothing", ofLimiter("refund"), []string{"404 Not Found: gcra/kept does not exist"}},
	{"a reset of nothing", get("/v1/fixedwindow/kept/reset"), []string{
		"404 Not Found: fixedwindow/kept does not exist"}},
	{"a cancellation of nothing", get("/v1/slidingwindow/kept/cancel?key=k"), []string{
		"404 Not Found: slidingwindow/kept does not exist"}},
	{"an operation of another kind", ofLimiter("release?key=k"), []string{
		`404 Not Found: operation "release" is unknown, want one of ` +
			"acquire reset peek delay reserve cancel refund charge feedback bump close open waiters stats " +
			"for a gcra",
	}},
}
