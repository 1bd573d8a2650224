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

// The file of saved leases says who held what when a server ended in good order. Its successor knows by
// it when everybody who may use capacity has reported, and stops learning then.
//
// That is true only while nobody grants without it. So it is removed before the first grant, and it is
// of no use among several servers that may be master.
//
// It is text: the number of its form and of leases, one lease in each line with the nanoseconds that it still
// lasts, and a checksum of all of them.
//
//	gatehouse leases 2 2
//	["db","host:4711:1",298000000000]
//	["db","host:4712:1",300000000000]
//	checksum 9a71bb4c
//
// In form 1, which is still read, a lease has the Unix time of its end instead.
const (
	savedHead = "gatehouse leases %d %d\n"
	savedFoot = "checksum %08x\n"

	savedForm        = 2
	savedFormInstant = 1
)

// A savedLease is a line of the file.
type savedLease [3]any

// errDamaged is what reading a file ends with that was not written by a server.
var errDamaged = errors.New("file is damaged")

// readSaved reads the leases that were saved, if any. A damaged file is as good as none.
func (s *Server) readSaved() error {
	if s.config.Leases == "" {
		return nil
	}
	text, err := loadSaved(s.config.Leases)
	switch {
	case err != nil:
		return err
	case text == nil:
		s.log.Info("there are no saved leases", "file", s.config.Leases)
		return nil
	}
	saved, err := parseSaved(text)
	if err != nil {
		s.log.Warn("saved leases are not used", "file", s.config.Leases, "error", err)
		return nil
	}
	s.saved = &saved
	return nil
}

// loadSaved returns the text of a file, nil when there is none.
func loadSaved(path string) ([]byte, error) {
	text, err := os.ReadFile(path) // #nosec G304 -- the operator names it
	if errors.Is(err, fs.ErrNotExist) {
		_, err = os.Stat(filepath.Dir(path)) // what is missing now is missing at the end
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

// restoreSaved makes the saved leases this server's own, before it grants anything. A file that cannot be
// removed is not used: the next server might find it there again, long after it stopped to be true.
func (s *Server) restoreSaved(now time.Time) {
	if s.saved == nil || s.stopped { // the next server may still need it
		return
	}
	saved := *s.saved
	s.saved = nil
	err := os.Remove(s.config.Leases)
	if err == nil {
		err = syncFolder(s.config.Leases)
	}
	if err != nil {
		s.log.Warn("saved leases are not used", "file", s.config.Leases, "error", err)
		return
	}
	s.core.Restore(now, saved)
	s.restored = true
	s.log.Info("saved leases are used", "file", s.config.Leases, "leases", len(saved))
}

// writeSaved saves leases for the next server: all of them or none. A server that does not know all itself
// has nil, and saves nothing.
func (s *Server) writeSaved(all []capacity.Saved) error {
	if s.config.Leases == "" {
		return nil
	}
	if all == nil {
		s.log.Info("leases are not saved: this server is still learning who has any")
		return nil
	}
	err := writeWhole(s.config.Leases, func(to io.Writer) error { return formatSaved(to, all) })
	if err != nil {
		return fmt.Errorf("saving %d leases: %w", len(all), err)
	}
	s.log.Info("leases are saved", "file", s.config.Leases, "leases", len(all))
	return nil
}

// writeWhole writes a file that is there as a whole or not at all, whatever happens meanwhile.
func writeWhole(path string, write func(to io.Writer) error) (err error) {
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
	for _, step := range []func() error{buffer.Flush, file.Sync} {
		if err == nil {
			err = step()
		}
	}
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err == nil {
		err = syncFolder(path)
	}
	return err
}

// syncFolder makes the name of a file, or that there is none, survive a loss of power.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil // there it cannot be done
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

// parseSaved reads the text of a file.
func parseSaved(text []byte) ([]capacity.Saved, error) {
	head, lines, _ := bytes.Cut(text, []byte{'\n'})
	var form, count int
	_, err := fmt.Sscanf(string(head)+"\n", savedHead, &form, &count)
	if err != nil || form != savedForm && form != savedFormInstant {
		return nil, errDamaged
	}
	foot := bytes.LastIndexByte(bytes.TrimSuffix(lines, []byte{'\n'}), '\n') + 1
	sum := newSum()
	_, _ = sum.Write(lines[:foot])
	if string(lines[foot:]) != fmt.Sprintf(savedFoot, sum.Sum32()) {
		return nil, errDamaged
	}
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

// parseLease reads one line.
func parseLease(line []byte) (capacity.Saved, error) {
	var left json.Number
	var lease capacity.Saved
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
