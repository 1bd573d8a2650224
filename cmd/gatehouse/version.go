package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

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
				cmd.Println(versionLine())
				return nil
			}
			// The same parts as in the line, apart from each other.
			out, err := json.Marshal(map[string]string{
				"version": buildVersion(), "go": runtime.Version(),
				"os": runtime.GOOS, "arch": runtime.GOARCH,
			})
			if err != nil {
				return fmt.Errorf("version: %w", err)
			}
			cmd.Println(string(out))
			return nil
		},
	}
	cmd.SetOut(os.Stdout)
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
