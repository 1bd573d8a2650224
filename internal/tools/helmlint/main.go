// Command helmlint lints a Helm chart with Helm's own linter, once for each file of values it is given. Without one
// the chart's own values are used.
//
//	go run . ../../packaging/chart values-redis.yaml
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: helmlint CHART [VALUES...]")
		os.Exit(2)
	}
	chart, well := os.Args[1], true
	for _, name := range append([]string{"values.yaml"}, os.Args[2:]...) {
		values, err := common.ReadValuesFile(filepath.Join(chart, name))
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
			os.Exit(1)
		}
		result := lint.RunAll(chart, values, "default")
		for _, message := range result.Messages {
			fmt.Printf("%s: %v\n", name, message)
		}
		fmt.Printf("%s: linted, %d messages\n", name, len(result.Messages))
		well = well && result.HighestSeverity < support.WarningSev
	}
	if !well {
		os.Exit(1)
	}
}
