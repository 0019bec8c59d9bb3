package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"agentenv/fault"
	"agentenv/runner"
	"agentenv/store/doc"
	"agentenv/task"
)

type removeFlags struct {
	older               string
	yes, dryRun, asJSON bool
}

func (a *App) runsRm() *cobra.Command {
	var f removeFlags
	cmd := &cobra.Command{Use: "rm [RUN|INSTANCE...]", Short: "Remove the records, journals and logs of runs that have ended",
		Long: "Removes the runs that are named, or all that ended longer ago than --older-than. Shows what would be removed and asks. A run that goes on, waits or was interrupted stays: " +
			"cancel it first. What runs collected stays in the store, and sandboxes that are still up stay up.",
		RunE: func(cmd *cobra.Command, args []string) error {
			aged := cmd.Flags().Changed("older-than")
			switch {
			case len(args) == 0 && !aged:
				return usagef(cmd, "name the runs to remove, or say --older-than")
			case len(args) > 0 && aged:
				return usagef(cmd, "either name the runs to remove, or say --older-than")
			}
			var until time.Time
			if aged {
				age, err := parseAge(f.older)
				if err != nil {
					return usagef(cmd, "--older-than: %s", err)
				}
				until = time.Now().Add(-age)
			}
			return a.with(cmd, func(ctx context.Context, s *Services) error { return a.removeRuns(ctx, s, args, until, f) })
		}}
	fl := cmd.Flags()
	fl.StringVar(&f.older, "older-than", "", "every run that ended longer ago than this: 90m, 12h, 7d")
	fl.BoolVarP(&f.yes, "yes", "y", false, "remove without asking (needed when standard input is no terminal)")
	fl.BoolVar(&f.dryRun, "dry-run", false, "only show what would be removed")
	fl.BoolVar(&f.asJSON, "json", false, "print one JSON document; needs --yes or --dry-run")
	return cmd
}

// doomed is a run to remove, with what goes.
type doomed struct {
	id        string
	in        *task.Instance   // nil: it never got one
	records   []*runner.Record // of the instance
	documents int
	bytes     int64 // of the documents
	log       string
	logBytes  int64
	err       error
}

func (d *doomed) status() string {
	if d.in != nil {
		return d.in.Status
	}
	return recordStatus[d.records[0].Status]
}

func (a *App) removeRuns(ctx context.Context, s *Services, ids []string, until time.Time, f removeFlags) error {
	if f.asJSON && !f.yes && !f.dryRun {
		return fault.New(fault.Invalid, "nothing was removed: --json cannot ask; say --yes, or --dry-run")
	}
	var found []*doomed
	var errs []error
	if len(ids) == 0 {
		all, err := endedBefore(ctx, s, until)
		if err != nil {
			return err
		}
		found = all
	}
	seen := map[string]bool{}
	for _, id := range ids {
		d, err := doom(ctx, s, id)
		switch {
		case err != nil:
			errs = append(errs, err)
		case !seen[d.id]:
			seen[d.id] = true
			found = append(found, d)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err // nothing is removed when one of those that are named cannot be
	}
	if len(found) == 0 {
		if f.asJSON {
			return a.printJSON(removedDocument(nil, f.dryRun))
		}
		fmt.Fprintln(a.Stdout, "Nothing to remove.")
		return nil
	}
	if !f.asJSON {
		if err := a.showDoomed(found); err != nil {
			return err
		}
	}
	switch {
	case f.dryRun && f.asJSON:
		return a.printJSON(removedDocument(found, true))
	case f.dryRun:
		return nil
	case !f.yes && !a.StdinTerminal:
		return fault.New(fault.Invalid, "nothing was removed: standard input is no terminal to ask at; say --yes to remove what is listed")
	case !f.yes && !a.confirm(ctx, fmt.Sprintf("Remove %s?", plural(len(found), "run", "runs"))):
		fmt.Fprintln(a.Stdout, "Nothing was removed.")
		return exit(exitError)
	}
	removed, freed := 0, int64(0)
	for _, d := range found {
		if d.err = d.remove(ctx, s); d.err != nil {
			errs = append(errs, d.err)
			continue
		}
		removed++
		freed += d.bytes + d.logBytes
	}
	if f.asJSON {
		return errors.Join(append(errs, a.printJSON(removedDocument(found, false)))...)
	}
	fmt.Fprintf(a.Stdout, "Removed %s, %s.\n", plural(removed, "run", "runs"), size(freed))
	return errors.Join(errs...)
}

// endedBefore returns the runs that ended before a moment, whoever ran them but the reference's own runner.
func endedBefore(ctx context.Context, s *Services, until time.Time) ([]*doomed, error) {
	runs, err := findRuns(ctx, s, task.ListQuery{Until: until}) // what ended before it began before it
	if err != nil {
		return nil, err
	}
	var out []*doomed
	for _, l := range runs {
		d, err := doom(ctx, s, l.instance())
		if fault.Is(err, fault.Conflict, fault.Unsupported, fault.NotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if d.ended().Before(until) {
			out = append(out, d)
		}
	}
	return out, nil
}

// ended is when the run ended, as far as that is known.
func (d *doomed) ended() time.Time {
	var last time.Time
	note := func(layout, text string) {
		if t, err := time.Parse(layout, text); err == nil && t.After(last) {
			last = t
		}
	}
	for _, r := range d.records {
		note(time.RFC3339Nano, r.Finished)
	}
	if d.in != nil {
		note(minuteUTC, d.in.CreatedAt)
		note(minuteUTC, d.in.CompletedAt)
		note(time.RFC3339Nano, d.in.Document.Str("ended_at_precise_utc"))
	}
	return last
}

// doom finds all there is of a run. Conflict: it has not ended. Unsupported: another program's runner keeps it.
func doom(ctx context.Context, s *Services, id string) (*doomed, error) {
	inst, err := instanceOf(ctx, s, id)
	if err != nil {
		return nil, err
	}
	d := &doomed{id: inst}
	if d.in, err = s.Instances.Find(ctx, inst); err != nil {
		return nil, err
	}
	if d.records, err = s.Records.List(ctx, runner.Query{Instance: inst}); err != nil {
		return nil, err
	}
	if d.in == nil && len(d.records) == 0 {
		return nil, fault.New(fault.NotFound, "run %s not found; `agent-env runs list` shows the runs there are", id)
	}
	for _, r := range d.records {
		switch {
		case r.Runner != runner.LocalType:
			return nil, fault.New(fault.Unsupported, "run %s belongs to the runner %q and is not removed here", inst, r.Runner)
		case !r.Status.Terminal():
			return nil, fault.New(fault.Conflict, "run %s has not ended (%s); `agent-env runs cancel %s` ends it", inst, recordStatus[r.Status], inst)
		}
		d.documents++
		d.bytes += int64(len(doc.Canonical(r.Document)))
	}
	if d.in != nil {
		if _, limited := d.in.Document.Get("end_step"); d.in.Status == "running" && !limited {
			return nil, fault.New(fault.Conflict, "run %s has not ended (%s); `agent-env runs cancel %s` ends it", inst, statusOf(s, d.in), inst)
		}
		n, bytes, err := s.Instances.Size(ctx, d.in)
		if err != nil {
			return nil, err
		}
		d.documents += n
		d.bytes += bytes
	}
	if s.LogDir != "" {
		if info, err := os.Stat(logFile(s.LogDir, inst)); err == nil && info.Mode().IsRegular() {
			d.log, d.logBytes = logFile(s.LogDir, inst), info.Size()
		}
	}
	return d, nil
}

// remove deletes a run: its records last, so that what an interruption leaves is still found.
func (d *doomed) remove(ctx context.Context, s *Services) error {
	if d.log != "" {
		if err := os.Remove(d.log); err != nil && !os.IsNotExist(err) {
			return fault.Wrap(fault.KindOf(err), fault.Reason(err), "the log of %s cannot be removed", d.id)
		}
	}
	if d.in != nil {
		if err := s.Instances.Remove(ctx, d.in); err != nil {
			return err
		}
	}
	for _, r := range d.records {
		if _, err := s.Records.Remove(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (a *App) showDoomed(found []*doomed) error {
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "INSTANCE\tSTATUS\tENDED\tDOCUMENTS\tSIZE\tLOG")
	var bytes int64
	for _, d := range found {
		bytes += d.bytes + d.logBytes
		ended := "-"
		if t := d.ended(); !t.IsZero() {
			ended = t.UTC().Format(minuteUTC)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%s\n", d.id, d.status(), ended, d.documents, size(d.bytes), size(d.logBytes))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(a.Stdout, "%s, %s to free. What they collected stays.\n", plural(len(found), "run", "runs"), size(bytes))
	return nil
}

func removedDocument(found []*doomed, dryRun bool) *doc.Object {
	out := []any{}
	for _, d := range found {
		one := doc.Of("instance_id", d.id, "status", d.status(), "documents", doc.Int(d.documents), "bytes", doc.Int(d.bytes), "log_bytes", doc.Int(d.logBytes),
			"removed", !dryRun && d.err == nil, "error", nil)
		if d.err != nil {
			one.Set("error", d.err.Error())
		}
		out = append(out, one)
	}
	return doc.Of("runs", out, "dry_run", dryRun)
}
