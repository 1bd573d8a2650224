package e2e

import (
	"net"
	"strings"
	"testing"
)

// jarlMistakes are options in the place of those of a good command line, "-" and a name for leaving it
// out, and what is said about them. The port is in use: nobody gets as far as to find that out.
var jarlMistakes = []struct{ options, want string }{
	{"-service -requests -period -ip -port", "missing: --service, --requests, --period, --ip, --port"},
	{"-service", "missing: --service"},
	{"-requests", "missing: --requests"},
	{"-period", "missing: --period"},
	{"-ip", "missing: --ip"},
	{"-port", "missing: --port"},
	{"--requests 0", "…--requests…want a whole number from 1 to 999999999999999"},
	{"--requests -1", "…--requests…want a whole number…"},
	{"--requests=1.5", "…--requests…want a whole number…"},
	{"--requests many", "…--requests…want a whole number…"},
	{"--requests=", "…--requests…want a whole number…"},
	{"--requests 99999999999999999999", "…--requests…want a whole number…"},
	{"--period 0", "…--period…want a whole number from 1 to 3153600000"},
	{"--period 0.5", "…--period…want a whole number…"},
	{"--period 1s", "…--period…want a whole number…"},
	{"--period 3153600001", "…--period…want a whole number…"},
	{"--port 0", "…--port…want a whole number from 1 to 65535"},
	{"--port 65536", "…--port…want a whole number…"},
	{"--port http", "…--port…want a whole number…"},
	{"--port", "…--port"},
	{"--ip=", "…--ip…want it not empty"},
	{"--service=", "…--service…want it not empty"},
	{"--service a --service b", "…--service…it is given twice"},
	{"--service \xff", "--service: pace: name …is not valid UTF-8"},
	{"--mode fast", "…--mode…want reserve, paced, classic or poll"},
	{"--guard 5", "…--guard…want a time such as 5ms, at most 100 years"},
	{"--guard=-5ms", "…--guard…want a time…"},
	{"--max-delay 5", "…5…--max-delay…want a time above 0 …"},
	{"--allow localhost", "…localhost…--allow…want an address or a block …"},
	{"--burst 5", "unknown flag: --burst"},
	{"-p 5", "unknown shorthand flag: 'p' in -p"},
	{"now", `gatehouse jarl takes flags only, and was given "now"; see gatehouse jarl --help`},
}

func TestJARLMistakes(t *testing.T) {
	t.Parallel()
	_, port, _ := net.SplitHostPort(shared().address)
	for _, m := range jarlMistakes {
		t.Run(m.options, func(t *testing.T) {
			t.Parallel()
			args := []string{"jarl"}
			good := "service=s requests=1 period=1 ip=127.0.0.1 port=" + port
			for option := range strings.FieldsSeq(good) {
				if name, _, _ := strings.Cut(option, "="); !strings.Contains(m.options, "-"+name) {
					args = append(args, "--"+option)
				}
			}
			if !strings.HasPrefix(m.want, "missing") {
				args = append(args, strings.Fields(m.options)...)
			}
			status, out, said := gatehouse(t, nil, args...)
			if status != 2 || !matches("gatehouse: "+m.want+"\n", said) || out != "" {
				t.Errorf("%v ended with %d, wrote %q and said %q, want 2 and %q",
					args, status, out, said, m.want)
			}
		})
	}
}

func TestJARLPortInUse(t *testing.T) {
	t.Parallel()
	_, port, _ := net.SplitHostPort(shared().address)
	status, _, said := gatehouse(t, nil, jarlFlags(port)...)
	want := "gatehouse: listening for JARL: …address already in use; choose another address with --ip…\n"
	if status != 1 || !matches(want, said) {
		t.Errorf("a listener at a port in use ended with %d and said %q, want 1 and %q", status, said, want)
	}
	status, _, said = gatehouse(t, nil, jarlFlags("5001", "--ip", "192.0.2.1")...)
	if status != 2 || !strings.Contains(said, "given twice") {
		t.Errorf("a second --ip ended with %d and said %q, want 2 and why", status, said)
	}
}

func TestJARLHelp(t *testing.T) {
	t.Parallel()
	for _, option := range []string{"-h", "--help"} {
		status, out, said := gatehouse(t, nil, "jarl", option)
		if want := "…--service …--requests …--period …--ip …--port …"; status != 0 || !matches(want, out) {
			t.Errorf("jarl %s ended with %d and wrote\n%s\nwant 0 and all options", option, status, out)
		}
		if said != "" {
			t.Errorf("jarl %s said %q, want nothing", option, said)
		}
	}
}

// What looks like a number is one, and an address may be written as in a URL.
func TestJARLOptions(t *testing.T) {
	t.Parallel()
	for _, options := range []string{"--ip=localhost", "--ip=[::1]", "--ip=::1", "--ip=0.0.0.0"} {
		args := "jarl --service s --requests=+1 --period 01 --port " + freePort(t) + " " + options
		s := startProcess(t, binary(), strings.Fields(args)...)
		// 0, unless somebody else's client looked for a server of its own at this port.
		if got := s.seconds(t); got > 1 {
			t.Errorf("with %s the first answer is %.3f, want one of the first second", options, got)
		}
	}
}

// admissions are who is let in by a listener of one call an hour, and what two connections are told.
var admissions = []struct{ fact, flags, config, first, second string }{
	{"nothing is said", "", "", "0.0", "3…"},
	{"the longest delay is short", "--max-delay 1s", "max-delay: 1s", "0.0", ""},
	{"the longest delay is long", "--max-delay 2h", "max-delay: 2h", "0.0", "3…"},
	{"others are allowed", "--allow 10.0.0.0/8 --allow ::1", "allow: [10.0.0.0/8, '::1']", "", ""},
	{"this machine is allowed", "--allow 10.0.0.0/8 --allow 127.0.0.0/8", "allow: [10.0.0.0/8, 127.0.0.1]",
		"0.0", "3…"},
}

// Beyond the longest delay, and for clients that are not allowed, a connection is closed without a byte.
// There is no longest delay unless one is given.
func TestJARLAdmission(t *testing.T) {
	t.Parallel()
	for _, a := range admissions {
		inFile := "{listen: '127.0.0.1:0', name: api, requests: 1, period: 1h, " + a.config + "}"
		served := start(t, "--config", configFile(t, "jarl: ["+strings.Replace(inFile, ", }", "}", 1)+"]\n"))
		addresses := []string{served.jarlAddress(t, "api")}
		if a.flags != "" {
			flags := append([]string{"--requests", "1", "--period", "3600"}, strings.Fields(a.flags)...)
			addresses = append(addresses, startJARL(t, flags...).address)
		}
		for _, address := range addresses {
			wantTold(t, a.fact, address, a.first)
			wantTold(t, a.fact, address, a.second)
		}
	}
}

// wantTold connects once.
func wantTold(t *testing.T, fact, address, want string) {
	t.Helper()
	got, err := askJARL(t.Context(), address)
	if err != nil || !matches(want, got) {
		t.Errorf("%s: a connection is told %q, %v, want %q", fact, got, err, want)
	}
}
