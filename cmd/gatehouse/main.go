// Command gatehouse is the server and its tools.
package main

import (
	"fmt"
	"os"
	_ "time/tzdata" // calendar windows know the time zones wherever the binary runs

	"github.com/spf13/cobra"
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
	root.SetOut(os.Stdout)
	root.AddCommand(newServe(), newJARL(), newSimulate(), newCapacity(), newData(), newVersion())
	// Cobra would add its completion command only when it runs. Added now, it gets the same usage errors.
	root.InitDefaultCompletionCmd()
	unifyUsageErrors(root)
	if err := root.Execute(); err != nil {
		fmt.Fprintf(os.Stderr, "gatehouse: %v\n", err)
		os.Exit(exitStatus(err))
	}
}
