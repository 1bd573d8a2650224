// Command gatehouse is the server, and the tools around it.
package main

import (
	"errors"
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
			"  curl 'http://localhost:5505/v1/tokenbucket/myapp/acquire?size=5'",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newServe(), newJARL(), newSimulate(), newCapacity(), newData(), newVersion())
	if err := root.Execute(); err != nil {
		fmt.Fprintf(os.Stderr, "gatehouse: %v\n", err)
		if _, ok := errors.AsType[usageError](err); ok {
			os.Exit(2)
		}
		os.Exit(1)
	}
}
