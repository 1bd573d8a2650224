package activity

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// The limits of a search.
const (
	// MaxRows is how many names one search returns at most.
	MaxRows = 500

	// maxScanned is how many names a search looks at, and sharedScanned where that goes over the network.
	maxScanned    = 250_000
	sharedScanned = 10_000

	// A result is used again for costFactor times as long as it took, within these bounds: however many
	// people look at the same, a search takes little of a processor.
	costFactor = 20
	freshFor   = time.Second
	maxFresh   = 10 * time.Second
	maxCached  = 32
)

// The orders of a search.
const (
	sortBusy    = "busy" // those at which most wait come first, then those that are asked most
	sortName    = "name"
	sortUsed    = "used"
	sortWaiting = "waiting"
	sortGranted = "granted"
	sortRefused = "refused"
	sortLastUse = "last"
)

// Sorts are all orders of a search.
func Sorts() []string {
	return []string{sortBusy, sortName, sortUsed, sortWaiting, sortGranted, sortRefused, sortLastUse}
}

// A Query is a search for names.
type Query struct {
	Kind    gatehouse.Kind // 0 for all kinds
	Text    string         // that the name has, in any letter case; "" for all names
	Sort    string
	Reverse bool
	Limit   int  // 1 to MaxRows
	View    View // of the user who asks; it must be comparable
}

// A Row is what a search and a frame tell of one name.
type Row struct {
	Key gatehouse.Key

	Limits        string // such as 5/1m; only a search has them
	Size, Used    int64
	Holders       int64
	Waiting       int64
	Granted       int64 // since the name began
	Refused       int64
	GrantedRate   float64 // a second
	RefusedRate   float64
	HasRates      bool      // the rates are known
	LastUse       time.Time // the zero time if it was not noticed
	QuietSince    time.Time // how long it is known not to have been used, where LastUse is not known
	Since         time.Time // the name began
	Closed        bool
	Gone          bool // there is no such name any more; only a frame says so
	usedFraction  float64
	totalActivity int64
}

// A SearchResult is the first rows of a search in its order.
type SearchResult struct {
	Rows []Row // by the names that the gate knows; see Shown
	More bool  // there are more rows than were asked for

	// Partial says that there are more names than a search looks at.
	Partial bool

	// Fresh is how long the result is used again, and so after how long it is worth asking again.
	Fresh time.Duration
}

// Shown returns the rows by the names that a viewer knows.
func (r *SearchResult) Shown(view View) []Row { return shownRows(view, r.Rows) }

// A cachedResult is a result that others may use, too.
type cachedResult struct {
	SearchResult
	until time.Time
}

// A searchCache has the last results.
type searchCache struct {
	results map[Query]*cachedResult
}

// Search returns the first names in an order.
func (m *Monitor) Search(ctx context.Context, q Query) (SearchResult, error) {
	// In lower case before the cache is asked, so that searches which find the same share a result.
	q.Text = strings.ToLower(q.Text)
	m.mu.Lock()
	known := m.search.results[q]
	m.mu.Unlock()
	began := m.config.Now()
	if known != nil && began.Before(known.until) {
		return m.withRates(known.SearchResult), nil
	}
	// Without the lock: it takes long. Two that ask for the same at once both look, which is seldom.
	r, err := m.scanNames(ctx, q)
	if err != nil {
		return SearchResult{}, err
	}
	ended := m.config.Now()
	r.Fresh = min(max(freshFor, costFactor*ended.Sub(began)), maxFresh)
	m.mu.Lock()
	// Few are asked for at a time, so that there is no need to know which of them was not used for longest.
	if len(m.search.results) >= maxCached {
		clear(m.search.results)
	}
	m.search.results[q] = &cachedResult{SearchResult: r, until: ended.Add(r.Fresh)}
	m.mu.Unlock()
	return r, nil
}

// withRates returns a result with the rates of now. Its other figures are as old as the result.
func (m *Monitor) withRates(r SearchResult) SearchResult {
	// The rows of the cache are those of other requests, too.
	r.Rows = slices.Clone(r.Rows)
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range r.Rows {
		m.tracks[r.Rows[i].Key].lastSeen().addTo(&r.Rows[i])
	}
	return r
}

// A seen is what the history of a name knows of its last use.
type seen struct {
	granted, refused float64 // a second
	lastUse, began   time.Time
	known            bool
}

// lastSeen returns what is known from a history; t may be nil.
func (t *track) lastSeen() seen {
	// Before its first look a history knows nothing, not even that the name is quiet.
	if t == nil || !t.known {
		return seen{}
	}
	return seen{t.granted, t.refused, t.lastUse, t.began, true}
}

// trackedNames returns what is known of all names with a history: a search must not take the lock of the
// monitor for each name, as it has that of the store.
func (m *Monitor) trackedNames() map[gatehouse.Key]seen {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[gatehouse.Key]seen, len(m.tracks))
	for key, t := range m.tracks {
		all[key] = t.lastSeen()
	}
	return all
}

// addTo adds to a row what is known from its history.
func (s seen) addTo(row *Row) {
	if !s.known {
		return
	}
	row.GrantedRate, row.RefusedRate, row.LastUse, row.HasRates = s.granted, s.refused, s.lastUse, true
	// No use was noticed since the history began, which is the most that can be said.
	if s.lastUse.IsZero() {
		row.QuietSince = s.began
	}
}

// A scan is one search under way.
type scan struct {
	Query
	tracked map[gatehouse.Key]seen
	waiting map[gatehouse.Key]int
	scanned int
	most    int // names to look at
	rows    []Row
	isFull  bool // last is the last of the rows that are kept, as far as is known
	last    Row
	found   int // rows of this kind
	result  SearchResult
}

