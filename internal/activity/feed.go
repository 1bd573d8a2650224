package activity

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A frame is one event with what has changed: one is made for all viewers together, each second, and only
// while there are viewers.
const (
	frameEvery       = time.Second
	sharedFrameEvery = 5 * time.Second

	// MaxViewers is how many streams there are at most, and MaxUserViewers how many of one user, so that no
	// user takes the streams of all others.
	MaxViewers     = 100
	MaxUserViewers = MaxViewers / 4

	// maxFrameRows bounds the names in one frame, of all viewers together. It keeps a frame below 100 KiB,
	// but for long names.
	maxFrameRows = 500
)

// A feed is the stream of frames.
type feed struct {
	viewers map[string]*viewer
	closed  bool
	quit    chan struct{} // ends the goroutine that makes frames; nil while there is none

	before  map[gatehouse.Key]earlier // of the last frame
	at      time.Time                 // of the last frame; the zero time before the first
	granted uint64
	refused uint64
}

// An earlier is what the frame before found at a name.
type earlier struct {
	figures
	at      time.Time
	lastUse time.Time
}

// A viewer is who reads the stream.
type viewer struct {
	user  string // "" if rights are off
	view  func() (v View, ok bool)
	send  func(frame []byte)
	ended func()
	keys  []gatehouse.Key // that it shows
}

// CheckRoom returns an error if there can be no more streams, or none of a user; "" is no user, without
// a share.
func (m *Monitor) CheckRoom(user string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.feed.checkRoom(user)
}

func (f *feed) checkRoom(user string) error {
	if len(f.viewers) >= MaxViewers {
		return gatehouse.Errorf(gatehouse.CodeExhausted,
			"server has %d streams of activity, which is the most it allows; close one", MaxViewers)
	}
	own := 0
	for _, v := range f.viewers {
		if v.user == user {
			own++
		}
	}
	if user != "" && own >= MaxUserViewers {
		return gatehouse.Errorf(gatehouse.CodeQuota,
			"user %s has %d streams of activity, which is the most of one user; close one", user, own)
	}
	return nil
}

// Follow calls send with each frame, an event of a stream (text/event-stream), until stop is called: the
// first one at once, with the id for Watch. Viewers with the same view are sent the same bytes, which must
// not be changed. view is asked before each frame, as rights change; while it is not ok, no frame is sent.
// send must not block. ended is called once if the server stops. ok is false if CheckRoom has an error, or
// the server stops already.
func (m *Monitor) Follow(
	user string, view func() (v View, ok bool), send func(frame []byte), ended func(),
) (stop func(), ok bool) {
	id := fmt.Sprintf("%016x", rand.Uint64())
	m.mu.Lock()
	// It is asked again, as others may have come since CheckRoom.
	if m.feed.closed || m.feed.checkRoom(user) != nil {
		m.mu.Unlock()
		return nil, false
	}
	m.feed.viewers[id] = &viewer{user: user, view: view, send: send, ended: ended}
	begin := m.feed.quit == nil
	if begin {
		m.feed.quit = make(chan struct{})
	}
	quit := m.feed.quit
	m.mu.Unlock()
	// Before any frame, as a viewer needs the id to say what it shows. Not under the lock: send is the
	// caller's.
	send(encodeEvent("hello", helloJSON{id, m.frameInterval().Milliseconds(), m.config.History > 0}))
	if begin {
		go m.makeFrames(quit) // ends when the last viewer leaves
	}
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.feed.viewers, id)
		m.quitIfUnseen()
	}, true
}

// quitIfUnseen ends the frames if there are no viewers. The caller holds the lock.
func (m *Monitor) quitIfUnseen() {
	if len(m.feed.viewers) > 0 || m.feed.quit == nil {
		return
	}
	close(m.feed.quit)
	// The next viewer begins from nothing, and not from a frame that is hours old.
	m.feed.quit, m.feed.at = nil, time.Time{}
	clear(m.feed.before)
}

// Watch has the frames tell about names that a viewer shows now, instead of those before.
func (m *Monitor) Watch(id string, keys []gatehouse.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v := m.feed.viewers[id]; v != nil {
		v.keys = keys
		m.noteLookedAt(keys)
	}
}

