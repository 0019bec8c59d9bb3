// Package files holds the steps that move files: artifacts and URLs into a sandbox, files out of it.
package files

import (
	"context"
	"net/http"
	"path"
	"strings"
	"time"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/sandbox/place"
	"agentenv/steps/target"
	"agentenv/store/doc"
	"agentenv/task"
)

// Deps is what these steps act with.
type Deps struct {
	Sandboxes *sandbox.Manager
	Artifacts *artifact.Store
	HTTP      *http.Client // fetches URLs; nil = http.DefaultClient
}

// Types returns the step types of this package.
func Types(d Deps) []*task.StepType {
	return []*task.StepType{loadType(d), collectType(d)}
}

// defaultAgent is the agent name that never counts as chosen by the author.
const defaultAgent = "default-agent"

// target finds where a step acts that names a sandbox, and optionally a container started on it, or else an agent.
func (d Deps) target(ctx context.Context, r *task.Run, name, container, agent string) (place.Place, error) {
	record, err := target.Of(r, name, agent)
	if err != nil {
		return nil, err
	}
	if container != "" && !started(r, name, container) {
		return nil, fault.New(fault.Invalid, "container %q is not in metadata.deployed_docker_containers for sandbox %q: no step of this run started it there", container, name)
	}
	r.Log.Info("acting on a sandbox", "sandbox", record.ID, "mode", record.Mode, "container", container, "agent", agent)
	return d.Sandboxes.Place(ctx, record, container)
}

func started(r *task.Run, sandbox, container string) bool {
	list, _ := r.Metadata("deployed_docker_containers").([]any)
	for _, v := range list {
		if o, ok := v.(*doc.Object); ok && o.Str("container_name") == container && o.Str("sandbox_name") == sandbox {
			return true
		}
	}
	return false
}

// reportEvery is how often a step that moves files says how far it is.
const reportEvery = 100 * time.Millisecond

// paced returns a report of bytes and files moved that reaches the observer at most every reportEvery, so that many small
// files cost nothing.
func paced(r *task.Run, what string) func(bytes int64, files int) {
	var last time.Time
	return func(bytes int64, files int) {
		if now := time.Now(); now.Sub(last) >= reportEvery {
			last = now
			r.Report(task.Progress{What: what, Bytes: bytes, Files: files})
		}
	}
}

// folder drops the slashes at the end of a folder's path, keeping "/" itself.
func folder(p string) string {
	if t := strings.TrimRight(p, "/"); t != "" || p == "" {
		return t
	}
	return "/"
}

// destination returns the folder that files go to: an absolute one cleaned, another as it is, for absolute to refuse.
func destination(p string) string {
	if path.IsAbs(p) {
		return path.Clean(p)
	}
	return p
}

// asRuntime returns err recorded as a RuntimeError where its kind alone would make it a ValueError: what the run met, not what the
// author wrote.
func asRuntime(err error) error {
	if err == nil || fault.ClassOf(err) != "ValueError" {
		return err
	}
	return &fault.Error{Kind: fault.KindOf(err), Class: "RuntimeError", Err: err}
}

// plainName reports whether s is one path segment that names something.
func plainName(s string) bool {
	return s != "" && s != "." && s != ".." && !strings.ContainsAny(s, "/\\\x00")
}

func textOrNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func absolute(field, p string) []string {
	if p != "" && !path.IsAbs(p) {
		return []string{field + " must be an absolute path, not " + p}
	}
	return nil
}

func toAny(in []string) []any {
	out := make([]any, len(in))
	for i, s := range in {
		out[i] = s
	}
	return out
}
