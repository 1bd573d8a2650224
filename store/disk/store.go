// Package disk keeps controllers in memory, and in a file that outlasts the process. What is held, sent or
// counted is on disk before a client is answered; what limiters count is written once a second.
//
// A memory store decides, and bbolt writes the file. One goroutine writes: the changes that come while it
// waits for the disk share the next transaction.
package disk

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/weight"
	"github.com/gatehousehq/gatehouse/store/memory"
	bolt "go.etcd.io/bbolt"
)

// A Config says how a store works. The zero value works.
type Config struct {
	// Names, Holders, Memory and Linger are those of [memory.Config]. What the file has is loaded whatever
	// they say.
	Names   int
	Holders int
	Memory  *weight.Total
	Linger  time.Duration

	// Flush is how often the state of limiters is written down; 0 means DefaultFlush.
	Flush time.Duration

	// Reserve is how many bytes of the file are kept free, so that what is held can be released when
	// the disk is full; 0 means DefaultReserve.
	Reserve int

	// Log gets the progress of loading, and trouble with the disk; nil means no log.
	Log *slog.Logger

	// Now is the system's clock, which is read once; nil means time.Now.
	Now func() time.Time
}

// The defaults of Config.
const (
	DefaultFlush   = time.Second
	DefaultReserve = 4 << 20
)

// A Store keeps controllers on disk. Make one with Open.
type Store struct {
	dir    string
	config Config
	lock   *os.File
	now    func() time.Time
	memory *memory.Store

	// These are the writer's alone.
	db       *bolt.DB
	head     fileHead             // as it is on disk
	fileSize atomic.Int64         // of what was used of the file at the last transaction
	commitTx func(*bolt.Tx) error // (*bolt.Tx).Commit, except in tests

	wake        chan struct{} // there is something to do
	flushArmed  atomic.Bool   // the timer runs
	flushTimer  *time.Timer
	flushDue    atomic.Bool
	closing     atomic.Bool
	roomWanted  atomic.Bool
	writerEnded chan struct{} // the writer has
	failed      chan struct{} // the file cannot be written any more

	trouble  atomic.Pointer[trouble] // nil while all is well
	counters writeCounters

	mu      sync.Mutex
	current *writeBatch // being written; nil when none is
	next    *writeBatch
	refused *writeBatch // answers every change while changes are rolled back, and after the end
}

// A trouble is why not everything is answered.
type trouble struct {
	err     error
	full    bool      // the disk is: what needs no room goes on
	retryAt time.Time // when to try again
}

// Open opens the store in a directory, which is made when there is none. No other process can use it until
// Close. A file that is damaged is refused.
func Open(dir string, config Config) (*Store, error) {
	config = config.orDefault()
	lock, err := lockDir(dir, true)
	if err != nil {
		return nil, err
	}
	if othersMayWrite(dir) {
		config.Log.Warn("others may write in the store's directory; want mode 0700", "dir", dir)
	}
	s := &Store{
		dir: dir, config: config, lock: lock, commitTx: (*bolt.Tx).Commit,
		wake: make(chan struct{}, 1), writerEnded: make(chan struct{}), failed: make(chan struct{}),
		next: newWriteBatch(),
	}
	// The timer exists from the start, because OnDirty resets it under a lock. It runs only when names are
	// dirty.
	s.flushTimer = time.AfterFunc(time.Hour, func() {
		s.flushDue.Store(true)
		s.wakeWriter()
	})
	s.flushTimer.Stop()
	// The writer starts after loading: until then there is no file that it could write.
	if err := s.loadFile(); err != nil {
		s.flushTimer.Stop()
		return nil, errors.Join(err, s.closeFiles())
	}
	go s.runWriter()
	return s, nil
}

func (c Config) orDefault() Config {
	c.Flush, c.Reserve = cmp.Or(c.Flush, DefaultFlush), cmp.Or(c.Reserve, DefaultReserve)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// Apply serves the queue at one instant, as one change, and calls Done when nothing of it can be lost any
// more. An error means that none of it took effect, unless the disk failed for good.
func (s *Store) Apply(c *control.Change) {
	if t := s.trouble.Load(); t != nil {
		// The store has failed or is closed. Not even a read may be answered, since it could rest on a change
		// that was never written.
		if !t.full {
			c.Done(t.err)
			return
		}
		// Limiters live in the memory, and their state is written later. They work on while the disk is full.
		if !c.Key.Kind.Limiter() {
			s.applyFull(c, t)
			return
		}
	}
	s.memory.Apply(c)
}

// Watch keeps the controller from being forgotten until stop is called. Nothing changes in this store
// behind the back of its one gate, so wake is never called.
func (s *Store) Watch(key gatehouse.Key, wake func()) (stop func()) { return s.memory.Watch(key, wake) }

// Range visits the controllers of one kind as that of [memory.Store] does.
func (s *Store) Range(ctx context.Context, kind gatehouse.Kind, after string, visit control.Visit) error {
	return s.memory.Range(ctx, kind, after, visit)
}

// Visit is Range in no order.
func (s *Store) Visit(ctx context.Context, kind gatehouse.Kind, visit control.Visit) error {
	return s.memory.Visit(ctx, kind, visit)
}

// Len returns how many names are kept, those that only linger included.
func (s *Store) Len() int { return s.memory.Len() }

// Holders returns how many holders all semaphores and locks have.
func (s *Store) Holders() int { return s.memory.Holders() }

// Failed is closed when the file cannot be written any more. Every call fails from then on; Err says why.
func (s *Store) Failed() <-chan struct{} { return s.failed }

// Err is why the store failed, nil when it has not.
func (s *Store) Err() error {
	select {
	case <-s.failed:
		return s.trouble.Load().err
	default:
		return nil
	}
}

// Close writes down what is still to be, and lets go of the directory. Calls that come later fail.
func (s *Store) Close() error {
	// A second Close returns when the first has ended the writer.
	if s.closing.Swap(true) {
		<-s.writerEnded
		return nil
	}
	s.wakeWriter()
	<-s.writerEnded
	s.flushTimer.Stop()
	if err := s.Err(); err != nil {
		return err // what failed is not touched again; the end of the process lets go of it
	}
	return s.closeFiles()
}

func (s *Store) closeFiles() error {
	var failed error
	if s.db != nil {
		failed = s.db.Close()
	}
	// The lock is given up last: another process must not open the file while it is still being closed.
	return errors.Join(failed, s.lock.Close())
}

// wakeWriter wakes the writer.
func (s *Store) wakeWriter() {
	select {
	case s.wake <- struct{}{}:
	// A wake-up is pending already. The writer looks for changes after it has received that one.
	default:
	}
}

// Statistics count what a store wrote since it was opened.
type Statistics struct {
	// Commits are the transactions, each of which the disk had to confirm, and Records what was written by
	// them, those about limiters included.
	Commits, Records uint64

	// Flush is how long the last writing down of limiters took; 0 when there was none.
	Flush time.Duration

	// Full says that the disk is, so that what needs room is refused.
	Full bool
}

type writeCounters struct {
	commits, records atomic.Uint64
	flush            atomic.Int64 // ns
}

// Statistics returns the counts.
func (s *Store) Statistics() Statistics {
	trouble := s.trouble.Load()
	return Statistics{
		Commits: s.counters.commits.Load(), Records: s.counters.records.Load(),
		Flush: time.Duration(s.counters.flush.Load()), Full: trouble != nil && trouble.full,
	}
}
