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
	"github.com/google/shlex"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Each client of a shell has a connection of its own, as it would have elsewhere.
const mostParties = 1000

// maxLine is the longest line of a shell: names are 512 bytes at most.
const maxLine = 8 << 10

const prompt = "> "

const shellHelp = `get CLIENT RESOURCE CAPACITY  have a client ask for so much of a resource, from now on
release CLIENT RESOURCE       give it back
show                          print what each client has
master                        print which server each client speaks to
help                          print this
quit, q, bye                  give everything back, and end; so does the end of the input
`

func newCapacityShell(o *capacityOptions) *cobra.Command {
	return &cobra.Command{
		Use:   "shell",
		Short: "Play several clients, by commands from a terminal or a pipe",
		Long: "Play several clients, by these commands from a terminal or a pipe:\n\n" + shellHelp +
			"\nWords are quoted as in a POSIX shell. What goes well is silent. From a pipe, the status is\n" +
			"1 if a command failed.",
		Example: "  printf 'get me database 10\\nshow\\n' | gatehouse capacity shell",
		Args:    exactly(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			s := &shell{
				options: o, parties: make(map[string]*player),
				out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(),
			}
			return s.run(ctx, cmd.InOrStdin())
		},
	}
}

// A shell plays clients.
type shell struct {
	options *capacityOptions
	parties map[string]*player
	out     io.Writer
	err     io.Writer
	failed  int
}

// A player is one client of a shell, and what it asks for.
type player struct {
	*party
	id        string
	resources map[string]*holder.Resource
}

// errQuit is what the command quit ends with.
var errQuit = errors.New("quit")

