package openapi

import (
	_ "embed"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse"
)

//go:embed about.txt
var about string

// About is what there is to know of all operations, in paragraphs.
func About() string { return strings.TrimSpace(about) }

// kinds are the kinds of controllers in the order in which a reader meets them.
var kinds = []struct {
	kind        gatehouse.Kind
	description string
}{
	{gatehouse.TokenBucket, "N per interval, refilled at its end."},
	{gatehouse.GCRA, "N per interval, spread evenly, with a burst."},
	{gatehouse.FixedWindow, "N per window. The count starts at 0 in each window."},
	{gatehouse.SlidingWindow, "N in the last interval, estimated from a few counts."},
	{gatehouse.SlidingLog, "N in any interval, exactly."},
	{gatehouse.Pace, "A schedule: every request gets its start, and no interval has more than N."},
	{gatehouse.Semaphore, "N at once."},
	{gatehouse.Lock, "One at a time."},
	{gatehouse.Event, "Something happened."},
	{gatehouse.Watchdog, "Something has fallen silent."},
	{gatehouse.Counter, "A number."},
	{gatehouse.Barrier, "All are there."},
}

func allTags() (all []Tag) {
	for _, k := range kinds {
		all = append(all, Tag{k.kind.String(), k.description})
	}
	return append(all,
		Tag{"grants", "One decision over several names: all or nothing. And many decisions in one call."},
		Tag{"capacity", "Leases on shares of what many clients use, as doorman's. Only with --grpc."},
		Tag{"server", "Health and metrics."})
}

// An operationText is what an operation of a kind is, beside its parameters. The answers that every
// operation has are left out.
type operationText struct {
	summary, description string

	answers string // each a status and the name of the component
}

// always are the answers that every operation on a name has.
const always = " 400 Invalid 403 Forbidden 503 Unavailable"

func parseResponses(answers string) (all []Response) {
	words := strings.Fields(answers)
	// Two words for each: the status and the component.
	for i := 0; i+1 < len(words); i += 2 {
		status, _ := strconv.Atoi(words[i]) // 0 is found by a test
		all = append(all, Response{Status: status, Component: words[i+1]})
	}
	return all
}

var limiterOperations = map[gatehouse.Op]operationText{
	gatehouse.OpAcquire: {"Take, and wait if necessary",
		"The limit is in force from now on. A request without any part of a limit uses the one in force.",
		"204 Taken 408 RefusedLimit 409 Conflict"},
	gatehouse.OpPeek: {"Ask whether it could be taken now",
		"Takes and changes nothing. A cost of 0 is allowed. Without size, interval, burst and limits it " +
			"asks about the limit in force.",
		"204 Fits 404 Missing 408 RefusedLimit 409 Conflict"},
	gatehouse.OpDelay: {"Ask how long it is until it could be taken",
		"The body is a wait in milliseconds. Takes and changes nothing. Without size, interval, burst and " +
			"limits it asks about the limit in force.",
		"200 Delay 404 Missing 408 RefusedLimit 409 Conflict"},
	gatehouse.OpReserve: {"Take the earliest free place",
		"The body is the milliseconds to wait before going. A key is what cancel wants; a key that has a " +
			"place ahead already gets the same place.",
		"200 Reserved 408 RefusedLimit 409 Conflict"},
	gatehouse.OpCancel: {"Give a reserved place back", "The place must lie ahead.",
		"204 GivenBack 404 Missing 409 Conflict"},
	gatehouse.OpRefund: {"Give back what was taken and not used",
		"Gives back no more than what still counts.",
		"204 GivenBack 404 Missing"},
	gatehouse.OpCharge: {"Charge an amount that was spent already",
		"Any amount beyond the limit is a debt that the following windows repay. A request without any " +
			"part of a limit uses the one in force.",
		"204 Charged 404 Missing 409 Conflict"},
	gatehouse.OpReset: {"Forget all that was taken and reserved", "The limit stays in force.",
		"204 GivenBack 404 Missing"},
	gatehouse.OpFeedback: {"Tell what a third party has answered",
		"A status of 429, or of 503 with retry-after, pauses the limiter for everybody; those who wait are " +
			"held. Afterwards it starts again slowly. A remaining below what is left here is adopted " +
			"until reset.",
		"204 GivenBack 404 Missing"},
}

