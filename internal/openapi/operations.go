package openapi

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse"
)

//go:embed about.txt
var about string

// About is what there is to know of all operations, in paragraphs.
func About() string { return strings.TrimSpace(about) }

// operations are the texts of all operations; see operationTexts.
//
//go:embed operations.json
var operations []byte

// operationTexts is the content of operations.json.
type operationTexts struct {
	Tags []Tag // the kinds come first, in the order in which a reader meets them

	// Limits are the parameters of a limit that only limiters of one kind have.
	Limits map[string]string

	// Kinds has the operations of each kind by their names. All limiters share those of "limiter"; those of
	// "every" are the same for all kinds that have them.
	Kinds map[string]map[string]operationText

	// Others are the operations that do not belong to a kind.
	Others []operationText
}

// An operationText is an operation as the file has it. Those of kinds have neither id, tag nor path there,
// and their method is empty if GET and POST do the same.
type operationText struct {
	ID, Tag, Method, Path string
	Summary, Description  string

	Parameters string // the names of the components
	Limit      bool   // the parameters of a limit come before them
	Answers    string // each a status and the name of the component

	Body *struct {
		Schema   string
		Example  json.RawMessage
		Optional bool
	}
}

func readOperations() (texts operationTexts, err error) {
	if err = json.Unmarshal(operations, &texts); err != nil {
		err = fmt.Errorf("reading operations.json: %w", err)
	}
	return texts, err
}

// newOperation makes an operation of its text.
func newOperation(text *operationText) Operation {
	op := Operation{
		ID: text.ID, Tag: text.Tag, Method: text.Method, Path: text.Path,
		Summary: text.Summary, Description: text.Description, Parameters: strings.Fields(text.Parameters),
	}
	words := strings.Fields(text.Answers)
	// Two words for each: the status and the component.
	for i := 0; i+1 < len(words); i += 2 {
		status, _ := strconv.Atoi(words[i]) // 0 is found by a test
		op.Responses = append(op.Responses, Response{Status: status, Component: words[i+1]})
	}
	if b := text.Body; b != nil {
		op.Body = &Body{Schema: b.Schema, Example: string(b.Example), Optional: b.Optional}
	}
	return op
}

// allOperations returns the operations of all kinds, under /v1, and then the others.
func (t *operationTexts) allOperations() (all []Operation) {
	for _, tag := range t.Tags {
		if kind, ok := gatehouse.ParseKind(tag.Name); ok {
			all = append(all, t.kindOperations(kind)...)
		}
	}
	for i := range t.Others {
		all = append(all, newOperation(&t.Others[i]))
	}
	for i := range all {
		// At the end, as statuses that are there already stay.
		all[i].addUserResponses()
	}
	return all
}

// publicPaths need no token where there are users.
var publicPaths = []string{"/healthz", "/readyz", "/.well-known/ready"}

// addUserResponses adds how requests are refused for their user. A status that stands for a refusal of
// another sort already keeps that.
func (op *Operation) addUserResponses() {
	if slices.Contains(publicPaths, op.Path) {
		return
	}
	for _, r := range []Response{
		{Status: http.StatusUnauthorized, Component: "Unauthenticated"},
		{Status: http.StatusForbidden, Component: "Forbidden"},
		{Status: http.StatusTooManyRequests, Component: "OverQuota"},
	} {
		// The document has one response for each status.
		if !slices.ContainsFunc(op.Responses, func(known Response) bool { return known.Status == r.Status }) {
			op.Responses = append(op.Responses, r)
		}
	}
}

// kindOperations returns the operations of one kind.
func (t *operationTexts) kindOperations(kind gatehouse.Kind) (all []Operation) {
	for op := gatehouse.OpAcquire; op <= gatehouse.OpDelete; op++ {
		if !kind.Has(op) {
			continue
		}
		text := t.describeOperation(kind, op)
		if text.Method != "" {
			all = append(all, newOperation(&text))
			continue
		}
		// Generators need a different id for each method.
		get, post := text, text
		get.Method, post.Method, post.ID = "get", "post", "post"+upperFirst(text.ID)
		all = append(all, newOperation(&get), newOperation(&post))
	}
	// Lists and deletions by prefix are no operations of the grammar.
	tag, id := kind.String(), upperFirst(kind.String())
	return append(all, newOperation(&operationText{
		ID: "list" + id, Tag: tag, Method: "get", Path: "/v1/" + tag, Summary: "List names",
		Description: "With details=true each is an object, with what is used and who waits.",
		Parameters:  "after limit prefixOfList details", Answers: "200 Names" + always,
	}), newOperation(&operationText{
		ID: "delete" + id + "Prefix", Tag: tag, Method: "delete", Path: "/v1/" + tag,
		Summary: "Delete names that begin alike", Parameters: "prefix confirm after",
		Answers: "200 Deleted" + always,
	}))
}

// always are the answers that every operation on a name has.
const always = " 400 Invalid 403 Forbidden 503 Unavailable"

// describeOperation says what an operation of a kind is. One that the file lacks has no summary, which a
// test finds.
func (t *operationTexts) describeOperation(kind gatehouse.Kind, op gatehouse.Op) operationText {
	text, name := t.findText(kind, op), op.String()
	text.ID, text.Tag = name+upperFirst(kind.String()), kind.String()
	text.Path = "/v1/" + kind.String() + "/{name}"
	if op != gatehouse.OpDelete {
		text.Path += "/" + name
	}
	text.Parameters = "name " + t.operationParameters(kind, op)
	// Only a request that can be refused can choose the status of a refusal: it may ask for 429.
	_, refusal, refuses := strings.Cut(text.Answers, "408 ")
	if refuses {
		text.Parameters += " refusal"
		text.Answers += " 429 " + strings.Fields(refusal)[0]
	}
	switch op {
	case gatehouse.OpStats:
		text.Answers = "200 " + statsSchema(kind) + " " + text.Answers
	case gatehouse.OpHolders, gatehouse.OpWaiters: // lists have a form of their own
	default:
		// With details any decision is a 200 with JSON. For statistics no generator has a type of that.
		text.Parameters += " details"
		if !strings.Contains(text.Answers, "200 ") {
			text.Answers += " 200 Decided"
		}
	}
	// The first response must be one of success, so the common errors come last.
	text.Answers += always
	return text
}

// findText finds the text of an operation in the file.
func (t *operationTexts) findText(kind gatehouse.Kind, op gatehouse.Op) operationText {
	family := kind.String()
	if kind.Limiter() {
		family = "limiter"
	}
	// A kind may say more of an operation than what holds for every kind.
	if text, own := t.Kinds[family][op.String()]; own {
		return text
	}
	return t.Kinds["every"][op.String()]
}

// operationParameters are the parameters that an operation acts on. It reads and checks the others too.
func (t *operationTexts) operationParameters(kind gatehouse.Kind, op gatehouse.Op) string {
	text := t.findText(kind, op)
	if !text.Limit {
		return text.Parameters
	}
	return "size interval " + t.Limits[kind.String()] + " limits zone " + text.Parameters
}

// statsSchema is the name of the response that has a kind's statistics.
func statsSchema(kind gatehouse.Kind) string {
	switch {
	case kind.Limiter():
		return "LimiterStats"
	// A lock is a semaphore of size 1, and has the same figures.
	case kind == gatehouse.Lock:
		return "SemaphoreStats"
	}
	return upperFirst(kind.String()) + "Stats"
}

func upperFirst(word string) string { return strings.ToUpper(word[:1]) + word[1:] }
