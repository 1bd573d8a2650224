package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/spf13/cobra"
)

// newList returns ls.
func newList() *cobra.Command {
	o := &remoteOptions{}
	asJSON, most := false, 1000
	cmd := &cobra.Command{
		Use:   "ls [KIND[/PREFIX]]",
		Short: "List names: of all kinds, of one, or those that begin alike",
		Example: "  gatehouse ls\n" +
			"  gatehouse ls semaphore/ci-",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("ls takes one KIND/PREFIX at most")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.newClient()
			if err != nil {
				return err
			}
			defer c.Close()
			// Without an argument it is the empty text, which means all names.
			which, err := listed(append(args, "")[0])
			if err != nil {
				return usageError{err}
			}
			rows, err := which.readNames(cmd.Context(), c, most)
			if err != nil {
				return failure(err)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), rows)
			}
			return printNames(cmd.OutOrStdout(), rows, most)
		},
		ValidArgsFunction: completeNames(o, gatehouse.OpStats),
	}
	cmd.Flags().IntVar(&most, "limit", most, "the most names of each kind")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	o.addFlags(cmd.Flags())
	return cmd
}

// A selection is the names that KIND[/PREFIX] means.
type selection struct {
	kinds  []gatehouse.Kind
	prefix string
}

// listedKinds are the kinds whose names can be listed: grants are looked up by their id.
func listedKinds() (kinds []gatehouse.Kind) {
	for kind := gatehouse.Kind(1); int(kind) < gatehouse.Kinds; kind++ {
		if kind != gatehouse.Grant {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// listed reads KIND[/PREFIX]; the empty text means all names.
func listed(text string) (selection, error) {
	if text == "" {
		return selection{kinds: listedKinds()}, nil
	}
	name, prefix, _ := strings.Cut(text, "/")
	kind, known := gatehouse.ParseKind(name)
	if !known {
		return selection{}, fmt.Errorf("%q has no kind, want KIND or KIND/PREFIX such as semaphore/ci-", text)
	}
	return selection{[]gatehouse.Kind{kind}, prefix}, nil
}

// A nameRow is what ls tells of a name.
type nameRow struct {
	Kind    string `json:"kind"`
	Name    string `json:"name"`
	Limit   int64  `json:"limit"`
	Used    int64  `json:"used"`
	Holders int    `json:"holders"`
	Waiting int    `json:"waiting"`
	Granted int64  `json:"granted"`
	Refused int64  `json:"refused"`
	Closed  string `json:"closed,omitempty"`
}

// showClosing says who closed a name and why, "yes" if that is not known, and "" of an open one.
func showClosing(c *gatehouse.Closing) string {
	if c == nil {
		return ""
	}
	return cmp.Or(c.String(), "yes")
}

// readNames reads the names, at most a number of each kind.
func (s *selection) readNames(ctx context.Context, c *client.Client, most int) ([]nameRow, error) {
	// Not nil, which would be null in JSON.
	rows := []nameRow{}
	for _, kind := range s.kinds {
		details, err := c.NameDetails(ctx, kind, s.prefix, most)
		if err != nil {
			return nil, err
		}
		for i := range details {
			d := &details[i]
			rows = append(rows, nameRow{
				Kind: kind.String(), Name: d.Name, Limit: d.Limit, Used: d.Used, Holders: d.Holders,
				Waiting: d.Waiting, Granted: d.Granted, Refused: d.Refused, Closed: showClosing(d.Closed),
			})
		}
	}
	return rows, nil
}

// printNames prints names as a table.
func printNames(out io.Writer, rows []nameRow, most int) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "NAME\tUSED\tLIMIT\tHOLDERS\tWAITING\tGRANTED\tREFUSED\tCLOSED")
	// The limit is that of each kind, and so is the line which says that it was met.
	perKind := map[string]int{}
	for i := range rows {
		r := &rows[i]
		perKind[r.Kind]++
		_, _ = fmt.Fprintf(table, "%s/%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", r.Kind, doormanpb.ShowName(r.Name),
			r.Used, r.Limit, r.Holders, r.Waiting, r.Granted, r.Refused, r.Closed)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for kind, count := range perKind {
		if count == most {
			_, _ = fmt.Fprintf(out, "%s has more: --limit is %d\n", kind, most)
		}
	}
	return nil
}

// newHoldersList returns ps.
func newHoldersList() *cobra.Command {
	o := &remoteOptions{}
	asJSON := false
	cmd := &cobra.Command{
		Use:     "ps KIND/NAME",
		Short:   "Show who holds a name and who waits for it",
		Example: "  gatehouse ps semaphore/gpu",
		Args:    exactArgs("KIND/NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			key, err := readKey(args[0])
			if err != nil {
				return usageError{err}
			}
			c, err := o.newClient()
			if err != nil {
				return err
			}
			defer c.Close()
			report, err := readHolders(cmd.Context(), c, key)
			if err != nil {
				return failure(err)
			}
			if asJSON {
				return writeJSON(cmd.OutOrStdout(), report)
			}
			return printHolders(cmd.OutOrStdout(), report)
		},
		// Every kind that has holders has waiters, and some have waiters alone.
		ValidArgsFunction: completeNames(o, gatehouse.OpWaiters),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON, for programs")
	o.addFlags(cmd.Flags())
	return cmd
}

// A standing is what ps tells of one holder or waiter.
type standing struct {
	ID       string `json:"id"`
	Owner    string `json:"owner"`
	Host     string `json:"host"`
	Purpose  string `json:"purpose"`
	Grant    string `json:"grant,omitempty"`
	Slots    int64  `json:"slots"`
	For      int64  `json:"for_ms"`
	Expires  *int64 `json:"expires_in,omitempty"`    // of a holder
	Position int    `json:"position,omitempty"`      // of a waiter
	Expected *int64 `json:"expected_wait,omitempty"` // of a waiter
}

// A standingReport is what ps tells of a name.
type standingReport struct {
	Limit   int64      `json:"limit"`
	Used    int64      `json:"used"`
	Closed  string     `json:"closed,omitempty"`
	Holders []standing `json:"holders"`
	Waiters []standing `json:"waiters"`
	Others  int        `json:"waiting_at_other_servers"`
}

// readHolders asks for both lists.
func readHolders(ctx context.Context, c *client.Client, key gatehouse.Key) (*standingReport, error) {
	// Empty lists, as nil would be null in JSON.
	report := &standingReport{Holders: []standing{}, Waiters: []standing{}}
	for _, op := range []gatehouse.Op{gatehouse.OpHolders, gatehouse.OpWaiters} {
		if !key.Kind.Has(op) {
			continue
		}
		d, err := c.Do(ctx, key, gatehouse.Command{Op: op, Amount: gatehouse.MaxListed})
		if err != nil {
			return nil, err
		}
		if d.Outcome != gatehouse.Granted || d.Report == nil {
			return nil, fmt.Errorf("%s does not exist", key)
		}
		report.addAll(d.Report)
	}
	return report, nil
}

// addAll adds what one answer tells.
func (r *standingReport) addAll(told *gatehouse.Report) {
	r.Limit, r.Used = max(r.Limit, told.Limit), max(r.Used, told.Used)
	r.Closed = cmp.Or(showClosing(told.Closed), r.Closed)
	// Times are rounded as over HTTP: what has passed down, and what is to come up.
	for i := range told.Holders {
		h := &told.Holders[i]
		r.Holders = append(r.Holders, standing{
			ID: gatehouse.HolderID(h.Fence), Owner: h.Owner.Name, Host: h.Owner.Host,
			Purpose: h.Owner.Purpose, Grant: h.Grant, Slots: h.Slots,
			For: params.FloorMillis(h.HeldFor), Expires: millisOf(h.ExpiresAfter),
		})
	}
	for i := range told.Waiters {
		w := &told.Waiters[i]
		r.Waiters = append(r.Waiters, standing{
			ID: w.ID, Owner: w.Owner.Name, Host: w.Owner.Host, Purpose: w.Owner.Purpose, Grant: w.Grant,
			Slots: w.Cost, For: params.FloorMillis(w.WaitingFor), Position: w.Position,
			Expected: millisOf(w.Expected),
		})
	}
	for i := range told.Others {
		r.Others += told.Others[i].Waiting
	}
}

// millisOf is a length of time in milliseconds, nil if it is not known or has no end.
func millisOf(d time.Duration) *int64 {
	if d < 0 {
		return nil
	}
	ms := params.CeilMillis(d)
	return &ms
}

// printHolders prints who holds and who waits, as two tables.
func printHolders(out io.Writer, r *standingReport) error {
	if r.Closed != "" {
		_, _ = fmt.Fprintf(out, "closed %s\n", r.Closed)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	// Other kinds than semaphores and locks have no holds, and no table of them.
	if r.Limit > 0 || len(r.Holders) > 0 {
		_, _ = fmt.Fprintf(table, "HOLDS %d OF %d\tFOR\tEXPIRES\tSLOTS\tID\n", r.Used, r.Limit)
	}
	for i := range r.Holders {
		h := &r.Holders[i]
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\n", h.who(), showMillis(&h.For), showMillis(h.Expires),
			h.Slots, h.ID)
	}
	if len(r.Waiters) > 0 {
		_, _ = fmt.Fprintf(table, "WAITS\tFOR\tEXPECTED\tCOST\tID\n")
	}
	for i := range r.Waiters {
		w := &r.Waiters[i]
		_, _ = fmt.Fprintf(table, "%d %s\t%s\t%s\t%d\t%s\n", w.Position, w.who(), showMillis(&w.For),
			showMillis(w.Expected), w.Slots, w.ID)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	// Each server lists its own. Of the others only the number is known.
	if r.Others > 0 {
		_, _ = fmt.Fprintf(out, "and %d at other servers\n", r.Others)
	}
	if len(r.Holders)+len(r.Waiters)+r.Others == 0 {
		_, _ = fmt.Fprintln(out, "nobody holds it, and nobody waits")
	}
	return nil
}

// who names the owner.
func (s *standing) who() string {
	return showOwner(&gatehouse.Owner{Name: s.Owner, Host: s.Host, Purpose: s.Purpose}, "-")
}

// showMillis is a length of time for people, "-" if it is not known or has no end.
func showMillis(ms *int64) string {
	if ms == nil {
		return "-"
	}
	return showDuration(time.Duration(*ms) * time.Millisecond)
}

// forceRelease ends all holds of a name at once, whoever has them.
func (o *verbOptions) forceRelease(cmd *cobra.Command, c *client.Client, key gatehouse.Key) error {
	if !params.HasHolders(key.Kind) {
		return usageError{errors.New("--force is for semaphores and locks")}
	}
	by := localOwner()
	by.Purpose = "release --force"
	ended := 0
	// One list may not have them all.
	for more := true; more; {
		list := gatehouse.Command{Op: gatehouse.OpHolders, Amount: gatehouse.MaxListed}
		d, err := c.Do(cmd.Context(), key, list)
		switch {
		case err != nil:
			return failure(err)
		case d.Report == nil:
			return fmt.Errorf("%s does not exist", key)
		}
		before := ended
		for i := range d.Report.Holders {
			evicted, err := c.Do(cmd.Context(), key, gatehouse.Command{
				Op: gatehouse.OpEvict, Fence: d.Report.Holders[i].Fence, Now: true, Owner: by,
				Message: "released by force",
			})
			if err != nil {
				return failure(err)
			}
			if evicted.Outcome == gatehouse.Granted {
				ended++ // any other has ended by itself meanwhile
			}
		}
		more = ended > before && d.Report.Total > len(d.Report.Holders)
	}
	if o.asJSON {
		return writeJSON(cmd.OutOrStdout(), map[string]any{"released": ended})
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %d holds ended\n", key, ended)
	return err
}
