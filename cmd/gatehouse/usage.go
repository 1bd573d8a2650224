package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// A usageError is a command line, or an environment, that makes no sense. It ends the program with status 2.
type usageError struct{ error }

// Unwrap returns what is wrong.
func (e usageError) Unwrap() error { return e.error }

// statusOf is what the program ends with.
func statusOf(err error) int {
	if _, wrong := errors.AsType[usageError](err); wrong {
		return 2
	}
	return 1
}

// oneUsage makes a command, and all below it, answer wrong usage alike: with one sentence and status 2.
func oneUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(flagError)
	if !cmd.Runnable() {
		group(cmd)
	}
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
		oneUsage(child)
	}
}

// noWords refuses words behind a command that has only flags.
func noWords(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return fmt.Errorf("%s takes flags only, and was given %q; see %[1]s --help",
			cmd.CommandPath(), args[0])
	}
	return nil
}

// group makes a command that does nothing by itself show its help, and refuse words that are none of its own.
func group(cmd *cobra.Command) {
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
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

// flagError says what is wrong with a flag.
func flagError(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok && unknown.GetSpecifiedShortnames() == "" {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		return usageError{fmt.Errorf("%w%s", err, didYouMean("--", unknown.GetSpecifiedName(), names))}
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if want := wanted(invalid.GetFlag()); want != nil {
			err = fmt.Errorf("--%s is %q, want %w", invalid.GetFlag().Name, invalid.GetValue(), want)
		}
	}
	return usageError{err}
}

// typos is how many letters may be wrong, missing or too many in a word that another is suggested for.
const typos = 2

// didYouMean suggests the names that are near to one that does not exist, in the words behind a sentence.
func didYouMean(prefix, word string, names []string) string {
	near := &cobra.Command{SuggestionsMinimumDistance: typos}
	for _, name := range names {
		near.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	suggestions := near.SuggestionsFor(word)
	if len(suggestions) == 0 || word == "" {
		return ""
	}
	return "; did you mean " + prefix + strings.Join(suggestions, " or "+prefix) + "?"
}