// holdOperations are those of a kind that is held. Their summaries differ in what is taken and given back.
func holdOperations(take, giveBack string) map[gatehouse.Op]operationText {
	return map[gatehouse.Op]operationText{
		gatehouse.OpAcquire: {take, "A key that holds already gets the same hold.",
			"200 Held 408 RefusedLimit 409 Conflict"},
		gatehouse.OpRelease: {giveBack, "", "204 Done 409 Conflict"},
		gatehouse.OpRenew: {"Move the end of a hold", "The hold ends that long from now.",
			"204 Renewed 409 Conflict"},
	}
}

var ownOperations = map[gatehouse.Kind]map[gatehouse.Op]operationText{
	gatehouse.Semaphore: holdOperations("Take slots", "Give slots back"),
	gatehouse.Lock:      holdOperations("Take the lock", "Give the lock back"),
	gatehouse.Event: {
		gatehouse.OpWait: {"Wait for the event", "If the event was sent before, the response comes at once.",
			"200 SentBody 204 SentHeader 408 Refused 409 Conflict"},
		gatehouse.OpSend: {"Send the event", "An event is sent once; DELETE makes it new.",
			"204 Done 409 Conflict"},
	},
	gatehouse.Watchdog: {
		gatehouse.OpWait: {"Wait for silence",
			"Responds when no kick has come for as long as the last one allowed.",
			"204 Done 408 Refused 409 Conflict"},
		gatehouse.OpKick: {"Say that all is well", "expires is the time until the next kick is overdue.",
			"204 Done"},
	},
	gatehouse.Counter: {
		gatehouse.OpCount: {"Add to the counter", "The body is the new value.",
			"200 Number 409 Conflict"},
		gatehouse.OpValue: {"Read the counter", "A counter that was never used is 0.",
			"200 Number"},
		gatehouse.OpReset: {"Set the counter", "", "204 Done"},
	},
	gatehouse.Barrier: {
		gatehouse.OpWait: {"Wait until all are there", "The first request that waits sets the size.",
			"204 Done 408 Refused 409 Conflict"},
	},
}

// describeOperation says what an operation of a kind is. One that the tables lack has no summary, which a
// test finds.
func describeOperation(kind gatehouse.Kind, op gatehouse.Op) operationText {
	switch {
	case op == gatehouse.OpDelete && kind == gatehouse.Counter:
		return operationText{"Forget this name", "", "204 Done 404 Missing"}
	case op == gatehouse.OpDelete:
		return operationText{"Forget this name", "Requests that wait there get 409.",
			"204 Done 404 Missing"}
	case op == gatehouse.OpStats:
		return operationText{"Read what happened so far", "Changes nothing.",
			"200 " + statsSchema(kind) + " 404 Missing"}
	case managedOperations[op].summary != "":
		return managedOperations[op]
	case kind.Limiter():
		// All limiters share their operations and texts.
		return limiterOperations[op]
	}
	return ownOperations[kind][op]
}

// statsSchema is the name of the response that has a kind's statistics.
func statsSchema(kind gatehouse.Kind) string {
	switch {
	case kind.Limiter():
		return "LimiterStats"
	case kind == gatehouse.Lock:
		return "SemaphoreStats"
	}
	return upperFirst(kind.String()) + "Stats"
}

