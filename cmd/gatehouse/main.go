// Command gatehouse is the server and its tools.
package main

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	_ "time/tzdata" // calendar windows know the time zones wherever the binary runs

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func main() {
	root := &cobra.Command{
		Use:   "gatehouse",
		Short: "May I go now, and if not, when? Limits, locks and signals for many processes.",
		Example: "  gatehouse serve\n" +
			"  curl 'http://localhost:5505/v1/gcra/myapp/acquire?size=5&interval=60000'",
		Version:       versionLine(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetOut(printTo(os.Stdout))
	root.SetErr(printTo(os.Stderr))
	addGroup(root, serveGroup, "Serve:", newServe(), newJARL(), newToken(), newData(), newSimulate())
	addGroup(root, workGroup, "Work:", newRun(), newOnce())
	addGroup(root, lookGroup, "Look:", newList(), newHoldersList(), newTop(), newExplain(), newLoad(),
		newHealth())
	addGroup(root, askGroup, "Ask about one name:", newVerbs()...)
	root.AddCommand(newCapacity(), newRunGuard(), newMan(), newVersion())
	// Cobra would add its completion command only when it runs. Added now, it gets the same usage errors.
	root.InitDefaultCompletionCmd()
	unifyUsageErrors(root)
	if err := root.Execute(); err != nil {
		if text := err.Error(); text != "" {
			_, _ = fmt.Fprintf(root.ErrOrStderr(), "gatehouse: %s\n", text)
		}
		os.Exit(exitStatus(err))
	}
}

// The groups of commands in the help.
const (
	serveGroup = "serve"
	workGroup  = "work"
	lookGroup  = "look"
	askGroup   = "ask"
)

// addGroup adds commands under a title in the help, in their order.
func addGroup(root *cobra.Command, id, title string, commands ...*cobra.Command) {
	root.AddGroup(&cobra.Group{ID: id, Title: title})
	for _, cmd := range commands {
		cmd.GroupID = id
	}
	root.AddCommand(commands...)
}

// A usageError is an error in the command line or the environment. It ends the program with status 2.
type usageError struct{ error }

// Unwrap returns the error itself.
func (e usageError) Unwrap() error { return e.error }

// exitStatus returns the exit status of the program for an error.
func exitStatus(err error) int {
	if _, wrong := errors.AsType[usageError](err); wrong {
		return 2
	}
	if own, ok := errors.AsType[*statusError](err); ok {
		return own.status
	}
	return 1
}

// unifyUsageErrors makes a command and all its subcommands answer wrong usage in the same way: with one
// sentence and status 2.
func unifyUsageErrors(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(flagError)
	if !cmd.Runnable() {
		makeGroup(cmd)
	}
	// Each command keeps its own check of arguments, whose error becomes one of usage.
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		if err := check(cmd, args); err != nil {
			return usageError{err}
		}
		return nil
	}
	for _, child := range cmd.Commands() {
		unifyUsageErrors(child)
	}
}

// refuseWords checks the arguments of a command that has only flags: there must be none.
func refuseWords(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes flags only, and was given %q; see %[1]s --help",
			cmd.CommandPath(), args[0])
	}
	return nil
}

// makeGroup makes a command that only has subcommands show its help, and refuse a word that is none of them.
func makeGroup(cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		// Cobra passes a word on as an argument if it is no subcommand, so that it is a mistyped one.
		var names []string
		for _, child := range cmd.Commands() {
			if child.IsAvailableCommand() {
				names = append(names, child.Name())
			}
		}
		return fmt.Errorf("%q is no command of %s%s; want one of %s", args[0], cmd.CommandPath(),
			didYouMean("", args[0], names), strings.Join(names, " "))
	}
}

// flagError rewrites an error about a flag: it suggests the flag that was meant, or describes the values that
// the flag takes.
func flagError(cmd *cobra.Command, err error) error {
	// A letter as in -x is too short to guess from.
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return usageError{fmt.Errorf("%w%s", err, didYouMean("--", unknown.GetSpecifiedName(), names))}
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if want := wantedValue(invalid.GetFlag()); want != nil {
			err = fmt.Errorf("--%s is %q, want %w", invalid.GetFlag().Name, invalid.GetValue(), want)
		} else if _, own := invalid.GetFlag().Value.(*nameFlag); own {
			err = fmt.Errorf("--%s is %q: %w", invalid.GetFlag().Name, invalid.GetValue(), invalid.Unwrap())
		}
	}
	return usageError{err}
}

// typos is the most letters that may be wrong, missing or too many in a word for a suggestion.
const typos = 2

// didYouMean returns the end of a sentence that suggests the names that are close to word, or "" without any.
func didYouMean(prefix, word string, names []string) string {
	// Cobra compares words only as names of subcommands. Flags become some for the occasion.
	near := &cobra.Command{SuggestionsMinimumDistance: typos}
	for _, name := range names {
		near.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	// No word at all would be close to every short name.
	suggestions := near.SuggestionsFor(word)
	if len(suggestions) == 0 || word == "" {
		return ""
	}
	return "; did you mean " + prefix + strings.Join(suggestions, " or "+prefix) + "?"
}

// version is the version of the source tree. A build of a tagged module reports its tag instead.
const version = "v0.1.0-dev"

func newVersion() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  refuseWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !asJSON {
				_, err := fmt.Fprintln(cmd.OutOrStdout(), versionLine())
				return err
			}
			// The same parts as in the line, apart from each other.
			return writeJSON(cmd.OutOrStdout(), map[string]string{
				"version": buildVersion(), "go": runtime.Version(),
				"os": runtime.GOOS, "arch": runtime.GOARCH,
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	return cmd
}

// versionLine returns the program's name and version, and those of Go and the system it was built for.
func versionLine() string {
	return fmt.Sprintf("gatehouse %s %s %s/%s",
		buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// buildVersion returns the version of the module that was built.
func buildVersion() string {
	// A build in the working tree has no version, or "(devel)", by Go's version.
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return version
	}
	return info.Main.Version
}
