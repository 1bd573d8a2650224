package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newMan returns the command that writes the man pages. Packages are made with it; users read the pages.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:    "man FOLDER",
		Short:  "Write a man page for each command into a folder",
		Hidden: true,
		Args:   exactArgs("FOLDER"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return writeManPages(cmd.Root(), args[0])
		},
	}
}

// writeManPages writes the page of a command and those of the commands below it.
func writeManPages(cmd *cobra.Command, folder string) error {
	name := pageName(cmd) + ".1"
	if err := os.WriteFile(filepath.Join(folder, name), manPage(cmd), 0o644); err != nil {
		return err
	}
	for _, child := range cmd.Commands() {
		// Hidden commands are for other programs, and have no page.
		if !child.IsAvailableCommand() {
			continue
		}
		if err := writeManPages(child, folder); err != nil {
			return err
		}
	}
	return nil
}

// pageName is the name of the page of a command: gatehouse-capacity-get.
func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns the page of one command in the man macros of roff, from the texts that --help shows.
func manPage(cmd *cobra.Command) []byte {
	var page bytes.Buffer
	// No date: the same source makes the same page.
	title := strings.ToUpper(pageName(cmd))
	fmt.Fprintf(&page, ".TH %q 1 \"\" %q \"Gatehouse\"\n", title, "gatehouse "+buildVersion())
	fmt.Fprintf(&page, ".SH NAME\n%s \\- %s\n", roff(pageName(cmd)), roff(cmd.Short))
	fmt.Fprintf(&page, ".SH SYNOPSIS\n.B %s\n", roff(cmd.UseLine()))
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(&page, ".br\n.B %s\nCOMMAND\n", roff(cmd.CommandPath()))
	}
	// The text has its ends of lines already: .nf leaves them as they are.
	if cmd.Long != "" {
		fmt.Fprintf(&page, ".SH DESCRIPTION\n.nf\n%s\n.fi\n", roff(cmd.Long))
	}
	writeManFlags(&page, "OPTIONS", cmd.NonInheritedFlags())
	writeManFlags(&page, "OPTIONS OF ALL ITS COMMANDS", cmd.InheritedFlags())
	if cmd.Example != "" {
		fmt.Fprintf(&page, ".SH EXAMPLES\n.nf\n%s\n.fi\n", roff(cmd.Example))
	}
	// Pages of the commands above and below.
	var also []string
	if cmd.HasParent() {
		also = append(also, pageName(cmd.Parent()))
	}
	for _, child := range cmd.Commands() {
		if child.IsAvailableCommand() {
			also = append(also, pageName(child))
		}
	}
	page.WriteString(".SH SEE ALSO\n")
	for _, name := range also {
		fmt.Fprintf(&page, ".BR %s (1)\n", roff(name))
	}
	page.WriteString(".PP\nAll pages are at /docs/ of a running server.\n")
	return page.Bytes()
}

// writeManFlags writes a section for flags, if there are any.
func writeManFlags(page *bytes.Buffer, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(page, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		fmt.Fprintf(page, ".TP\n\\fB%s\\fR %s\n%s", roff(name), roff(value), roff(usage))
		// These are the defaults of flags that stand for nothing, which --help leaves out as well.
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" {
			fmt.Fprintf(page, " (default %s)", roff(f.DefValue))
		}
		page.WriteString("\n")
	})
}

// roff returns a text for a page of man. A line that begins with a dot or a quote would be a command.
func roff(text string) string {
	// A "-" alone would be a hyphen, which cannot be pasted into a shell.
	escaped := strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(escaped, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