func upperFirst(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// kindOperations are the operations of all kinds, under /v1.
func kindOperations() (all []Operation) {
	for _, k := range kinds {
		tag, id := k.kind.String(), upperFirst(k.kind.String())
		root := "/v1/" + tag
		// Delete and list have paths of their own, without the operation's name, and follow below.
		for op := gatehouse.OpAcquire; op < gatehouse.OpDelete; op++ {
			if k.kind.Has(op) {
				all = append(all, callOperations(k.kind, op)...)
			}
		}
		all = append(all, kindOperation(k.kind, gatehouse.OpDelete, "delete", root+"/{name}"), Operation{
			ID: "list" + id, Tag: tag, Method: "get", Path: root, Summary: "List names",
			Description: "With details=true each is an object, with what is used and who waits.",
			Parameters:  []string{"after", "limit", "prefixOfList", "details"},
			Responses:   parseResponses("200 Names 400 Invalid 403 Forbidden 503 Unavailable"),
		}, Operation{
			ID: "delete" + id + "Prefix", Tag: tag, Method: "delete", Path: root,
			Summary:    "Delete names that begin alike",
			Parameters: []string{"prefix", "confirm", "after"},
			Responses:  parseResponses("200 Deleted 400 Invalid 403 Forbidden 503 Unavailable"),
		})
	}
	return all
}

// callOperations are the methods of one operation on a name. What only reads can be a POST too, but has no
// need to be.
func callOperations(kind gatehouse.Kind, op gatehouse.Op) []Operation {
	get := kindOperation(kind, op, "get", "/v1/"+kind.String()+"/{name}/"+op.String())
	// GET is safe to repeat for these.
	switch op {
	case gatehouse.OpPeek, gatehouse.OpDelay, gatehouse.OpValue, gatehouse.OpStats, gatehouse.OpHolders,
		gatehouse.OpWaiters:
		return []Operation{get}
	case gatehouse.OpEvict, gatehouse.OpBump, gatehouse.OpClose, gatehouse.OpOpen:
		// These are a POST alone.
		get.Method = "post"
		return []Operation{get}
	}
	// Generators need a different id for each method.
	post := get
	post.ID, post.Method = "post"+upperFirst(get.ID), "post"
	return []Operation{get, post}
}

func kindOperation(kind gatehouse.Kind, op gatehouse.Op, verb, path string) Operation {
	m := describeOperation(kind, op)
	// A request may ask for 429 in place of 408.
	if _, refusal, refuses := strings.Cut(m.answers, "408 "); refuses {
		m.answers += " 429 " + strings.Fields(refusal)[0] // by choice of the request
	}
	// With details any decision can be a 200 with JSON.
	if !strings.Contains(m.answers, "200 ") {
		m.answers += " 200 Decided"
	}
	// The first response must be one of success, so the common errors come last.
	return Operation{
		ID: op.String() + upperFirst(kind.String()), Tag: kind.String(), Method: verb, Path: path,
		Summary: m.summary, Description: m.description,
		Parameters: slices.Concat([]string{"name"}, operationParameters(kind, op), replyParameters(op, m)),
		Responses:  parseResponses(m.answers + always),
	}
}

// replyParameters are the parameters that say how an operation is to be answered. Statistics are JSON
// anyway; with details they are a part of other JSON, for which no generator has a type.
func replyParameters(op gatehouse.Op, m operationText) []string {
	if op == gatehouse.OpStats || isReport(op) {
		return nil
	}
	// Only a request that can be refused can choose the status of a refusal.
	if strings.Contains(m.answers, "408 ") {
		return []string{"refusal", "details"}
	}
	return []string{"details"}
}

// operationParameters are the parameters that an operation acts on. It reads and checks the others too.
func operationParameters(kind gatehouse.Kind, op gatehouse.Op) []string {
	switch op {
	case gatehouse.OpAcquire:
		// Only limiters have a limit over time; a lock has neither size nor cost to choose.
		if kind.Limiter() {
			return append(append(limitParameters(kind), "cost", "maxwait", "parents"), ownerParameters...)
		}
		if kind == gatehouse.Lock {
			return append([]string{"key", "expires", "extend", "maxwait"}, ownerParameters...)
		}
		return append([]string{"size", "cost", "key", "expires", "extend", "maxwait"}, ownerParameters...)
	case gatehouse.OpPeek, gatehouse.OpDelay:
		return append(limitParameters(kind), "cost", "parents")
	case gatehouse.OpCharge:
		return append(limitParameters(kind), "cost")
	case gatehouse.OpReserve:
		return append(limitParameters(kind), "cost", "key")
	case gatehouse.OpCancel:
		return []string{"key"}
	case gatehouse.OpRefund:
		return []string{"cost"}
	case gatehouse.OpFeedback:
		return append(limitParameters(kind), "status", "retry-after", "remaining", "reset")
	case gatehouse.OpRelease:
		return []string{"key", "fence"}
	case gatehouse.OpRenew:
		return []string{"key", "expires", "fence"}
	// A barrier has to know how many must come.
	case gatehouse.OpWait:
		if kind == gatehouse.Barrier {
			return append([]string{"size", "maxwait"}, ownerParameters...)
		}
		return append([]string{"maxwait"}, ownerParameters...)
	case gatehouse.OpSend:
		return []string{"message"}
	case gatehouse.OpKick:
		return []string{"expires"}
	case gatehouse.OpCount:
		return []string{"amount"}
	case gatehouse.OpReset:
		// The reset of a limiter has no parameter.
		if kind == gatehouse.Counter {
			return []string{"value"}
		}
	}
	return managedParameters(op)
}

// limitParameters are the parameters that say a limiter's limit.
func limitParameters(kind gatehouse.Kind) []string {
	all := []string{"size", "interval"}
	switch kind {
	case gatehouse.GCRA:
		all = append(all, "burst")
	case gatehouse.SlidingWindow:
		// The modes differ from kind to kind, so each has a component of its own.
		all = append(all, "modeOfSlidingwindow")
	case gatehouse.Pace:
		all = append(all, "modeOfPace", "guard")
	}
	// Every limiter has these two.
	return append(all, "limits", "zone")
}

// otherOperations are those of capacity and of the server itself.
func otherOperations() []Operation {
	// Every page of capacity can end in these ways.
	const page = "200 Page 400 Invalid 403 Forbidden 404 Missing 503 Unavailable"
	// The server's own pages are plain text for probes and scrapers.
	server := func(id, path, summary string) Operation {
		return Operation{ID: id, Tag: "server", Method: "get", Path: path, Summary: summary,
			Responses: parseResponses("200 Text 503 Unavailable")}
	}
	return []Operation{
		{
			ID: "getCapacity", Tag: "capacity", Method: "post", Path: "/v1/capacity/get",
			Summary: "Get leases",
			Description: "Asks for shares of any number of resources, in one request; the answer has " +
				"them in the same order. Ask again after refresh_interval, with the lease you have as " +
				"`has`. It is GetCapacity of doorman's protocol.",
			Body: &Body{Schema: "GetCapacity",
				Example: `{"client_id": "me", "resource": [{"resource_id": "database", "wants": 3}]}`},
			Responses: parseResponses("200 Leases 400 Invalid 403 Forbidden 503 Unavailable"),
		},
		{
			ID: "releaseCapacity", Tag: "capacity", Method: "post", Path: "/v1/capacity/release",
			Summary:     "Give leases back",
			Description: "What is not held is no error. It is ReleaseCapacity of doorman's protocol.",
			Body: &Body{Schema: "ReleaseCapacity",
				Example: `{"client_id": "me", "resource_id": ["database"]}`},
			Responses: parseResponses("200 Released 400 Invalid 403 Forbidden 503 Unavailable"),
		},
		{
			ID: "capacity", Tag: "capacity", Method: "get", Path: "/capacity",
			Summary:    "Show the server and its resources",
			Parameters: []string{"after", "format", "limit", "resource"}, Responses: parseResponses(page),
		},
		{
			ID: "capacityOfResource", Tag: "capacity", Method: "get", Path: "/capacity/{name}",
			Summary:    "Show a resource and its leases",
			Parameters: []string{"name", "after", "format", "limit"}, Responses: parseResponses(page),
		},
		{
			ID: "cycles", Tag: "server", Method: "get", Path: "/v1/cycles",
			Summary:     "List owners that wait for each other",
			Description: "Of those that wait at this server, for whoever holds.",
			Responses:   parseResponses("200 Cycles 503 Unavailable"),
		},
		server("healthz", "/healthz", "Is the server alive"),
		server("readyz", "/readyz", "Should requests be sent here"),
		server("wellKnownReady", "/.well-known/ready", "Should requests be sent here, as bouncer has it"),
		server("metrics", "/metrics", "Statistics for Prometheus"),
	}
}
