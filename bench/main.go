// Command bench measures agent-env beside the reference and the limit (docker run, docker cp, one SQLite commit) in one run, on
// this machine, and prints a table of ratios. It needs a Docker Engine; where the reference gives no figure the table says why, or
// "-" where there is nothing to compare.
//
//	go run ./bench [-program bin/agent-env] [-reference PATH] [-only REGEXP] [-big BYTES]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"text/tabwriter"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// row is one line of the table.
type row struct {
	work   string
	ours   measure
	ref    measure // zero: the reference does not do it here
	limit  measure // zero: no limit is given
	what   string  // what the limit is
	target string
}

func run(ctx context.Context) error {
	cache, _ := os.UserCacheDir()
	program := flag.String("program", "bin/agent-env", "the agent-env to measure")
	reference := flag.String("reference", filepath.Join(cache, "agent-env-test", "reference", "bin", "agent-env"), "the reference's program")
	only := flag.String("only", "", "only the work that matches")
	writer := flag.String("writer", "", "only commit to this database, as one of several processes, and print the longest wait in seconds")
	big := flag.Int64("big", 1<<30, "size of the big file in bytes")
	serving := flag.Bool("serve-agents", false, "only serve agents, and print their addresses")
	prompted := flag.String("prompt-agents", "", "only prompt the agents whose addresses are in this file, and print the seconds it took")
	how := flag.String("prompt-how", "", "plain, stored or turns")
	store := flag.String("prompt-store", "", "the database that conversations are stored in")
	flag.Parse()
	switch {
	case *serving:
		return serveAgents(ctx)
	case *prompted != "":
		return promptAgents(ctx, *prompted, *how, *store)
	}
	if *writer != "" {
		return writeCommits(ctx, *writer)
	}
	want, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	abs, err := filepath.Abs(*program)
	if err != nil {
		return err
	}
	b, err := newBench(ctx, abs, *reference, *big)
	if err != nil {
		return err
	}
	defer b.close()
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "WORK\tOURS\tREFERENCE\tTIMES FASTER\tLIMIT\tTIMES THE LIMIT\tTO REACH")
	for _, c := range b.cases() {
		if !want.MatchString(c.name) || ctx.Err() != nil {
			continue
		}
		fmt.Fprintf(os.Stderr, "… %s\n", c.name)
		rows, err := c.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.work, r.ours, r.ref, ratio(r.ref, r.ours), r.limit.named(r.what), ratio(r.ours, r.limit), r.target)
		}
	}
	return w.Flush()
}
