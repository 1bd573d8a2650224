// Package servertest builds the server that tests and load programs start, and runs a front in a test.
package servertest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// Variable is the environment variable that names a server built already, for callers that test one tree many
// times over.
const Variable = "TESTED_BINARY"

const program = "github.com/gatehousehq/gatehouse/cmd/gatehouse"

// Build returns the path of a server: what Variable names, or else one of this tree, which it builds into
// folder. That has the race detector if the calling program has it. The working directory must be in the
// module.
func Build(ctx context.Context, folder string) (binary string, err error) {
	if built := os.Getenv(Variable); built != "" {
		return built, nil
	}
	binary = filepath.Join(folder, "gatehouse")
	args := []string{"build", "-tags", "otel", "-o", binary} // as what is released is built
	if HasRaceDetector() {
		args = append(args, "-race")
	}
	args = append(args, program)
	if text, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, text)
	}
	return binary, nil
}

// HasRaceDetector reports whether the calling program was built with the race detector.
func HasRaceDetector() bool {
	info, _ := debug.ReadBuildInfo()
	return info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}
