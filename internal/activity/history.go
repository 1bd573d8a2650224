package activity

import (
	"context"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// The history of a name is a ring of samples, one each sampleEvery.
const (
	sampleEvery = 5 * time.Second
	samplesKept = int(15 * time.Minute / sampleEvery)
)

// A sampleClock has the times of the last samples, which are the same for all names.
type sampleClock struct {
	count int // of all samples that were ever taken
	times [samplesKept]time.Time
}

// at returns the time of a sample that is still kept; the zero time for any other.
func (c *sampleClock) at(sample int) time.Time {
	// Its place in the ring is that of a later sample by now.
	if sample < 0 || sample >= c.count || sample < c.count-samplesKept {
		return time.Time{}
	}
	return c.times[sample%samplesKept]
}

// A track is the history of one name.
type track struct {
	first    int // the sample with which it begins
	began    time.Time
	busy     bool      // among the busiest at the last sample
	lookedAt time.Time // by a viewer, within lookedAtFor; the zero time otherwise
	lastUse  time.Time // as far as it was noticed

	known   bool // before is the last look, and not older
	before  figures
	granted float64 // a second, of the last sample
	refused float64

	samples [samplesKept]sample
}

// A sample is what happened at a name since the sample before.
type sample struct{ granted, refused, waiting uint32 }

// Run keeps the history until ctx ends.
func (m *Monitor) Run(ctx context.Context) error {
	if m.config.History == 0 {
		// Without histories there is nothing to do until the end.
		<-ctx.Done()
		return nil
	}
	// The timer starts again only when all samples are taken: a store that is slow is asked less often.
	timer := time.NewTimer(sampleEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			m.takeSamples(ctx)
			timer.Reset(sampleEvery)
		}
	}
}

