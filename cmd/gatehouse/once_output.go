package main

import (
	"bytes"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
)

// A lastOutput passes on what a command writes, and keeps the end of it. While the command runs it waits for
// the reader of the standard output. What is left when the command has ended is taken into memory, so that
// the other hosts learn how it ended even if that reader takes nothing.
type lastOutput struct {
	write  *os.File
	read   *os.File
	end    sync.Once
	ended  chan struct{} // closed when the command has ended
	taken  chan struct{} // closed when all was read from the command
	passed chan struct{} // closed when all was passed on
	kept   []byte
}

// newLastOutput begins to pass on what is written to its file.
func newLastOutput() (*lastOutput, error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	// Without a reader the command gets the signal, not this program.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	l := &lastOutput{
		write: write, read: read,
		ended: make(chan struct{}), taken: make(chan struct{}), passed: make(chan struct{}),
	}
	parts := make(chan []byte)
	go l.take(parts)
	go l.passOn(parts)
	return l, nil
}

// take reads all that the command writes.
func (l *lastOutput) take(parts chan<- []byte) {
	defer close(parts)
	var rest [][]byte
	buffer := make([]byte, 32<<10)
	for {
		n, err := l.read.Read(buffer)
		if err != nil {
			break
		}
		part := bytes.Clone(buffer[:n])
		l.keep(part)
		if len(rest) > 0 { // it comes after those
			rest = append(rest, part)
			continue
		}
		// While the command runs it waits for a slow reader, as at a pipe. Afterwards nothing may wait for
		// that, and the rest goes to memory.
		select {
		case parts <- part:
		case <-l.ended:
			rest = append(rest, part)
		}
	}
	close(l.taken)
	for _, part := range rest {
		parts <- part
	}
}

// passOn writes what was read to the standard output.
func (l *lastOutput) passOn(parts <-chan []byte) {
	defer close(l.passed)
	for part := range parts {
		if _, err := os.Stdout.Write(part); err != nil {
			_ = l.read.Close() // the command's next write fails, as it would without a pipe between
		}
	}
}

// keep keeps the end of what was written.
func (l *lastOutput) keep(part []byte) {
	l.kept = append(l.kept, part...)
	if extra := len(l.kept) - sharedOutput; extra > 0 {
		l.kept = append(l.kept[:0], l.kept[extra:]...)
	}
}

// last returns the end of the output, once the command and all its descendants have ended.
func (l *lastOutput) last() string {
	l.end.Do(func() {
		_ = l.write.Close()
		close(l.ended)
	})
	<-l.taken
	return strings.ToValidUTF8(string(l.kept), "?")
}

// close waits until all that was written was passed on.
func (l *lastOutput) close() {
	l.last()
	<-l.passed
	_ = l.read.Close()
}
