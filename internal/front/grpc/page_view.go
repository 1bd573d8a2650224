package grpc

import (
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
)

// What the pages show, and what they answer as JSON: a copy, made while nothing could change.

// A pagination says where in a list of rows a page is, and which page follows.
type pagination struct {
	Next  string `json:"next"` // parameter after of the next page; empty on the last
	After string `json:"-"`
	Limit int    `json:"-"`
	Link  string `json:"-"` // to the first page
}

// NextLink is the path of the next page.
func (t pagination) NextLink() string {
	return t.linkWith("after=" + url.QueryEscape(t.Next) + "&limit=" + strconv.Itoa(t.Limit))
}

// JSONLink is the path of this page for programs.
func (t pagination) JSONLink() string {
	query := "format=json&limit=" + strconv.Itoa(t.Limit)
	if t.After != "" {
		query += "&after=" + url.QueryEscape(t.After)
	}
	return t.linkWith(query)
}

// linkWith appends parameters to the link, which may have some already.
func (t pagination) linkWith(query string) string {
	if strings.Contains(t.Link, "?") {
		return t.Link + "&" + query
	}
	return t.Link + "?" + query
}

// A serverView describes the server that answers.
type serverView struct {
	Name          string     `json:"server"`
	Now           time.Time  `json:"now"`
	Master        bool       `json:"master"`
	MasterAddress string     `json:"master_address"` // empty when it is not known
	MasterUntil   *time.Time `json:"master_until"`   // null means no end
	Parents       []string   `json:"parents"`

	// Parent is the parent that answered last, ParentHeard when that was, and ParentFault why it does not
	// answer now.
	Parent      string     `json:"parent"`
	ParentHeard *time.Time `json:"parent_heard"`
	ParentFault string     `json:"parent_fault"`
}

// An overview is the server, its configuration, and one page of its resources.
type overview struct {
	serverView
	Configuration configurationView `json:"configuration"`
	Resources     []resourceView    `json:"resources"`
	pagination
}

// A resourceDetail is one resource and one page of its leases.
type resourceDetail struct {
	serverView
	Resource resourceView `json:"resource"`
	Leases   []leaseView  `json:"leases"`
	pagination
}

type configurationView struct {
	Source    string         `json:"source"`
	Version   string         `json:"version"`
	Loaded    *time.Time     `json:"loaded"` // null when none was
	Stale     bool           `json:"stale"`
	Why       string         `json:"why"`             // the last one was refused
	Templates []templateView `json:"templates"`       // the first of them
	Total     int            `json:"templates_total"` // how many there are
}

type templateView struct {
	Glob        string   `json:"identifier_glob"`
	Capacity    float64  `json:"capacity"`
	Safe        *float64 `json:"safe_capacity"` // null is the capacity divided by the clients
	Description string   `json:"description"`
	Kind        string   `json:"kind"`
	Lease       int64    `json:"lease_length"`
	Refresh     int64    `json:"refresh_interval"`
	Learning    int64    `json:"learning_mode_duration"`

	Parameters []capacity.AlgorithmParameter `json:"parameters"`
}

type resourceView struct {
	Resource     string     `json:"resource_id"`
	Template     string     `json:"identifier_glob"`
	Kind         string     `json:"algorithm"`
	Capacity     float64    `json:"capacity"` // -1 is no limit
	Has          float64    `json:"has"`
	Wants        float64    `json:"wants"`
	Excess       float64    `json:"excess"`
	Safe         float64    `json:"safe_capacity"` // of one client; -1 is no limit
	Clients      int64      `json:"clients"`
	Leases       int64      `json:"leases"`
	Learning     bool       `json:"learning"`
	LearnsUntil  *time.Time `json:"learning_until"` // null when that is not known, or over
	ParentExpiry *time.Time `json:"parent_lease_until"`
	Now          time.Time  `json:"-"`
}

// Shown returns its name for people.
func (r resourceView) Shown() string { return doormanpb.ShowName(r.Resource) }

type leaseView struct {
	Client  string    `json:"client_id"`
	Has     float64   `json:"has"`
	Taken   float64   `json:"taken"` // more than has while a server's clients hold more
	Server  bool      `json:"server"`
	Expiry  time.Time `json:"expiry"`
	Refresh int64     `json:"refresh_interval"`
	Sum     float64   `json:"wants_total"` // of all priorities
	Bands   int       `json:"bands"`       // how many priorities there are

	Wants []capacity.Demand `json:"wants"` // the first of them
}

// More returns how many priorities are not shown.
func (l leaseView) More() int { return l.Bands - len(l.Wants) }

// Expires returns when it ends.
func (l leaseView) Expires() *time.Time { return &l.Expiry }

func newResourceView(r *capacity.ResourceStatus, now time.Time) resourceView {
	view := resourceView{
		Resource: r.ID, Now: now, Capacity: finiteAmount(r.Capacity),
		Has: r.Has, Wants: r.Wants, Excess: r.Excess,
		Clients: r.Clients, Leases: r.Leases, ParentExpiry: timeOrNil(r.ParentExpiry), Learning: r.Learning,
	}
	if r.Learning {
		view.LearnsUntil = timeOrNil(r.LearnsUntil)
	}
	if t := r.Template; t != nil {
		view.Template, view.Kind = t.Glob, t.Algorithm.Kind.String()
	}
	switch {
	// A configured amount comes first, as it does in grants.
	case r.Template != nil && r.Template.Safe != nil:
		view.Safe = *r.Template.Safe
	default:
		// Without a configured amount, the server divides the capacity by its clients.
		view.Safe = finiteAmount(r.Capacity / float64(max(r.Clients, 1)))
	}
	return view
}