// Close ends all streams, and lets none begin.
func (m *Monitor) Close() {
	m.mu.Lock()
	m.feed.closed = true
	all := make([]*viewer, 0, len(m.feed.viewers))
	for _, v := range m.feed.viewers {
		all = append(all, v)
	}
	clear(m.feed.viewers)
	m.quitIfUnseen()
	// ended is the caller's, and may call stop, which takes the lock.
	m.mu.Unlock()
	for _, v := range all {
		v.ended()
	}
}

// Viewers returns how many read the stream.
func (m *Monitor) Viewers() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.feed.viewers)
}

func (m *Monitor) frameInterval() time.Duration {
	if m.config.Shared {
		return sharedFrameEvery
	}
	return frameEvery
}

// makeFrames makes frames until quit is closed.
func (m *Monitor) makeFrames(quit chan struct{}) {
	// The first frame comes at once: it is what rates are counted from.
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-quit:
			return
		case <-timer.C:
			m.makeFrame(quit)
			timer.Reset(m.frameInterval())
		}
	}
}

// makeFrame makes one frame and sends it.
func (m *Monitor) makeFrame(quit chan struct{}) {
	ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
	defer cancel()
	keys := m.watchedKeys()
	now := m.config.Now()
	found := make(map[gatehouse.Key]figures, len(keys))
	for _, key := range keys {
		// A name that is not reached keeps its figures of before in the pages that show it.
		if f, ok := m.lookAt(ctx, key); ok {
			found[key] = f
		}
	}
	// A frame that came so late would have rates of half of the names. The next one counts from the one
	// before.
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	// All may have left meanwhile, and others come, who are sent frames by another goroutine.
	if m.feed.quit != quit {
		m.mu.Unlock()
		return
	}
	// Encoding and sending need no lock, and take the longest.
	frame := m.fillFrame(keys, found, now)
	viewers := slices.Collect(maps.Values(m.feed.viewers))
	m.mu.Unlock()
	sendFrame(frame, viewers)
}

// sendFrame sends a frame to viewers, to each what it may see.
func sendFrame(frame frameJSON, viewers []*viewer) {
	events := make(map[View][]byte, 1)
	for _, v := range viewers {
		// Rights may have changed since the last frame.
		view, ok := v.view()
		if !ok {
			continue
		}
		event := events[view]
		if event == nil {
			event = encodeEvent("frame", frame.shownTo(view))
			events[view] = event
		}
		v.send(event)
	}
}