// takeSamples looks once at each name that has a history.
func (m *Monitor) takeSamples(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	now := m.config.Now()
	busy := m.busiestNames()
	m.mu.Lock()
	m.chooseTracks(busy, now)
	sample := m.clock.count
	keys := make([]gatehouse.Key, 0, len(m.tracks))
	for key := range m.tracks {
		keys = append(keys, key)
	}
	m.mu.Unlock()
	// The store is asked without the lock, so that a page that is opened meanwhile does not wait for it.
	looks := make([]figures, len(keys))
	found := make([]bool, len(keys))
	// A history that ended meanwhile is not begun again by its sample.
	for i, key := range keys {
		if ctx.Err() == nil {
			looks[i], found[i] = m.lookAt(ctx, key)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	length := now.Sub(m.clock.at(sample - 1))
	m.clock.times[sample%samplesKept] = now
	m.clock.count++
	for i, key := range keys {
		if t := m.tracks[key]; t != nil {
			t.addSample(sample, sampleTime{now, length}, looks[i], found[i])
		}
	}
}

// busiestNames returns the names that a history is kept of for what goes on there.
func (m *Monitor) busiestNames() (keys []gatehouse.Key) {
	most := m.config.History
	if m.config.Busiest != nil {
		keys = m.config.Busiest(most)
	}
	// A name in which commands wait is worth a look, however seldom it is asked.
	for key := range m.config.Gate.WaitingNames() {
		if len(keys) >= most {
			break
		}
		keys = append(keys, key)
	}
	return keys[:min(len(keys), most)]
}

// chooseTracks begins and ends histories. It is called with the lock held.
func (m *Monitor) chooseTracks(busy []gatehouse.Key, now time.Time) {
	for _, t := range m.tracks {
		t.busy = false
	}
	for _, key := range busy {
		m.ensureTrack(key, now).busy = true
	}
	for key, t := range m.tracks {
		// Looked at and busy are two causes to keep it, which end apart.
		if !t.lookedAt.IsZero() && now.Sub(t.lookedAt) >= lookedAtFor {
			t.lookedAt = time.Time{}
			m.lookedAt--
		}
		if t.busy || !t.lookedAt.IsZero() {
			continue
		}
		// A name that was among the busiest stays for the length of a history while there is room: it may be
		// so again, and what it did is what people want to see.
		quiet := now.Sub(t.lastUse) > time.Duration(samplesKept)*sampleEvery
		if quiet || len(m.tracks) > m.config.History+m.mostLookedAt() {
			delete(m.tracks, key)
		}
	}
}

// ensureTrack returns the history of a name, which begins now if there was none. The caller holds the lock.
func (m *Monitor) ensureTrack(key gatehouse.Key, now time.Time) *track {
	t := m.tracks[key]
	if t == nil {
		t = &track{first: m.clock.count, began: now}
		m.tracks[key] = t
	}
	return t
}

func (m *Monitor) mostLookedAt() int {
	if m.config.Shared {
		return sharedLookedAt
	}
	return maxLookedAt
}

// noteLookedAt keeps a history of names that a viewer looks at, for an hour. The caller holds the lock.
func (m *Monitor) noteLookedAt(keys []gatehouse.Key) {
	if m.config.History == 0 {
		return
	}
	now := m.config.Now()
	for _, key := range keys {
		if t := m.tracks[key]; t == nil || t.lookedAt.IsZero() {
			m.makeRoom(t == nil)
			m.lookedAt++
		}
		m.ensureTrack(key, now).lookedAt = now
	}
}

// makeRoom makes room for one more name that a viewer looks at, and whose history begins if isNew. It never
// takes that of one of the busiest. The caller holds the lock.
func (m *Monitor) makeRoom(isNew bool) {
	full := m.lookedAt >= m.mostLookedAt()
	if !full && (!isNew || len(m.tracks) < m.config.History+m.mostLookedAt()) {
		return
	}
	var oldest gatehouse.Key
	var at time.Time
	for key, t := range m.tracks {
		switch {
		case t.lookedAt.IsZero() && (t.busy || full):
		case t.lookedAt.IsZero():
			delete(m.tracks, key) // it stayed because there was room
			return
		case oldest.Kind == 0 || t.lookedAt.Before(at):
			oldest, at = key, t.lookedAt
		}
	}
	t := m.tracks[oldest]
	if t == nil {
		return // all are busy, and none is looked at: there is room for those
	}
	// One of the busiest keeps its history, and is only not counted as looked at any more.
	t.lookedAt = time.Time{}
	m.lookedAt--
	if !t.busy {
		delete(m.tracks, oldest)
	}
}

// A sampleTime is when a sample was taken, and how long after the one before.
type sampleTime struct {
	now    time.Time
	length time.Duration
}

// addSample adds what a look has found. found is false if the store did not answer.
func (t *track) addSample(number int, at sampleTime, f figures, found bool) {
	now, length := at.now, at.length
	s := &t.samples[number%samplesKept]
	// The place in the ring has a sample of fifteen minutes ago.
	*s = sample{}
	t.granted, t.refused = 0, 0
	// A store that was away would seem to have counted everything since it is back.
	if !found {
		t.known = false
		return
	}
	// Without an earlier look it is not known when the commands came that were counted.
	if t.known {
		granted, refused := f.since(t.before)
		s.granted, s.refused = clampCount(granted), clampCount(refused)
		t.granted, t.refused = perSecond(granted, length), perSecond(refused, length)
		if granted > 0 || refused > 0 {
			t.lastUse = now
		}
	}
	s.waiting = clampCount(f.waiting)
	// A name that is used for the first time counts from 0, so what it has then is all new.
	t.known, t.before = true, f
}

func clampCount(n int64) uint32 { return uint32(min(max(n, 0), 1<<32-1)) }

// A Point is one instant of a history.
type Point struct {
	At      time.Time
	Granted float64 // a second
	Refused float64 // a second
	Waiting int64
}

// History returns the last fifteen minutes of a name, the oldest instant first, and keeps them for another
// hour. They begin when the name was among the busiest, or looked at, for the first time.
func (m *Monitor) History(key gatehouse.Key) (points []Point) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.noteLookedAt([]gatehouse.Key{key})
	// Without histories there is none even now.
	t := m.tracks[key]
	if t == nil {
		return nil
	}
	for i := max(t.first, m.clock.count-samplesKept); i < m.clock.count; i++ {
		s := t.samples[i%samplesKept]
		// Where samples came late, as a store was slow, a rate is counted over the longer time.
		length := sampleEvery
		if before := m.clock.at(i - 1); !before.IsZero() {
			length = m.clock.at(i).Sub(before)
		}
		points = append(points, Point{
			At: m.clock.at(i), Granted: perSecond(int64(s.granted), length),
			Refused: perSecond(int64(s.refused), length), Waiting: int64(s.waiting),
		})
	}
	return slices.Clip(points)
}
