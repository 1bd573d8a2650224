package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/glob"
	"github.com/gatehousehq/gatehouse/internal/smallfile"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newToken() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token NAME",
		Short: "Make a token for a user",
		Long: "Make a token for a user, and print it with the lines for the file of --users. The token is\n" +
			"shown once: the file has its hash alone.",
		Example: "  gatehouse token ci\n  gatehouse token can ci acquire lock/deploy --users users.yaml",
		Args:    exactArgs("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !access.IsName(args[0]) || args[0] == access.Anonymous {
				return usageError{fmt.Errorf("NAME is %q, want letters, digits, dots, hyphens, underscores",
					args[0])}
			}
			token, hash := access.NewToken()
			// The token alone goes where a pipe or a variable takes it.
			_, _ = fmt.Fprintln(cmd.OutOrStdout(), token)
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(),
				"This is shown once. In the file of --users, under users:\n\n"+
					"  - name: %s\n    tokens: [%q]\n    may: [{on: \"*\", do: use}]\n", args[0], hash)
			return nil
		},
	}
	cmd.AddCommand(newTokenCan())
	return cmd
}

func newTokenCan() *cobra.Command {
	var source string
	cmd := &cobra.Command{
		Use:   "can NAME OPERATION KIND/NAME",
		Short: "Say whether a user may do something, and which line says so",
		Long: "Say whether a user may do something, and which line of the file says so. The status is 0\n" +
			"for yes and 1 for no. Beside names of controllers there are capacity/RESOURCE and\n" +
			"server/metrics, server/docs, server/clients and so on, whose operations are levels: read,\n" +
			"use and manage.",
		Example: "  gatehouse token can ci acquire lock/deploy --users users.yaml",
		Args:    exactArgs("NAME", "OPERATION", "KIND/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			// Not as the default, which --help shows: it may have a password in it.
			source := cmp.Or(source, os.Getenv("GATEHOUSE_USERS"))
			if source == "" {
				return usageError{errors.New("--users is empty, want a file or etcd://HOST:PORT/KEY")}
			}
			explain, err := readQuestion(args[1], args[2])
			if err != nil {
				return usageError{err}
			}
			policy, err := loadPolicy(cmd.Context(), source)
			if err != nil {
				return err
			}
			user := policy.User(args[0])
			if user == nil {
				return fmt.Errorf("%s has no user %q", policy.Path, args[0])
			}
			may, why := explain(user)
			answer := "no"
			if may {
				answer = "yes"
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", answer, why)
			if !may {
				// The answer was printed. An error with a text would be a second one.
				return &statusError{status: 1}
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&source, "users", "",
		"file of users, or etcd://HOST:PORT/KEY; also GATEHOUSE_USERS")
	return cmd
}

// readQuestion reads an operation, or a level, and what it is about. explain answers it for a user.
func readQuestion(word, place string) (explain func(*access.User) (may bool, why string), err error) {
	text, name, ok := strings.Cut(place, "/")
	kind, known := gatehouse.ParseKind(text)
	// Rights are about two kinds that are no controllers.
	for _, other := range []gatehouse.Kind{glob.Capacity, glob.Server} {
		if text == glob.KindName(other) {
			kind, known = other, true
		}
	}
	if !ok || !known || kind == gatehouse.Grant || name == "" {
		return nil, fmt.Errorf("KIND/NAME is %q, want one such as lock/deploy or capacity/db", place)
	}
	if level, ok := gatehouse.ParseLevel(word); ok {
		return func(u *access.User) (bool, string) { return u.Explain(kind, name, level) }, nil
	}
	op, isOp := gatehouse.ParseOp(word)
	if !isOp || kind.Level(op) == gatehouse.NoLevel {
		return nil, fmt.Errorf("OPERATION is %q, want read, use, manage, or an operation that a %s has", word,
			text)
	}
	key := gatehouse.Key{Kind: kind, Name: name}
	return func(u *access.User) (bool, string) { return u.ExplainOp(key, op) }, nil
}

// tokenVariable is the environment variable with the token of commands that ask a server. There is no flag
// for it: other users of the machine see those.
const tokenVariable = "GATEHOUSE_TOKEN"

// tokenFileVariable is the environment variable for use instead of --token-file.
const tokenFileVariable = "GATEHOUSE_TOKEN_FILE"

// addTokenFile adds the option of all commands that ask servers.
func addTokenFile(f *pflag.FlagSet, path *string) {
	f.StringVar(path, "token-file", os.Getenv(tokenFileVariable),
		"file with the token to send; also "+tokenFileVariable+", and "+tokenVariable+" for the token itself")
}

// maxTokenFile bounds what is read of --token-file, in bytes.
const maxTokenFile = 4 << 10

// readToken returns the token of a file, or else of the environment; "" for none.
func readToken(path string) (string, error) {
	if path == "" {
		return os.Getenv(tokenVariable), nil
	}
	text, err := smallfile.Read(path, smallfile.Wanted{What: "a token", Size: maxTokenFile, Piped: true})
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	// Editors end a file with a line end, which belongs to no token.
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("--token-file: %s is empty, want a token", path)
	}
	return token, nil
}
