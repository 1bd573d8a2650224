package grpc

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// The file of saved leases says which client held what when a server stopped in good order. From it the
// next server knows when all clients that may use capacity have reported, and stops learning then.
//
// This is only true while no other server grants. So the file is removed before the first grant, and it
// cannot be used with several servers that may be master.
//
// It is text: the number of its form and of its leases, one lease per line with the nanoseconds that it
// still lasts, and a checksum of all of these lines.
//
//	gatehouse leases 2 2
//	["db","host:4711:1",298000000000]
//	["db","host:4712:1",300000000000]
//	checksum 9a71bb4c
//
// Form 1, which is still read, has the Unix time of a lease's end instead.
const (
	savedHead = "gatehouse leases %d %d\n"
	savedFoot = "checksum %08x\n"

	savedForm        = 2
	savedFormInstant = 1
)

// A savedLease is one line of the file: resource, client, time left.
type savedLease [3]any

// errDamaged is the error for a file that no server wrote in this form, or not completely.
var errDamaged = errors.New("file is damaged")

// readSaved reads the leases that were saved, if any. A damaged file is treated like none: the server only
// learns for longer.
func (s *Server) readSaved() error {
	if s.config.Leases == "" {
		return nil
	}
	text, err := loadSaved(s.config.Leases)
	switch {
	case err != nil:
		return err
	case text == nil:
		s.log.Info("no saved leases found", "file", s.config.Leases)
		return nil
	}
	saved, err := parseSaved(text)
	if err != nil {
		s.log.Warn("cannot use saved leases", "file", s.config.Leases, "error", err)
		return nil
	}
	s.saved = &saved
	return nil
}

// loadSaved returns the text of a file, nil when there is none.
func loadSaved(path string) ([]byte, error) {
	text, err := os.ReadFile(path) // the operator names it
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(filepath.Dir(path)) // without the folder, saving would fail at the end
		text = nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading saved leases: %w", err)
	}
	return text, nil
}

// CheckLeases says why a file cannot be the Leases of a Config, nil when it can.
func CheckLeases(path string) error {
	_, err := loadSaved(path)
	return err
}

// restoreSaved gives the saved leases to the core, before anything is granted. If the file cannot be removed
// they are not used: the next server might find it again, long after it was true.
func (s *Server) restoreSaved(now time.Time) {
	if s.saved == nil || s.stopped { // a server that stops leaves the file to the next
		return
	}
	saved := *s.saved
	// At most one attempt, whatever comes of it: after the first grant the file would be out of date.
	s.saved = nil
	err := os.Remove(s.config.Leases)
	if err == nil {
		err = syncFolder(s.config.Leases)
	}
	if err != nil {
		s.log.Warn("cannot use saved leases", "file", s.config.Leases, "error", err)
		return
	}
	s.core.Restore(now, saved)
	// Even a server that has no templates yet now knows of leases, which stopGranting returns.
	s.restored = true
	s.log.Info("loaded saved leases", "file", s.config.Leases, "leases", len(saved))
}

// writeSaved saves leases for the next server: all of them or none. nil means that this server does not know
// all of them, and nothing is saved.
func (s *Server) writeSaved(all []capacity.Saved) error {
	if s.config.Leases == "" {
		return nil
	}
	// An incomplete file would make the next server stop learning too early, and grant what others hold.
	if all == nil {
		s.log.Info("leases are not saved: this server is still learning the leases of its clients")
		return nil
	}
	err := writeWhole(s.config.Leases, func(to io.Writer) error { return formatSaved(to, all) })
	if err != nil {
		return fmt.Errorf("saving %d leases: %w", len(all), err)
	}
	s.log.Info("saved leases", "file", s.config.Leases, "leases", len(all))
	return nil
}

// writeWhole writes a file that exists either completely or not at all, even after a crash.
func writeWhole(path string, write func(to io.Writer) error) (err error) {
	// In the same folder, because a rename is atomic only within a file system.
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	buffer := bufio.NewWriter(file)
	err = write(buffer)
	// Sync before the rename: otherwise a loss of power could leave the new name with old or no content.
	for _, step := range []func() error{buffer.Flush, file.Sync} {
		if err == nil {
			err = step()
		}
	}
	// Closed in any case, and before the rename, as Windows demands.
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err == nil {
		err = syncFolder(path)
	}
	return err
}

// syncFolder makes a change of a name in a folder survive a loss of power.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil // it has no such call
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// formatSaved writes the text of a file.
func formatSaved(to io.Writer, all []capacity.Saved) error {
	sum := newSum()
	// JSON keeps any name on one line. The checksum is of these lines only, not of the head.
	lines := json.NewEncoder(io.MultiWriter(to, sum))
	lines.SetEscapeHTML(false)
	_, err := fmt.Fprintf(to, savedHead, savedForm, len(all))
	for i := range all {
		if err == nil {
			err = lines.Encode(savedLease{all[i].Resource, all[i].Client, all[i].Left.Nanoseconds()})
		}
	}
	if err == nil {
		_, err = fmt.Fprintf(to, savedFoot, sum.Sum32())
	}
	return err
}

// parseSaved parses the text of a file.
func parseSaved(text []byte) ([]capacity.Saved, error) {
	head, lines, _ := bytes.Cut(text, []byte{'\n'})
	var form, count int
	_, err := fmt.Sscanf(string(head)+"\n", savedHead, &form, &count)
	// An unknown form may be of a newer version. To use none of it is safe.
	if err != nil || form != savedForm && form != savedFormInstant {
		return nil, errDamaged
	}
	// The last line is the checksum, of all lines between it and the head.
	foot := bytes.LastIndexByte(bytes.TrimSuffix(lines, []byte{'\n'}), '\n') + 1
	sum := newSum()
	_, _ = sum.Write(lines[:foot])
	if string(lines[foot:]) != fmt.Sprintf(savedFoot, sum.Sum32()) {
		return nil, errDamaged
	}
	// The head's count is not in the checksum; here it is checked against the lines.
	if bytes.Count(lines[:foot], []byte{'\n'}) != count {
		return nil, errDamaged
	}
	all := make([]capacity.Saved, 0, count)
	for line := range bytes.Lines(lines[:foot]) {
		lease, err := parseLease(line)
		if err != nil {
			return nil, err
		}
		if form == savedFormInstant {
			// How long it lasted then is not known: as long as any lease may, which learning ends before.
			lease.Left = math.MaxInt64
		}
		all = append(all, lease)
	}
	return all, nil
}

// parseLease parses one line.
func parseLease(line []byte) (capacity.Saved, error) {
	var left json.Number
	var lease capacity.Saved
	// The decoder fills the three values through their pointers, and refuses a value of another type.
	parts := savedLease{&lease.Resource, &lease.Client, &left}
	if err := json.Unmarshal(line, &parts); err != nil {
		return lease, errDamaged
	}
	ns, err := strconv.ParseInt(left.String(), 10, 64)
	if err != nil || lease.Resource == "" || lease.Client == "" {
		return lease, errDamaged
	}
	lease.Left = time.Duration(ns)
	return lease, nil
}

func newSum() hash.Hash32 { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }
