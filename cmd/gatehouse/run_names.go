package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// A nameFlag is a flag that adds a name to what a run wants.
type nameFlag struct {
	shape string
	read  func(text string, to *runNames) error
	to    *runNames
}

// runNames are the names that a run wants, in the order of the flags.
type runNames struct {
	want      []gatehouse.Member
	watchdogs []kickedWatchdog
}

// A kickedWatchdog is kicked while the command runs.
type kickedWatchdog struct {
	name    string
	expires time.Duration
}

// Set implements [pflag.Value].
func (f *nameFlag) Set(text string) error { return f.read(text, f.to) }

// String implements [pflag.Value]. There is no default to show.
func (f *nameFlag) String() string { return "" }

// Type implements [pflag.Value]: it is how the help calls the value.
func (f *nameFlag) Type() string { return f.shape }

// readSemaphore reads NAME[:SIZE[:COST]]. It is read from the right, as names may have colons.
func readSemaphore(text string, to *runNames) error {
	name, last, found := cutLastNumber(text)
	if !found {
		return to.addMember(gatehouse.Semaphore, text)
	}
	if shorter, size, both := cutLastNumber(name); both {
		return to.addMember(gatehouse.Semaphore, shorter, "size", size, "cost", last)
	}
	return to.addMember(gatehouse.Semaphore, name, "size", last)
}

// cutLastNumber cuts ":NUMBER" off the end of a text.
func cutLastNumber(text string) (before, number string, found bool) {
	at := strings.LastIndexByte(text, ':')
	if at < 0 {
		return text, "", false
	}
	if _, err := strconv.ParseUint(text[at+1:], 10, 63); err != nil {
		return text, "", false
	}
	return text[:at], text[at+1:], true
}

// readLock reads NAME.
func readLock(text string, to *runNames) error { return to.addMember(gatehouse.Lock, text) }

// readLimit reads KIND/NAME=LIMITS, such as gcra/api=5/1s. The last = divides, as names may have some.
func readLimit(text string, to *runNames) error {
	path, limits := text, ""
	if at := strings.LastIndexByte(text, '='); at >= 0 {
		path, limits = text[:at], text[at+1:]
	}
	key, err := readKey(path)
	switch {
	case err != nil:
		return err
	case !key.Kind.Limiter():
		return fmt.Errorf("%s is no limiter, want one such as gcra/api=5/1s", key)
	// Then the limits in force decide.
	case limits == "":
		return to.addMember(key.Kind, key.Name)
	}
	return to.addMember(key.Kind, key.Name, "limits", limits)
}

// readWatchdog reads NAME[:DURATION].
func readWatchdog(text string, to *runNames) error {
	w := kickedWatchdog{text, gatehouse.DefaultExpires}
	if at := strings.LastIndexByte(text, ':'); at >= 0 {
		// Names may have colons: what is no length of time belongs to the name.
		if expires, err := time.ParseDuration(text[at+1:]); err == nil {
			w = kickedWatchdog{text[:at], expires}
		}
	}
	if fault := gatehouse.NameFault(w.name); fault != "" {
		return fmt.Errorf("the name %s", fault)
	}
	if w.expires < gatehouse.MinExpires {
		return fmt.Errorf("%s is too short, want at least %s", w.expires, gatehouse.MinExpires)
	}
	to.watchdogs = append(to.watchdogs, w)
	return nil
}

// readKey reads KIND/NAME.
func readKey(text string) (gatehouse.Key, error) {
	kindName, name, _ := strings.Cut(text, "/")
	kind, known := gatehouse.ParseKind(kindName)
	if !known {
		return gatehouse.Key{}, fmt.Errorf("%q has no kind, want KIND/NAME such as semaphore/gpu", text)
	}
	if fault := gatehouse.NameFault(name); fault != "" {
		return gatehouse.Key{}, fmt.Errorf("%q: the name %s", text, fault)
	}
	return gatehouse.Key{Kind: kind, Name: name}, nil
}

// addMember adds a name with parameters, each a name and a value as over HTTP.
func (n *runNames) addMember(kind gatehouse.Kind, name string, parameters ...string) error {
	if fault := gatehouse.NameFault(name); fault != "" {
		return fmt.Errorf("the name %s", fault)
	}
	// By the table of the protocols, so that a flag allows what a request does.
	var values params.MemberValues
	for i := 0; i < len(parameters); i += 2 {
		if err := values.Set([]byte(parameters[i]), []byte(parameters[i+1])); err != nil {
			return err
		}
	}
	member := gatehouse.Member{Key: gatehouse.Key{Kind: kind, Name: name}}
	if err := values.Read(&member); err != nil {
		return err
	}
	n.want = append(n.want, member)
	return nil
}

// hold reports whether any of the names is held, so that it can be lost.
func (n *runNames) hold() bool {
	for i := range n.want {
		if params.HasHolders(n.want[i].Key.Kind) {
			return true
		}
	}
	return false
}
