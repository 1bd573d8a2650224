package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"

	holder "github.com/gatehousehq/gatehouse/client/lease"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/google/shlex"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// maxPlayers is the most clients of a shell. Each has a connection of its own, as it would have elsewhere.
const maxPlayers = 1000

// maxLine is the longest line of a shell in bytes. Names have 512 bytes at most.
const maxLine = 8 << 10

const prompt = "> "

const shellHelp = `get CLIENT RESOURCE CAPACITY  let a client request this capacity from now on
release CLIENT RESOURCE       give it back
show                          print what each client has
master                        print which server each client speaks to
help                          print this
quit, q, bye                  give everything back, and exit; so does the end of the input
`

func newCapacityShell(o *capacityOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "shell",
		Short: "Act as several clients, controlled from a terminal or a pipe",
		Long: "Act as several clients, controlled by these commands from a terminal or a pipe:\n\n" +
			shellHelp +
			"\nWords are quoted as in a POSIX shell. Commands that succeed print nothing, except show,\n" +
			"master and help. From a pipe, the status is 1 if a command failed.",
		Example: "  printf 'get me database 10\\nshow\\n' | gatehouse capacity shell",
		Args:    exactArgs(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			// A signal ends the shell, and not the program, so that the leases are given back.
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			s := &shell{
				options: o, players: make(map[string]*player),
				out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(),
			}
			return s.runCommands(ctx, cmd.InOrStdin())
		},
	}
}

// A shell plays several clients of capacity leases, as its commands say.
type shell struct {
	options *capacityOptions
	players map[string]*player
	out     io.Writer
	err     io.Writer
	failed  int
}

// A player is one client of a shell, and the resources that it asks for.
type player struct {
	*leaseClient
	id        string
	resources map[string]*holder.Resource
}

// errQuit is returned by the command quit, to end the shell.
var errQuit = errors.New("quit")