// run reads and runs commands until there are no more.
func (s *shell) run(ctx context.Context, in io.Reader) error {
	read, restore, err := s.reader(in)
	if err != nil {
		return err
	}
	interactive := restore != nil
	if interactive {
		defer restore()
	}
	ask, lines := make(chan struct{}), make(chan typed)
	go func() { // ends with the asking, or the program
		for range ask {
			line, err := read()
			select {
			case lines <- typed{line, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	err = s.obey(ctx, ask, lines)
	close(ask)
	err = errors.Join(err, s.end())
	if err == nil && s.failed > 0 && !interactive {
		err = fmt.Errorf("%d commands of the shell failed", s.failed)
	}
	return err
}

// typed is a line that was read, or why there is none.
type typed struct {
	line string
	err  error
}

// obey asks for lines and runs them, one after the other.
func (s *shell) obey(ctx context.Context, ask chan<- struct{}, lines <-chan typed) error {
	for {
		ask <- struct{}{}
		select {
		case next := <-lines:
			if errors.Is(next.err, io.EOF) {
				return nil
			}
			if next.err != nil {
				return fmt.Errorf("reading commands: %w", next.err)
			}
			err := s.command(ctx, next.line)
			if errors.Is(err, errQuit) {
				return nil
			}
			if err != nil && ctx.Err() == nil {
				s.failed++
				_, _ = fmt.Fprintf(s.err, "ERROR: %v\n", err)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// reader returns what reads a line. At a terminal lines can be edited, and come again by the arrow keys;
// then restore gives the terminal back.
func (s *shell) reader(in io.Reader) (read func() (string, error), restore func(), err error) {
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
		if width, height, err := term.GetSize(descriptor); err == nil && width > 0 {
			_ = terminal.SetSize(width, height) // else it goes by a usual one
		}
		return terminal.ReadLine()
	}, func() { _ = term.Restore(descriptor, before) }, nil
}

// end gives back what all clients have, at the same time.
func (s *shell) end() error {
	var all sync.WaitGroup
	failed := make([]error, len(s.parties))
	for i, p := range slices.Collect(maps.Values(s.parties)) {
		all.Go(func() { failed[i] = p.end(s.options.timeout) })
	}
	all.Wait()
	return errors.Join(failed...)
}

// A verb is a command of the shell.
type verb struct {
	words []string // behind it
	run   func(s *shell, ctx context.Context, args []string) error
}

// verbs are the commands there are.
var verbs = map[string]verb{
	"get":     {[]string{"CLIENT", "RESOURCE", "CAPACITY"}, (*shell).get},
	"release": {[]string{"CLIENT", "RESOURCE"}, (*shell).release},
	"show":    {nil, (*shell).show},
	"master":  {nil, (*shell).master},
	"help":    {nil, (*shell).help},
	"quit":    {nil, (*shell).quit},
	"q":       {nil, (*shell).quit},
	"bye":     {nil, (*shell).quit},
}

// command runs one line.
func (s *shell) command(ctx context.Context, line string) error {
	words, err := shlex.Split(line)
	if err != nil {
		return fmt.Errorf("line is %.80q, want each quote closed", line)
	}
	if len(words) == 0 {
		return nil
	}
	v, ok := verbs[words[0]]
	if !ok {
		return fmt.Errorf("command %.80q is unknown, want get, release, show, master, help or quit", words[0])
	}
	if args := words[1:]; len(args) != len(v.words) {
		return fmt.Errorf("%s has %d words behind it, want %s", words[0], len(args),
			cmp.Or(strings.Join(v.words, " "), "none"))
	}
	return v.run(s, ctx, words[1:])
}

func (s *shell) quit(context.Context, []string) error { return errQuit }

func (s *shell) help(context.Context, []string) error {
	_, err := io.WriteString(s.out, shellHelp)
	return err
}

// get has a client ask for so much. The first time it waits for the answer, so that show shows it.
func (s *shell) get(ctx context.Context, args []string) error {
	wants, err := readAmount(args[2])
	if err != nil {
		return err
	}
	if wants == 0 {
		return fmt.Errorf("wants must be > 0.0; to want nothing any more: release %s %s", args[0], args[1])
	}
	p, err := s.player(args[0])
	if err != nil {
		return err
	}
	if r := p.resources[args[1]]; r != nil {
		return r.Want(wants)
	}
	r, err := p.Resource(args[1], wants, 0)
	if err != nil {
		return err
	}
	p.resources[args[1]] = r
	return p.ready(ctx, r, s.options.timeout)
}

// player is a client, a new one if there is none of this name.
func (s *shell) player(id string) (*player, error) {
	if p := s.parties[id]; p != nil {
		return p, nil
	}
	if id == "" || len(s.parties) == mostParties {
		const want = "client %q cannot be had: want a name, and at most %d of them"
		return nil, fmt.Errorf(want, id, mostParties)
	}
	client, err := s.options.newParty(id, nil)
	if err != nil {
		return nil, err
	}
	p := &player{client, id, make(map[string]*holder.Resource)}
	s.parties[id] = p
	return p, nil
}

func (s *shell) release(ctx context.Context, args []string) error {
	p := s.parties[args[0]]
	if p == nil || p.resources[args[1]] == nil {
		return fmt.Errorf("client %q has no resource %q", args[0], args[1])
	}
	ctx, cancel := context.WithTimeout(ctx, s.options.timeout)
	defer cancel()
	r := p.resources[args[1]]
	delete(p.resources, args[1])
	return r.Release(ctx)
}

// A possession is what a client has of a resource.
type possession struct {
	Client   string  `json:"client_id"`
	Resource string  `json:"resource_id"`
	Capacity float64 `json:"capacity"`
	Expiry   int64   `json:"expiry_time,omitempty"`
	until    string
}

// show prints what all clients have, as far as they know.
func (s *shell) show(context.Context, []string) error {
	all := []possession{}
	for _, p := range s.parties {
		for _, r := range p.resources {
			has := possession{Client: p.id, Resource: r.ID(), Capacity: r.Capacity()}
			expiry := r.Lease().Expiry
			has.until = showExpiry(expiry)
			if !expiry.IsZero() {
				has.Expiry = expiry.Unix()
			}
			all = append(all, has)
		}
	}
	slices.SortFunc(all, func(a, b possession) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Client, b.Client))
	})
	if s.options.json {
		return writeJSON(s.out, all)
	}
	rows := make([][]string, len(all))
	for i, has := range all {
		rows[i] = []string{showName(has.Client), showName(has.Resource), showAmount(has.Capacity), has.until}
	}
	return table(s.out, []string{"CLIENT", "RESOURCE", "CAPACITY", "LEASE"}, rows)
}

// master prints with whom the clients speak.
func (s *shell) master(context.Context, []string) error {
	masters := make(map[string]string)
	for id, p := range s.parties {
		masters[id] = p.Master()
	}
	if s.options.json {
		return writeJSON(s.out, masters)
	}
	rows := make([][]string, 0, len(masters))
	for id, master := range masters {
		rows = append(rows, []string{showName(id), showName(cmp.Or(master, "nobody yet"))})
	}
	slices.SortFunc(rows, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
	return table(s.out, []string{"CLIENT", "MASTER"}, rows)
}