// watchedKeys returns the names that viewers show. Where these are too many they are taken from each viewer
// in turn, so that none takes the room of others.
func (m *Monitor) watchedKeys() (keys []gatehouse.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	shown := make(map[gatehouse.Key]bool)
	for place, more := 0, true; more && len(keys) < maxFrameRows; place++ {
		more = false
		for _, v := range m.feed.viewers {
			if place >= len(v.keys) || len(keys) == maxFrameRows {
				continue
			}
			more = true
			if key := v.keys[place]; !shown[key] {
				shown[key] = true
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// fillFrame returns what a frame tells, and keeps it for the next one. The caller holds the lock.
func (m *Monitor) fillFrame(
	keys []gatehouse.Key, found map[gatehouse.Key]figures, now time.Time,
) frameJSON {
	sums := sumsJSON{Waiting: m.config.Gate.Waiting(), Viewers: len(m.feed.viewers)}
	f := frameJSON{Now: now.UnixMilli(), sumsJSON: &sums}
	f.Rows = make([]Row, 0, len(keys))
	if m.config.Names != nil {
		sums.Names = m.config.Names()
	}
	if m.config.Totals != nil {
		granted, refused := m.config.Totals()
		// The first frame has no time since another that these could be counted over.
		if !m.feed.at.IsZero() {
			length := now.Sub(m.feed.at)
			sums.Granted = perSecond(int64(granted-m.feed.granted), length)
			sums.Refused = perSecond(int64(refused-m.feed.refused), length)
		}
		m.feed.granted, m.feed.refused = granted, refused
	}
	m.feed.at = now
	before := m.feed.before
	// A new map, so that names which viewers show no more do not stay.
	m.feed.before = make(map[gatehouse.Key]earlier, len(keys))
	for _, key := range keys {
		figures, ok := found[key]
		// Of a name that the store did not tell about, the next frame counts from what was known last.
		if !ok {
			if earlier, known := before[key]; known {
				m.feed.before[key] = earlier
			}
			continue
		}
		row := Row{Key: key, Gone: true}
		if !figures.gone {
			row = m.rowSince(key, figures, before[key], now)
		}
		// A name that is not there has counted nothing, so that its first use is seen.
		m.feed.before[key] = earlier{figures, now, row.LastUse}
		f.Rows = append(f.Rows, row)
	}
	return f
}

// rowSince returns the row of a name with the rates since an earlier look. The caller holds the lock.
func (m *Monitor) rowSince(key gatehouse.Key, f figures, before earlier, now time.Time) Row {
	row := Row{
		Key: key, Size: f.size, Used: f.used, Holders: f.holders, Waiting: f.waiting,
		Granted: f.granted, Refused: f.refused, Closed: f.closed,
	}
	m.tracks[key].lastSeen().addTo(&row)
	// A name that was not shown before has only what its history knows, if there is one.
	if before.at.IsZero() {
		return row
	}
	granted, refused := f.since(before.figures)
	length := now.Sub(before.at)
	row.GrantedRate, row.RefusedRate = perSecond(granted, length), perSecond(refused, length)
	row.HasRates = true
	// The history looks every five seconds, so that a frame may have seen a later use, and the other way
	// around.
	if before.lastUse.After(row.LastUse) {
		row.LastUse = before.lastUse
	}
	if granted > 0 || refused > 0 {
		row.LastUse = now
	}
	// One of the two is shown: since when it is quiet says less than when it was used.
	if !row.LastUse.IsZero() {
		row.QuietSince = time.Time{}
	}
	return row
}

type helloJSON struct {
	Viewer  string `json:"viewer"`
	Every   int64  `json:"every"`
	History bool   `json:"history"`
}

type frameJSON struct {
	Now int64 `json:"now"`
	*sumsJSON
	Rows []Row `json:"rows"`
}

// sumsJSON is what a frame tells about all names together.
type sumsJSON struct {
	Names   int     `json:"names"`
	Waiting int     `json:"waiting"`
	Granted float64 `json:"granted"`
	Refused float64 `json:"refused"`
	Viewers int     `json:"viewers"`
}

// A rowJSON is a row as frames and searches write it. What is not known is null.
type rowJSON struct {
	Kind        string   `json:"kind"`
	Name        string   `json:"name"`
	Limits      string   `json:"limits,omitempty"`
	Size        int64    `json:"size"`
	Used        int64    `json:"used"`
	Holders     int64    `json:"holders"`
	Waiting     int64    `json:"waiting"`
	Granted     int64    `json:"granted"`
	Refused     int64    `json:"refused"`
	GrantedRate *float64 `json:"granted_rate"`
	RefusedRate *float64 `json:"refused_rate"`
	LastUse     *int64   `json:"last_use"`    // ms since 1970
	QuietSince  *int64   `json:"quiet_since"` // ms since 1970; null if last_use is known
	Closed      bool     `json:"closed,omitempty"`
	Gone        bool     `json:"gone,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (r Row) MarshalJSON() ([]byte, error) {
	out := rowJSON{
		Kind: r.Key.Kind.String(), Name: r.Key.Name, Limits: r.Limits, Size: r.Size, Used: r.Used,
		Holders: r.Holders, Waiting: r.Waiting, Granted: r.Granted, Refused: r.Refused,
		Closed: r.Closed, Gone: r.Gone,
	}
	if r.HasRates {
		out.GrantedRate, out.RefusedRate = &r.GrantedRate, &r.RefusedRate
	}
	if !r.LastUse.IsZero() {
		out.LastUse = new(r.LastUse.UnixMilli())
	}
	if !r.QuietSince.IsZero() {
		out.QuietSince = new(r.QuietSince.UnixMilli())
	}
	return json.Marshal(out)
}

// encodeEvent returns an event of a stream.
func encodeEvent(name string, value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("gatehouse: %T does not marshal: %v", value, err))
	}
	return fmt.Appendf(nil, "event: %s\ndata: %s\n\n", name, data)
}
