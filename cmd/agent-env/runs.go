package main

import (
	"context"
	"log/slog"
	"time"

	"agentenv/cli"
	"agentenv/episode"
	"agentenv/runner"
	"agentenv/runner/local"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/task"
)

// wireRuns makes what runs tasks and keeps the records of runs, over the services that are there already.
func wireRuns(ctx context.Context, s *cli.Services, log *slog.Logger) {
	self := sandbox.ThisProcess()
	s.Records = runner.NewRecords(s.Documents, self, time.Now)
	engine := task.NewEngine(s.Registry, s.Documents, log, time.Now)
	engine.Owner = task.Owner{Self: doc.Of("host", self.Host, "boot", self.Boot, "pid", doc.Int(self.PID), "start", self.Start), Alive: s.Records.RunsStill}
	s.Engine, s.OwnerAlive = engine, ownerAlive(ctx, s.Records, log)
	s.Tracker = local.NewTracker(s.Records, log)
	s.Episodes = episode.Deps{Registry: s.Registry, Engine: engine, Teardown: s.Teardown, Tracker: s.Tracker, Log: log}
	s.Runner = func(c local.Config) *local.Runner {
		return local.New(local.Deps{Engine: engine, Tasks: s.Tasks, Instances: s.Instances, Records: s.Records, Teardown: s.Teardown, Log: log}, c)
	}
}

// ownerAlive tells for people whether the owner of a run lives; where that cannot be told, it counts as living.
func ownerAlive(ctx context.Context, records *runner.Records, log *slog.Logger) func(*task.Instance) bool {
	return func(in *task.Instance) bool {
		lives, err := records.RunsStill(context.WithoutCancel(ctx), in.ID, in.Owner)
		if err != nil {
			log.Warn("the owner of a run cannot be looked for", "instance", in.ID, "error", err)
		}
		return lives
	}
}
