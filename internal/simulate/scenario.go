// Package simulate runs the servers and clients of capacity leases in virtual time: whole trees of servers,
// thousands of clients, a network with delays and losses, crashes, elections and sudden demand. An hour takes
// seconds, and the same seed repeats a run exactly.
//
// Decisions are made by the code of package capacity itself: its Server in every server, its Holder in every
// client. The simulation supplies the clock, the network and the faults around them.
package simulate

import (
	"embed"
	"path"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// The limits of a scenario: what one machine can still run in sensible time and memory.
const (
	MaxSize     = 1 << 20              // bytes of a scenario file
	MaxDuration = 366 * 24 * time.Hour // of virtual time
	MaxServers  = 10_000               // nodes of the tree
	MaxClients  = 1_000_000

	maxTasks  = 100   // of one server
	maxEvents = 1_000 // in the file
)

// A Scenario is the content of a scenario file. Read makes one.
type Scenario struct {
	Name  string // the file's name without folder and ending
	Title string

	duration, sampleEvery, measureFrom time.Duration
	recoveredShare                     float64 // of what could be handed out
	takeoverTime                       time.Duration
	oneName                            bool // all tasks of a server have one name at its parent

	resource     capacity.Template
	network      networkModel
	levels       []serverLevel // from the root down
	groups       []clientGroup
	events       []scheduledEvent
	randomEvents randomEvents
	expectations []expectation
}

// A networkModel says how messages travel, one way.
type networkModel struct {
	delay   timeRange
	loss    float64       // how many of 1 get lost
	timeout time.Duration // after which a caller gives up
	skew    time.Duration // how far a process's clock is off at most, either way
}

// A timeRange is a range of durations, both ends included.
type timeRange struct{ least, most time.Duration }

// A serverLevel is all servers at one distance from the root.
type serverLevel struct {
	name  string
	count int // below each server of the level above
	tasks int // processes of each server: one is master, the others stand by
}

// A clientGroup is clients with the same recipe, below each server of a level.
type clientGroup struct {
	position     int    // in Scenario.groups
	name         string // for expectations; may be empty
	of           string // level
	recipe       recipe
	every, reset time.Duration // between changes of the wants, and until they start again; 0 means never
	priority     int64
	start        timeRange     // when they come
	minRefresh   time.Duration // a client never asks more often
}

// An eventKind says what happens.
type eventKind string

// What can happen.
const (
	eventLose      eventKind = "lose"      // the master is no master any more, and knows
	eventElect     eventKind = "elect"     // one of the tasks becomes master
	eventElection  eventKind = "election"  // another task takes over at once
	eventCrash     eventKind = "crash"     // the master's process ends, with all it knew
	eventRestart   eventKind = "restart"   // the master ends in good order and starts again with its leases
	eventPartition eventKind = "partition" // nothing gets through between a server and its parent
	eventCut       eventKind = "cut"       // nothing gets through between some clients and their servers
	eventLoss      eventKind = "loss"      // messages get lost everywhere
	eventSpike     eventKind = "spike"     // some clients want much
	eventLeave     eventKind = "leave"     // some clients go, and give back what they have
	eventVanish    eventKind = "vanish"    // some clients go, and say nothing
	eventResize    eventKind = "resize"    // the capacity is another
)

// A scheduledEvent happens once, at its time.
type scheduledEvent struct {
	at       time.Duration
	kind     eventKind
	node     string          // a server's name, a level for any of it, or "any"
	clients  clientSelection // how many of them
	change   valueChange     // of wants or of capacity
	loss     float64         // of messages
	duration timeRange       // zero: forever
	weight   float64         // among random events
}

// A clientSelection is a number of clients, or a share of them.
type clientSelection struct {
	count int
	share float64
}

// A valueChange is a new value, or what is added to the old one.
type valueChange struct {
	to, add float64
	set     bool // to is meant
}

// randomEvents are events that happen at random.
type randomEvents struct {
	from, every time.Duration
	kinds       []scheduledEvent
}

//go:embed scenarios/*.yaml
var files embed.FS

// Shipped returns the names of the scenarios that are part of the program.
func Shipped() []string {
	entries, err := files.ReadDir("scenarios")
	if err != nil {
		panic(err) // it is embedded
	}
	var names []string
	for _, entry := range entries {
		names = append(names, strings.TrimSuffix(entry.Name(), path.Ext(entry.Name())))
	}
	return names
}

// File returns the text of a scenario that is part of the program.
func File(name string) ([]byte, bool) {
	text, err := files.ReadFile("scenarios/" + name + ".yaml")
	return text, err == nil
}
