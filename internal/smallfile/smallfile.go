// Package smallfile reads files that people write for the program, such as settings, users and certificates.
// One that is much larger than these is the wrong file, most likely a log or the image of a disk, and is not
// read into memory.
package smallfile

import (
	"fmt"
	"io"
	"io/fs"
	"os"
)

// A Wanted says what a file should be.
type Wanted struct {
	// What it is, as an error says it, such as "a configuration file".
	What string
	// Size is how many bytes it may have.
	Size int
	// Piped lets it be a pipe or a device, too, such as that of a shell's <(command). Reading one blocks
	// until the other end is closed, so this is not for files that are read again while the program runs.
	Piped bool
	// Check judges the file that was opened, so that none can take its place after that. Its error is that of
	// Read. It may be nil.
	Check func(fs.FileInfo) error
}

// Read reads a file. Links are followed.
func Read(path string, want Wanted) ([]byte, error) {
	// Asked before it is opened, too: to open a pipe blocks until something writes to it.
	if !want.Piped {
		info, err := os.Stat(path)
		if err == nil {
			err = want.checkKind(path, info)
		}
		if err != nil {
			return nil, err
		}
	}
	file, err := os.Open(path) // the operator names it
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err == nil {
		err = want.checkKind(path, info)
	}
	if err == nil && want.Check != nil {
		err = want.Check(info)
	}
	if err != nil {
		return nil, err
	}
	// One byte more than allowed is enough to know that it is too large.
	text, err := io.ReadAll(io.LimitReader(file, int64(want.Size)+1))
	if err == nil && len(text) > want.Size {
		err = fmt.Errorf("%s is larger than %d bytes, want %s", path, want.Size, want.What)
	}
	return text, err
}

// checkKind returns an error for what cannot be read as a file.
func (w *Wanted) checkKind(path string, info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return fmt.Errorf("%s is a directory, want %s", path, w.What)
	case !w.Piped && !info.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file, want %s", path, w.What)
	}
	return nil
}
