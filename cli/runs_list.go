package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"agentenv/fault"
	"agentenv/runner"
	"agentenv/store/doc"
	"agentenv/task"
)

// runsQuery says which runs are listed.
type runsQuery struct {
	task.ListQuery
	older, newer string // ages
}

func (a *App) runsList() *cobra.Command {
	var q runsQuery
	var class string
	var asJSON bool
	cmd := &cobra.Command{Use: "list", Short: "List the runs on record, the newest first", Args: cobra.NoArgs,
		Long: "A run whose process is gone without an end on record is shown as interrupted; `agent-env run --resume INSTANCE` goes on with it. " +
			"A queued run waits for `agent-env runs work`, or for a place in the process that it was submitted to.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if q.Limit < 0 {
				return usagef(cmd, "--limit must be at least 0")
			}
			q.Class = task.Class(class)
			if err := q.ages(cmd); err != nil {
				return err
			}
			if known := []string{"", "queued", "running", "interrupted", "completed", "failed", "cancelled"}; !slices.Contains(known, q.Status) {
				return usagef(cmd, "--status must be one of %s, not %q", strings.Join(known[1:], ", "), q.Status)
			}
			if q.Class != "" && !slices.Contains(task.Classes(), q.Class) {
				return usagef(cmd, "--class must be one of %s, not %q", classNames(), q.Class)
			}
			return a.with(cmd, func(ctx context.Context, s *Services) error { return a.listRuns(ctx, s, q.ListQuery, asJSON) })
		}}
	fl := cmd.Flags()
	fl.StringVar(&q.TaskID, "task", "", "runs of this task")
	fl.StringVar(&q.Group, "group", "", "runs of this run group")
	fl.StringVar(&q.Status, "status", "", "runs with this status: queued, running (also those that are interrupted), interrupted, completed, failed or cancelled")
	fl.StringVar(&class, "class", "", "runs with this outcome class: passed, failed, timed_out, infrastructure, configuration, judge or cancelled")
	fl.StringVar(&q.older, "older-than", "", "runs that began longer ago than this: 90m, 12h, 7d")
	fl.StringVar(&q.newer, "newer-than", "", "runs that began since then: 90m, 12h, 7d")
	fl.IntVar(&q.Limit, "limit", 50, "how many at most; 0 = all")
	fl.BoolVar(&asJSON, "json", false, "print one JSON document")
	return cmd
}

func (q *runsQuery) ages(cmd *cobra.Command) error {
	for flag, at := range map[string]*time.Time{"older-than": &q.Until, "newer-than": &q.Since} {
		if !cmd.Flags().Changed(flag) {
			continue
		}
		age, err := parseAge(cmd.Flags().Lookup(flag).Value.String())
		if err != nil {
			return usagef(cmd, "--%s: %s", flag, err)
		}
		*at = time.Now().Add(-age)
	}
	return nil
}

// maxDays bounds an age: more does not fit into a duration.
const maxDays = 100_000

// parseAge reads an age: a Go duration (90m, 1h30m), or a number of days (7d).
func parseAge(text string) (time.Duration, error) {
	var age time.Duration
	var err error
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n float64
		if n, err = strconv.ParseFloat(days, 64); err == nil && !(n >= 0 && n <= maxDays) {
			err = strconv.ErrRange
		}
		age = time.Duration(n * 24 * float64(time.Hour))
	} else {
		age, err = time.ParseDuration(text)
	}
	if err != nil || age < 0 {
		return 0, fault.New(fault.Invalid, "%q is no age; 90m, 12h and 7d are", text)
	}
	return age, nil
}

// listed is a run in a list: its instance, its record, or both.
type listed struct {
	in  *task.Instance
	rec *runner.Record
}

// began is when the run began, or was submitted, in a form that sorts.
func (l listed) began() string {
	if l.in == nil {
		return l.rec.Created
	}
	if precise := l.in.Document.Str("created_at_precise_utc"); precise != "" {
		return precise
	}
	return strings.Replace(strings.TrimSuffix(l.in.CreatedAt, " UTC"), " ", "T", 1)
}

func (l listed) instance() string {
	if l.in != nil {
		return l.in.ID
	}
	return l.rec.Instance
}

// recordStatus is a record's status in the words of instances.
var recordStatus = map[runner.Status]string{runner.Queued: "queued", runner.Running: "running", runner.Completed: "completed", runner.Failed: "failed", runner.Canceled: "cancelled"}

// waits reports whether the run is queued, or was handed back to the queue; its instance, if any, is one that it will continue.
func (l listed) waits() bool {
	return l.rec != nil && (l.rec.Status == runner.Queued || l.rec.Status == runner.Running && l.rec.Owner == nil && l.rec.Runner == runner.LocalType)
}

// interrupted reports whether the run is on record as running and nobody runs it.
func (l listed) interrupted(s *Services) bool {
	switch {
	case l.waits():
		return false
	case l.in != nil:
		return interrupted(s, l.in)
	}
	return l.rec.Status == runner.Running && !s.Records.Alive(l.rec.Owner)
}

// status is the record's status: a run that was handed back waits as well.
func (l listed) status() string {
	if l.waits() {
		return recordStatus[runner.Queued]
	}
	return recordStatus[l.rec.Status]
}