// scanNames looks at all names for those that a query asks for.
func (m *Monitor) scanNames(ctx context.Context, q Query) (SearchResult, error) {
	s := &scan{
		Query: q, tracked: m.trackedNames(), waiting: m.config.Gate.WaitingNames(), most: maxScanned,
	}
	// Each page of names there is a call over the network.
	if m.config.Shared {
		s.most = sharedScanned
	}
	for kind := gatehouse.Kind(1); kind < gatehouse.Grant; kind++ {
		head, some := s.headOf(kind)
		if q.Kind != 0 && q.Kind != kind || !some {
			continue
		}
		// In the order of names a kind can end early, and the next kind may still have names that come
		// before.
		s.found = 0
		visit := func(d gatehouse.NameDetails) bool {
			return s.visitName(gatehouse.Key{Kind: kind, Name: d.Name}, &d)
		}
		var err error
		// Of few that may be seen among many, those that may not are not even looked at.
		if head != "" || s.endsEarly() {
			err = m.config.Gate.VisitNames(ctx, gate.Prefix{Kind: kind, Prefix: head}, visit)
		} else {
			err = m.config.Gate.VisitAllNames(ctx, kind, visit)
		}
		// A shared store may take too long for all of a kind. What was found is of use, if there is anything.
		if err != nil && (s.scanned == 0 || ctx.Err() != nil) {
			return SearchResult{}, err
		}
		s.result.Partial = s.result.Partial || err != nil
	}
	s.keepFirst(q.Limit)
	s.result.Rows = s.rows
	return s.result, nil
}

// visitName looks at one name. It reports whether the search of this kind goes on.
func (s *scan) visitName(key gatehouse.Key, d *gatehouse.NameDetails) bool {
	if s.scanned >= s.most {
		s.result.Partial = true
		return false
	}
	// Names that are not shown count too: the bound is for the work.
	s.scanned++
	shown, ok := Show(s.View, key)
	if !ok || s.Text != "" && !strings.Contains(strings.ToLower(shown.Name), s.Text) {
		return true
	}
	s.found++
	row := s.newRow(key, d)
	// Most rows come behind those that are kept, which one look tells.
	if s.isFull && s.compareRows(row, s.last) > 0 {
		s.result.More = true
		return !s.endsEarly() || s.found <= s.Limit
	}
	s.rows = append(s.rows, row)
	// Rows are sorted now and then, which keeps few of them in memory.
	if len(s.rows) > 4*s.Limit {
		s.keepFirst(s.Limit)
	}
	return !s.endsEarly() || s.found <= s.Limit
}

// headOf is what all names of a kind begin with that are asked for; some is false if there are none.
func (s *scan) headOf(kind gatehouse.Kind) (head string, some bool) {
	if s.View == nil {
		return "", true
	}
	return s.View.Head(kind)
}

// endsEarly reports whether the first names of a kind, in their order, are all that is asked for.
func (s *scan) endsEarly() bool { return s.Sort == sortName && !s.Reverse }

// newRow returns the row of a name.
func (s *scan) newRow(key gatehouse.Key, d *gatehouse.NameDetails) Row {
	row := Row{
		Key: key, Limits: d.Limits, Size: d.Limit, Used: d.Used, Holders: int64(d.Holders),
		Waiting: int64(s.waiting[key]), Granted: d.Granted, Refused: d.Refused, Since: d.Since,
		Closed: d.Closed != nil, totalActivity: d.Granted + d.Refused,
	}
	if d.Limit > 0 {
		row.usedFraction = float64(d.Used) / float64(d.Limit)
	}
	s.tracked[key].addTo(&row)
	return row
}

// keepFirst sorts the rows and drops all but the first.
func (s *scan) keepFirst(most int) {
	slices.SortFunc(s.rows, s.compareRows)
	if len(s.rows) > most {
		s.rows = slices.Delete(s.rows, most, len(s.rows))
		s.result.More = true
	}
	// From now on a row that comes behind the last of these need not be kept.
	if len(s.rows) == most {
		s.isFull, s.last = true, s.rows[most-1]
	}
}

// compareRows orders rows. Numbers are in descending order, unless it is reversed.
func (s *scan) compareRows(a, b Row) int {
	var order int
	switch s.Sort {
	case sortName:
		order = cmp.Compare(a.Key.Name, b.Key.Name)
	case sortUsed:
		order = cmp.Or(cmp.Compare(b.usedFraction, a.usedFraction), cmp.Compare(b.Used, a.Used))
	case sortWaiting:
		order = cmp.Compare(b.Waiting, a.Waiting)
	case sortGranted:
		order = cmp.Or(cmp.Compare(b.GrantedRate, a.GrantedRate), cmp.Compare(b.Granted, a.Granted))
	case sortRefused:
		order = cmp.Or(cmp.Compare(b.RefusedRate, a.RefusedRate), cmp.Compare(b.Refused, a.Refused))
	case sortLastUse:
		order = cmp.Or(b.LastUse.Compare(a.LastUse), b.Since.Compare(a.Since))
	default:
		order = cmp.Or(cmp.Compare(b.Waiting, a.Waiting),
			cmp.Compare(b.GrantedRate+b.RefusedRate, a.GrantedRate+a.RefusedRate),
			cmp.Compare(b.totalActivity, a.totalActivity))
	}
	// Before the keys are compared, so that rows which are equal keep their order.
	if s.Reverse {
		order = -order
	}
	// Equal ones are always in the same order, so that rows do not jump about.
	return cmp.Or(order, compareKeys(a.Key, b.Key))
}