// runCommands reads and runs commands until the input ends, a signal comes, or one of them is quit. Then it
// gives back what the clients hold.
func (s *shell) runCommands(ctx context.Context, in io.Reader) error {
	read, restore, err := s.lineReader(in)
	if err != nil {
		return err
	}
	interactive := restore != nil
	if interactive {
		defer restore()
	}
	// Reading blocks and cannot be cancelled, hence a goroutine for it, which a signal leaves behind. It
	// reads a line only when asked, so that the prompt does not appear before the command before it has
	// printed.
	wantLine := make(chan struct{})
	lines := make(chan inputLine)
	go func() {
		for range wantLine {
			line, err := read()
			select {
			case lines <- inputLine{line, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	err = s.runLines(ctx, wantLine, lines)
	close(wantLine)
	err = errors.Join(err, s.closePlayers())
	// At a terminal a user has seen the errors. A script needs the status.
	if err == nil && s.failed > 0 && !interactive {
		err = fmt.Errorf("%d commands of the shell failed", s.failed)
	}
	return err
}

// An inputLine is a line that was read, or the error of reading it.
type inputLine struct {
	line string
	err  error
}

// runLines asks for lines and runs them, one after the other.
func (s *shell) runLines(ctx context.Context, wantLine chan<- struct{}, lines <-chan inputLine) error {
	for {
		wantLine <- struct{}{}
		select {
		case next := <-lines:
			if errors.Is(next.err, io.EOF) {
				return nil
			}
			if next.err != nil {
				return fmt.Errorf("reading commands: %w", next.err)
			}
			err := s.runLine(ctx, next.line)
			if errors.Is(err, errQuit) {
				return nil
			}
			// A command that a signal has cancelled did not fail.
			if err != nil && ctx.Err() == nil {
				s.failed++
				_, _ = fmt.Fprintf(s.err, "ERROR: %v\n", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// lineReader returns a function that reads a line. On a terminal a user can edit lines and repeat old ones
// with the arrow keys; then restore is not nil and puts the terminal back in its old mode.
func (s *shell) lineReader(in io.Reader) (read func() (string, error), restore func(), err error) {
	file, ok := in.(*os.File)
	if !ok || !isTerminal(file) || !isTerminal(os.Stdout) {
		scanner := bufio.NewScanner(in)
		scanner.Buffer(nil, maxLine)
		return func() (string, error) {
			if scanner.Scan() {
				return scanner.Text(), nil
			}
			return "", cmp.Or(scanner.Err(), io.EOF)
		}, nil, nil
	}
	// In raw mode the terminal passes on each key, and prints no more than it is sent. So all output has to
	// go through the line editor, which keeps it apart from the line being typed.
	descriptor := int(file.Fd())
	before, err := term.MakeRaw(descriptor)
	if err != nil {
		return nil, nil, fmt.Errorf("terminal: %w", err)
	}
	terminal := term.NewTerminal(struct {
		io.Reader
		io.Writer
	}{file, os.Stdout}, prompt)
	s.out, s.err = terminal, terminal
	return func() (string, error) {
		// Asked for each line, as the window may have another size by now.
		if width, height, err := term.GetSize(descriptor); err == nil && width > 0 {
			_ = terminal.SetSize(width, height) // without it, 80 columns are assumed
		}
		return terminal.ReadLine()
	}, func() { _ = term.Restore(descriptor, before) }, nil
}

// closePlayers gives back what all clients hold. It does so at the same time, so that clients whose server
// does not answer take one timeout and not one each.
func (s *shell) closePlayers() error {
	var all sync.WaitGroup
	// Each goroutine has an element of its own, so that none needs a lock.
	failed := make([]error, len(s.players))
	for i, p := range slices.Collect(maps.Values(s.players)) {
		all.Go(func() { failed[i] = p.closeClient(s.options.timeout) })
	}
	all.Wait()
	return errors.Join(failed...)
}

// A shellCommand is a command of the shell.
type shellCommand struct {
	argNames []string // of the words that have to follow it
	run      func(s *shell, ctx context.Context, args []string) error
}

// shellCommands are the commands of the shell by their first word.
var shellCommands = map[string]shellCommand{
	"get":     {[]string{"CLIENT", "RESOURCE", "CAPACITY"}, (*shell).getLease},
	"release": {[]string{"CLIENT", "RESOURCE"}, (*shell).releaseLease},
	"show":    {nil, (*shell).showLeases},
	"master":  {nil, (*shell).showMasters},
	"help":    {nil, (*shell).printHelp},
	"quit":    {nil, (*shell).quitShell},
	"q":       {nil, (*shell).quitShell},
	"bye":     {nil, (*shell).quitShell},
}

// runLine runs one line.
func (s *shell) runLine(ctx context.Context, line string) error {
	// Names may have spaces, so that lines are split as a shell does it.
	words, err := shlex.Split(line)
	if err != nil {
		return fmt.Errorf("line is %.80q, want each quote closed", line)
	}
	if len(words) == 0 {
		return nil
	}
	command, ok := shellCommands[words[0]]
	if !ok {
		return fmt.Errorf("command %.80q is unknown, want get, release, show, master, help or quit", words[0])
	}
	if args := words[1:]; len(args) != len(command.argNames) {
		return fmt.Errorf("%s has %d words behind it, want %s", words[0], len(args),
			cmp.Or(strings.Join(command.argNames, " "), "none"))
	}
	return command.run(s, ctx, words[1:])
}

func (s *shell) quitShell(context.Context, []string) error { return errQuit }

func (s *shell) printHelp(context.Context, []string) error {
	_, err := io.WriteString(s.out, shellHelp)
	return err
}

// getLease makes a client ask for an amount. The first time it waits for the answer, so that a show behind it
// in a script prints the lease.
func (s *shell) getLease(ctx context.Context, args []string) error {
	wants, err := readAmount(args[2])
	if err != nil {
		return err
	}
	if wants == 0 {
		return fmt.Errorf("wants must be > 0.0; to give it back, use: release %s %s", args[0], args[1])
	}
	p, err := s.findPlayer(args[0])
	if err != nil {
		return err
	}
	if r := p.resources[args[1]]; r != nil {
		return r.Want(wants) // the client asks for the new amount in the background
	}
	r, err := p.Resource(args[1], wants, 0)
	if err != nil {
		return err
	}
	p.resources[args[1]] = r
	return p.awaitLease(ctx, r, s.options.timeout)
}

// findPlayer returns the client of this name, and makes it if there is none.
func (s *shell) findPlayer(id string) (*player, error) {
	if p := s.players[id]; p != nil {
		return p, nil
	}
	// An empty name would be replaced by one of the client's own choice.
	if id == "" || len(s.players) == maxPlayers {
		const want = "client %q cannot be had: want a name, and at most %d of them"
		return nil, fmt.Errorf(want, id, maxPlayers)
	}
	client, err := s.options.newLeaseClient(id, nil)
	if err != nil {
		return nil, err
	}
	p := &player{client, id, make(map[string]*holder.Resource)}
	s.players[id] = p
	return p, nil
}

func (s *shell) releaseLease(ctx context.Context, args []string) error {
	p := s.players[args[0]]
	if p == nil || p.resources[args[1]] == nil {
		return fmt.Errorf("client %q has no resource %q", args[0], args[1])
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.timeout)
	defer cancel()
	r := p.resources[args[1]]
	delete(p.resources, args[1]) // also if the release fails: its lease expires by itself
	return r.Release(ctx)
}

// A shownLease is what a client holds of a resource, as it is printed.
type shownLease struct {
	Client   string  `json:"client_id"`
	Resource string  `json:"resource_id"`
	Capacity float64 `json:"capacity"`
	Expiry   int64   `json:"expiry_time,omitempty"`
	until    string
}

// showLeases prints what all clients hold, as far as they know: it asks no server.
func (s *shell) showLeases(context.Context, []string) error {
	all := []shownLease{} // not nil, which would be null in JSON
	for _, p := range s.players {
		for _, r := range p.resources {
			expiry := r.Lease().Expiry
			all = append(all,
				shownLease{p.id, r.ID(), r.Capacity(), expirySeconds(expiry), showExpiry(expiry)})
		}
	}
	// Maps have no order, and scripts compare what is printed.
	slices.SortFunc(all, func(a, b shownLease) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Client, b.Client))
	})
	rows := make([][]string, len(all))
	for i, has := range all {
		rows[i] = []string{
			doormanpb.ShowName(has.Client), doormanpb.ShowName(has.Resource),
			doormanpb.ShowAmount(has.Capacity), has.until,
		}
	}
	return s.printAll(all, []string{"CLIENT", "RESOURCE", "CAPACITY", "LEASE"}, rows)
}

// showMasters prints which server each client speaks to.
func (s *shell) showMasters(context.Context, []string) error {
	masters := make(map[string]string)
	for id, p := range s.players {
		masters[id] = p.Master()
	}
	rows := make([][]string, 0, len(masters))
	for id, master := range masters {
		rows = append(rows, []string{doormanpb.ShowName(id), doormanpb.ShowName(cmp.Or(master, "none yet"))})
	}
	slices.SortFunc(rows, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
	return s.printAll(masters, []string{"CLIENT", "MASTER"}, rows)
}

// printAll prints a value as JSON, or the same as a table.
func (s *shell) printAll(value any, head []string, rows [][]string) error {
	if s.options.json {
		return writeJSON(s.out, value)
	}
	return printTable(s.out, head, rows)
}
