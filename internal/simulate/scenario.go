// Package simulate runs the servers and clients of capacity leases in virtual time: whole trees of servers,
// thousands of clients, a network that delays and loses, crashes, elections and sudden wishes. An hour takes
// seconds, and a seed is all it takes to see the same again.
//
// What decides is the very code of package capacity: its Server in every server, its Holder in every client.
// The simulation is the clock, the network and the fate of the processes around them.
package simulate

import (
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

// A Scenario is what happens, as a file tells it. Read makes one.
type Scenario struct {
	Name  string // the file's name without folder and ending
	Title string

	duration, sample, from time.Duration
	settled                float64 // the share of what could be handed out that counts as recovered
	takes                  time.Duration
	oneName                bool // all tasks of a server have one name at its parent

	resource  capacity.Template
	network   network
	levels    []level // from the root down
	groups    []group
	happening []happening
	mishaps   mishaps
	expected  []expectation
}

// A network is how messages travel, one way.
type network struct {
	delay   span
	loss    float64       // how many of 1 get lost
	timeout time.Duration // after which a caller gives up
	skew    time.Duration // how far a process's clock is off at most, either way
}

// A span is a time between two, both included.
type span struct{ least, most time.Duration }

// A level is all servers at one distance from the root.
type level struct {
	name  string
	count int // below each server of the level above
	tasks int // processes of each server: one is master, the others stand by
}

// A group is clients with the same wishes, below each server of a level.
type group struct {
	place        int    // in Scenario.groups
	name         string // for expectations; may be empty
	of           string // level
	recipe       recipe
	every, reset time.Duration // how often the wish changes, and after what it begins anew; 0 never
	priority     int64
	start        span          // when they come
	minRefresh   time.Duration // a client never asks more often
}

// deed says what happens.
type deed string

// What can happen.
const (
	lose      deed = "lose"      // the master is no master any more, and knows
	elect     deed = "elect"     // one of the tasks becomes master
	election  deed = "election"  // another task takes over at once
	crash     deed = "crash"     // the master's process ends, with all it knew
	restart   deed = "restart"   // the master ends in good order and begins again, with its saved leases
	partition deed = "partition" // nothing gets through between a server and its parent
	cut       deed = "cut"       // nothing gets through between some clients and their servers
	loss      deed = "loss"      // messages get lost everywhere
	spike     deed = "spike"     // some clients want much
	leave     deed = "leave"     // some clients go, and give back what they have
	vanish    deed = "vanish"    // some clients go, and say nothing
	resize    deed = "resize"    // the capacity is another
)

// A happening is something that happens once, at its time.
type happening struct {
	at      time.Duration
	do      deed
	node    string  // a server's name, a level for any of it, or "any"
	clients amount  // how many of them
	change  change  // of wants or of capacity
	lost    float64 // of messages
	lasts   span    // zero: for ever
	weight  float64 // among mishaps
}

// An amount is a number of clients, or a share of them.
type amount struct {
	count int
	share float64
}

// A change is a new value, or what is added to the old one.
type change struct {
	to, add float64
	set     bool // to is meant
}

// mishaps are what happens by chance.
type mishaps struct {
	from, every time.Duration
	kinds       []happening
}
