package main

import (
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/spf13/cobra"
)

// maxCompleted is how many names a shell is offered.
const maxCompleted = 100

// completeNames returns the completion of KIND/NAME, for kinds that have an operation: kinds first, then the
// names that the server has.
func completeNames(o *remoteOptions, op gatehouse.Op) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var offered []string
		// No space is put behind a kind, since the name follows in the same word.
		if !strings.Contains(typed, "/") {
			for _, kind := range listedKinds() {
				if kind.Has(op) {
					offered = append(offered, kind.String()+"/")
				}
			}
			return offered, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		}
		// Errors stay silent: a shell would print them into the line that is being typed.
		which, err := listed(typed)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := o.newClient()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.Close()
		details, err := c.NameDetails(cmd.Context(), which.kinds[0], which.prefix, maxCompleted)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		for i := range details {
			offered = append(offered, which.kinds[0].String()+"/"+details[i].Name)
		}
		return offered, cobra.ShellCompDirectiveNoFileComp
	}
}
