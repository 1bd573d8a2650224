package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// newExplain returns explain.
func newExplain() *cobra.Command {
	o := &remoteOptions{}
	asJSON := false
	cmd := &cobra.Command{
		Use:   "explain ID",
		Short: "Explain a refusal by its id: what was full, who used it, when it passes",
		Long: "Explain a refusal by its id, which the header Gatehouse-Decision of the response has.\n" +
			"Each server keeps its own last refusals, so the servers are asked until one has it.",
		Example: "  gatehouse explain d1x8k2\n" +
			"  gatehouse explain d1x8k2 --server a:5505,b:5505 --json",
		Args: exactArgs("ID"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := explain(cmd.Context(), o, args[0])
			if err != nil {
				return failure(err)
			}
			// As the server has sent it: it has more members than people are shown.
			if asJSON {
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", text)
				return err
			}
			return printExplanation(cmd.OutOrStdout(), text)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	o.addFlags(cmd.Flags())
	return cmd
}

// explain asks one server after the other for a refusal, and returns its explanation.
func explain(ctx context.Context, o *remoteOptions, id string) (text []byte, err error) {
	var failed error
	for _, server := range o.servers {
		// A client of all servers would take the answer of the first,
		// also if that does not know the refusal.
		one := *o
		one.servers = []string{server}
		c, err := one.newClient()
		if err != nil {
			return nil, err
		}
		text, found, err := c.Explain(ctx, id)
		c.Close()
		switch {
		case found:
			return text, nil
		case err == nil:
			err = errors.New(server + ": " + string(text))
		}
		failed = cmp.Or(failed, err)
	}
	return nil, failed
}

// An explanation is what GET /v1/decisions/<id> answers, as far as people are told.
type explanation struct {
	Detail    string    `json:"detail"`
	At        time.Time `json:"at"`
	Binding   string    `json:"binding"`
	Asked     string    `json:"asked"`
	Cost      int64     `json:"cost"`
	Limit     int64     `json:"limit"`
	Remaining int64     `json:"remaining"`
	Waited    int64     `json:"waited"`
	Waiting   int       `json:"waiting"`
	Passes    time.Time `json:"passes"`
	Request   string    `json:"request"`
	User      string    `json:"user"`
	Owner     string    `json:"owner"`
	Host      string    `json:"host"`
	Purpose   string    `json:"purpose"`
	Holders   []struct {
		ID      string    `json:"id"`
		Owner   string    `json:"owner"`
		Host    string    `json:"host"`
		Purpose string    `json:"purpose"`
		Since   time.Time `json:"since"`
		Slots   int64     `json:"slots"`
	} `json:"holders"`
	Users []struct {
		User  string `json:"user"`
		Count int64  `json:"count"`
	} `json:"users"`
}

// printExplanation prints an explanation for people: the sentence, and a line for each thing that is known.
func printExplanation(to io.Writer, text []byte) error {
	var e explanation
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Errorf("reading the explanation: %w", err)
	}
	out := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	line := func(name, value string) {
		if value != "" {
			_, _ = fmt.Fprintf(out, "%s\t%s\n", name, value)
		}
	}
	_, _ = fmt.Fprintf(out, "%s\n", e.Detail)
	line("refused", e.At.Format(time.RFC3339Nano))
	line("by", e.Binding)
	// A request without limits of its own was decided by those in force.
	line("asked", strings.TrimSpace(fmt.Sprintf("%d of %s", e.Cost, cmp.Or(e.Asked, "the limit in force"))))
	line("free", fmt.Sprintf("%d of %d", e.Remaining, e.Limit))
	line("waited", (time.Duration(e.Waited) * time.Millisecond).String())
	line("in line", fmt.Sprint(e.Waiting))
	if !e.Passes.IsZero() {
		line("passes", e.Passes.Format(time.RFC3339Nano))
	}
	for _, h := range e.Holders {
		// An owner may have no name, host or purpose. Fields leaves no gaps for these.
		line("held by", fmt.Sprintf("%s since %s, %d of it", strings.Join(strings.Fields(
			cmp.Or(h.Owner, h.ID)+" "+h.Host+" "+h.Purpose), " "), h.Since.Format(time.RFC3339), h.Slots))
	}
	for _, u := range e.Users {
		line("used by", fmt.Sprintf("%s, %d times lately", u.User, u.Count))
	}
	line("for", strings.Join(strings.Fields(e.User+" "+e.Owner+" "+e.Host+" "+e.Purpose), " "))
	line("request", e.Request)
	return out.Flush()
}