// findRuns returns the runs that match, the newest first: those with an instance, and those that have none yet or never got one.
func findRuns(ctx context.Context, s *Services, q task.ListQuery) ([]listed, error) {
	if q.Status == interruptedStatus {
		return findInterrupted(ctx, s, q)
	}
	var all []listed
	if q.Status != "queued" {
		instances, err := s.Instances.List(ctx, q)
		if err != nil {
			return nil, err
		}
		ids := make([]string, len(instances))
		for i, in := range instances {
			ids[i] = in.ID
		}
		records := map[string]*runner.Record{}
		for part := range slices.Chunk(ids, 500) {
			some, err := s.Records.OfInstances(ctx, part)
			if err != nil {
				return nil, err
			}
			for id, r := range some {
				records[id] = r
			}
		}
		for _, in := range instances {
			if l := (listed{in, records[in.ID]}); q.Status == "" || !l.waits() {
				all = append(all, l)
			}
		}
	}
	more, err := withoutInstance(ctx, s, q, all)
	if err != nil {
		return nil, err
	}
	all = append(all, more...)
	slices.SortStableFunc(all, func(x, y listed) int {
		if c := strings.Compare(y.began(), x.began()); c != 0 {
			return c
		}
		return strings.Compare(y.instance(), x.instance())
	})
	if q.Limit > 0 && len(all) > q.Limit {
		all = all[:q.Limit]
	}
	return all, nil
}

// findInterrupted returns those that match of the runs that are on record as running and that nobody runs.
func findInterrupted(ctx context.Context, s *Services, q task.ListQuery) ([]listed, error) {
	most := q.Limit
	q.Status, q.Limit = "running", 0
	all, err := findRuns(ctx, s, q)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(l listed) bool { return !l.interrupted(s) })
	if most > 0 && len(all) > most {
		all = all[:most]
	}
	return all, nil
}

// withoutInstance returns the records that match and whose instance is not there, or waits to be continued.
func withoutInstance(ctx context.Context, s *Services, q task.ListQuery, known []listed) ([]listed, error) {
	rq := runner.Query{TaskID: q.TaskID, Group: q.Group, Class: q.Class, Since: q.Since, Until: q.Until, Limit: q.Limit}
	if q.Status != "" {
		for status, word := range recordStatus {
			if word == q.Status {
				rq.Status = []runner.Status{status}
			}
		}
		if rq.Status == nil {
			return nil, nil
		}
	}
	records, err := s.Records.List(ctx, rq)
	if err != nil {
		return nil, err
	}
	have := map[string]bool{}
	for _, l := range known {
		have[l.in.ID] = true
	}
	var out []listed
	for _, r := range records {
		if have[r.Instance] {
			continue
		}
		if q.Status == "queued" {
			out = append(out, listed{rec: r})
			continue
		}
		in, err := s.Instances.Find(ctx, r.Instance)
		if err != nil {
			return nil, err
		}
		if in == nil {
			have[r.Instance] = true
			out = append(out, listed{rec: r})
		}
	}
	return out, nil
}

func (a *App) listRuns(ctx context.Context, s *Services, q task.ListQuery, asJSON bool) error {
	runs, err := findRuns(ctx, s, q)
	if err != nil {
		return err
	}
	if asJSON {
		out := []any{}
		for _, l := range runs {
			out = append(out, l.document(s))
		}
		return a.printJSON(doc.Of("runs", out))
	}
	if len(runs) == 0 {
		fmt.Fprintln(a.Stdout, "No runs.")
		return nil
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "INSTANCE\tSTATUS\tCLASS\tSTEPS\tBEGAN\tERROR")
	for _, l := range runs {
		if l.in == nil || l.waits() {
			fmt.Fprintf(w, "%s\t%s\t%s\t\t%s\t%s\n", l.instance(), l.status(), l.rec.Class, minute(l.rec.Created), brief(firstLine(l.rec.Error), 60))
			continue
		}
		in := l.in
		fmt.Fprintf(w, "%s\t%s\t%s\t%d/%d\t%s\t%s\n", in.ID, statusOf(s, in), in.Class, in.CurrentStep, in.TotalSteps, in.CreatedAt, brief(firstLine(in.Error), 60))
	}
	return w.Flush()
}

// minute is a time of a record as instances have it.
func minute(stamp string) string {
	t, err := time.Parse(time.RFC3339Nano, stamp)
	if err != nil {
		return stamp
	}
	return t.UTC().Format(minuteUTC)
}

func (l listed) document(s *Services) *doc.Object {
	if l.in == nil || l.waits() {
		r := l.rec
		return doc.Of("run_id", r.ID, "instance_id", r.Instance, "task_id", r.TaskID, "task_version", r.Document.Value("task_version"),
			"run_group_id", null(r.Overrides.Obj("metadata").Str("run_group_id")), "status", l.status(), "interrupted", l.interrupted(s),
			"outcome_class", null(string(r.Class)), "created_at", r.Created, "ended_at", null(r.Finished), "steps_done", doc.Int(0), "steps_total", nil, "error", null(r.Error))
	}
	return runDocument(s, l.in, l.rec)
}
