package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

func newHealth() *cobra.Command {
	var o remoteOptions
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Ask servers whether they are well",
		Long: "Ask each server GET /healthz, and print what it answers. The status is 0 if all answer\n" +
			"200, and 1 if not. It is the health command of the container image. Without --server it\n" +
			"asks GATEHOUSE_HEALTH, the address of serve --health, if that is set.",
		Example: "  gatehouse health\n  gatehouse health --server a:5505,b:5505 --timeout 1s",
		Args:    refuseWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), o.timeout)
			defer cancel()
			secure, err := o.tlsConfig()
			if err != nil {
				return err
			}
			transport := &http.Transport{TLSClientConfig: secure}
			asker := healthAsker{http.Client{Transport: transport}, secure != nil}
			// The server's own variable, as in a container, where both have the same environment.
			if at := os.Getenv(healthVariable); at != "" && !cmd.Flags().Changed("server") {
				o.servers = []string{"http://" + localAddress(at, nil)}
			}
			var failed error
			for _, server := range o.servers {
				answer, err := asker.ask(ctx, server)
				// The others are asked after a failure, too: the list shows which server is not well.
				failed = errors.Join(failed, err)
				if _, err := io.WriteString(cmd.OutOrStdout(), answer); err != nil {
					return err
				}
			}
			return failed
		},
	}
	o.addFlags(cmd.Flags())
	cmd.Flags().Lookup("server").Usage = "addresses of servers, all of which are asked; also " +
		serversVariable
	return cmd
}

// longestHealth is how much of an answer is read: a few lines are expected.
const longestHealth = 4096

// healthVariable is the environment variable of the flag --health of a server.
const healthVariable = "GATEHOUSE_HEALTH"

// A healthAsker asks servers whether they are well.
type healthAsker struct {
	client http.Client
	secure bool // an address without a scheme is one of https
}

// ask asks one server, and returns its answer. One that is not 200 is an error.
func (a *healthAsker) ask(ctx context.Context, server string) (answer string, err error) {
	switch {
	case strings.Contains(server, "://"):
	case a.secure:
		server = "https://" + server
	default:
		server = "http://" + server
	}
	page := strings.TrimSuffix(server, "/") + "/healthz"
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
	if err != nil {
		return "", usageError{err}
	}
	response, err := a.client.Do(request)
	if err != nil {
		return "", explainTLS(err)
	}
	defer func() { _ = response.Body.Close() }()
	// Also of an answer that is not 200, since the body says what is wrong.
	body, err := io.ReadAll(io.LimitReader(response.Body, longestHealth))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s to GET /healthz, want 200", server, response.Status)
	}
	return string(body), err
}