func newLeaseView(h *capacity.Holding) leaseView {
	view := leaseView{
		Client: h.Client, Has: finiteAmount(h.Lease.Capacity), Taken: h.Taken, Server: h.Server,
		Expiry: h.Lease.Expiry.UTC(), Refresh: ceilSeconds(h.Lease.Refresh),
	}
	view.Bands, view.Wants = len(h.Demands), h.Demands[:min(len(h.Demands), shownBands)]
	for _, d := range h.Demands {
		view.Sum += d.Wants // also of those that are not shown
	}
	return view
}

func newConfigurationView(state *serverState, most int) configurationView {
	view := configurationView{
		Version: state.version, Loaded: timeOrNil(state.changed), Stale: state.configError != nil,
		Templates: []templateView{}, Total: len(state.templates),
	}
	if view.Stale {
		view.Why = state.configError.Error()
	}
	for i := range min(len(state.templates), most) {
		view.Templates = append(view.Templates, newTemplateView(&state.templates[i]))
	}
	return view
}

func newTemplateView(t *capacity.Template) templateView {
	a := &t.Algorithm
	view := templateView{
		Glob: t.Glob, Capacity: finiteAmount(t.Capacity), Safe: t.Safe, Description: t.Description,
		Kind: a.Kind.String(), Lease: ceilSeconds(a.LeaseLength), Refresh: ceilSeconds(a.RefreshInterval),
		Learning:   ceilSeconds(a.LeaseLength),
		Parameters: append([]capacity.AlgorithmParameter{}, a.Parameters...), // not nil, which would be null
	}
	if a.Learning != nil {
		// Without a duration of its own, learning takes as long as a lease; a negative one means no
		// learning.
		view.Learning = max(ceilSeconds(*a.Learning), 0)
	}
	return view
}

func ceilSeconds(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

// timeOrNil returns a pointer to the instant in UTC, nil for the zero time.
func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// makeServerView describes this server. The lock is held.
func (s *Server) makeServerView(now time.Time) serverView {
	view := serverView{
		Name: s.state.address, Now: now.UTC(), Master: s.core.Leading(now), MasterAddress: s.masterAddress(),
		Parents: append([]string{}, s.config.Parents...),
		Parent:  s.parent.address, ParentHeard: timeOrNil(s.parent.answeredAt),
	}
	if s.parent.fault != nil {
		view.ParentFault = s.parent.fault.Error()
	}
	if view.Master {
		view.MasterAddress, view.MasterUntil = s.state.address, timeOrNil(s.state.until)
	}
	return view
}

// makeOverview copies what the first page shows.
func (s *Server) makeOverview(r *pageRequest) *overview {
	s.mu.Lock()
	now := s.now()
	view := &overview{serverView: s.makeServerView(now)}
	state := s.state
	// One more than is shown tells whether there is a next page. Only the copy is made under the lock;
	// formatting it is left for later.
	resources := s.core.Resources(now, r.after, r.limit+1)
	s.mu.Unlock()
	view.Configuration = newConfigurationView(&state, r.limit)
	view.Configuration.Source = withoutUser(s.config.Source)
	view.pagination = pagination{After: r.after, Limit: r.limit, Link: "/capacity"}
	resources = fitRows(&view.pagination, resources, func(r *capacity.ResourceStatus) (string, int) {
		return r.ID, rowSize
	})
	view.Resources = make([]resourceView, 0, len(resources))
	for i := range resources {
		view.Resources = append(view.Resources, newResourceView(&resources[i], now))
	}
	return view
}

// fitRows returns the rows that fit on a page, of which there is one more than its limit if there are more,
// and says which page follows. describe returns a row's name, and its size in bytes without that.
func fitRows[R any](p *pagination, rows []R, describe func(row *R) (name string, size int)) []R {
	bytes, last := 0, ""
	for i := range rows {
		name, size := describe(&rows[i])
		bytes += size + nameSize*len(name)
		// Long names end the page early. It always has one row, so that a reader gets past any name.
		if i == p.Limit || bytes > mostBytes && i > 0 {
			p.Next = last
			return rows[:i]
		}
		last = name
	}
	return rows
}

// makeDetail copies what the page of a resource shows. ok is false if there is no such resource; the view
// then describes the server only.
func (s *Server) makeDetail(r *pageRequest) (view *resourceDetail, ok bool) {
	s.mu.Lock()
	now := s.now()
	view = &resourceDetail{serverView: s.makeServerView(now)}
	status, ok := s.core.Find(now, r.resource)
	if !ok {
		s.mu.Unlock()
		return view, false
	}
	// Under the same lock as the resource, so that its sums and these rows are of one instant. The extra row
	// tells whether there is a next page.
	leases := s.core.Leases(now, r.resource, r.after, r.limit+1)
	s.mu.Unlock()
	view.Resource = newResourceView(&status, now)
	view.pagination = pagination{After: r.after, Limit: r.limit, Link: linkTo(r.resource)}
	leases = fitRows(&view.pagination, leases, func(l *capacity.Holding) (string, int) {
		return l.Client, rowSize + bandSize*min(len(l.Demands), shownBands)
	})
	view.Leases = make([]leaseView, 0, len(leases))
	for i := range leases {
		view.Leases = append(view.Leases, newLeaseView(&leases[i]))
	}
	return view, true
}

// withoutUser returns an address without its user and password.
func withoutUser(address string) string {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		return address
	}
	hosts, path, slash := strings.Cut(rest, "/")
	hosts = hosts[strings.LastIndexByte(hosts, '@')+1:]
	if slash {
		path = "/" + path
	}
	return scheme + "://" + hosts + path
}
