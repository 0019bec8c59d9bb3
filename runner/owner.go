package runner

import (
	"context"
	"time"

	"agentenv/fault"
	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/store/document"
)

// Lease is how long after its last sign of life an owner on another host counts as alive.
const Lease = 120 * time.Second

// owner is this process in a record.
func (s *Records) owner() *doc.Object {
	return doc.Of("host", s.self.Host, "pid", doc.Int(s.self.PID), "seen", stamp(s.now()), "boot", s.self.Boot, "start", s.self.Start)
}

// ours narrows a filter to the records that this process owns.
func (s *Records) ours(f document.Filter) document.Filter {
	return f.And("owner.host", document.Eq, s.self.Host).And("owner.pid", document.Eq, doc.Int(s.self.PID)).And("owner.start", document.Eq, s.self.Start)
}

// Alive reports whether the owner of a record still lives: on this host, whether its process runs (a later process with the same number is
// another one, where the record tells when its own began); on another host, whether it was seen within the Lease. Nobody does not live.
func (s *Records) Alive(owner *doc.Object) bool {
	if owner == nil {
		return false
	}
	if p := processOf(owner); p.Host == s.self.Host {
		return p == s.self || p.Alive()
	}
	seen, err := time.Parse(time.RFC3339Nano, owner.Str("seen"))
	return err == nil && s.now().Sub(seen) < Lease
}

// RunsStill reports whether the process that an instance names as its owner still runs it. One on another host is judged by the lease of
// the instance's newest run record: it does not run the instance any more when the record has another owner by now, or its own was not seen for
// too long; without a record nobody can tell, and it counts as running it. Of an instance that names no owner (nil), as those of the reference, the
// record alone tells: it is not run any more when the record has ended, or its owner lives no longer.
func (s *Records) RunsStill(ctx context.Context, instance string, owner *doc.Object) (bool, error) {
	p := processOf(owner)
	if owner != nil && p.Host == s.self.Host {
		return p == s.self || p.Alive(), nil
	}
	r, err := s.OfInstance(ctx, instance)
	switch {
	case err != nil:
		return true, fault.At(err, "whether %s still runs %s cannot be told", p, instance)
	case r != nil && owner == nil:
		return !r.Status.Terminal() && s.Alive(r.Owner), nil
	case r == nil || r.Status.Terminal():
		return true, nil
	}
	return processOf(r.Owner) == p && s.Alive(r.Owner), nil
}

func processOf(owner *doc.Object) sandbox.Process {
	pid, _ := owner.Int("pid")
	return sandbox.Process{Host: owner.Str("host"), Boot: owner.Str("boot"), PID: int(pid), Start: owner.Str("start")}
}

// OwnerName names the owner of a record for people.
func OwnerName(owner *doc.Object) string {
	if owner == nil {
		return "nobody"
	}
	return processOf(owner).String()
}
