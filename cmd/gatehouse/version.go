package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is that of the source tree; a build of a tagged module says its own.
const version = "v0.1.0-dev"

func newVersion() *cobra.Command {
	asJSON := false
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !asJSON {
				cmd.Println(versionLine())
				return nil
			}
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
	cmd.Flags().BoolVar(&asJSON, "json", false, "print an object for programs")
	return cmd
}

// versionLine is what the program says of itself.
func versionLine() string {
	return fmt.Sprintf("gatehouse %s %s %s/%s",
		buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func buildVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" || info.Main.Version == "(devel)" {
		return version
	}
	return info.Main.Version
}
