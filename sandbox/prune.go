package sandbox

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentenv/fault"
)

func rand8() string {
	var b [4]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Listed is a sandbox as List sees it: what the ledger says, what backends hold of it, and whether somebody looks after it.
type Listed struct {
	ID         string
	Row        *Row // nil: no ledger row here (another state folder's, or a lost ledger)
	Found      []Found
	OwnerAlive bool
	Ours       bool // made with this state folder
}

// Doomed is what Prune would remove, and why.
type Doomed struct {
	Listed
	Why string
}

// List joins the ledger's rows of sandboxes not known to be gone with everything of ours the backends hold. stateMark is the
// mark of this state folder on what was made with it. A backend that cannot be asked gives a problem, and what the ledger
// knows of it is listed all the same.
func (m *Manager) List(ctx context.Context, stateMark string) (list []Listed, problems []error, err error) {
	rows, err := m.ledger.Alive(ctx, "")
	if err != nil {
		return nil, nil, err
	}
	at := map[string]int{}
	for i := range rows {
		at[rows[i].ID] = len(list)
		list = append(list, Listed{ID: rows[i].ID, Row: &rows[i], OwnerAlive: rows[i].Process.Alive(), Ours: true})
	}
	for _, name := range m.order {
		found, err := m.providers[name].List(ctx)
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		if err != nil {
			problems = append(problems, fault.At(err, "%s", name))
		}
		for _, f := range found {
			key := f.SandboxID
			if key == "" {
				key = f.Kind + " " + f.Name
			}
			i, ok := at[key]
			if !ok {
				l := Listed{ID: key, Ours: f.StateRoot == stateMark}
				if row, err := m.ledger.Get(ctx, key); err == nil && row != nil {
					l.Row, l.OwnerAlive, l.Ours = row, row.Process.Alive(), true
				}
				i = len(list)
				at[key] = i
				list = append(list, l)
			}
			list[i].Found = append(list[i].Found, f)
		}
	}
	return list, problems, nil
}

// Prune returns what is ours and dead: sandboxes whose process is gone or whose time to live has passed, leavings of ones that
// are recorded as gone, and shared things (such as a helper volume) that nothing of ours uses any more. It removes nothing.
func (m *Manager) Prune(ctx context.Context, stateMark string) (doomed []Doomed, problems []error, err error) {
	list, problems, err := m.List(ctx, stateMark)
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	spared := false
	for _, l := range list {
		if why := l.doom(now); why != "" {
			doomed = append(doomed, Doomed{l, why})
		} else if !l.shared() {
			spared = true
		}
	}
	// A container beside a host goes with its sandbox.
	ids := map[string]bool{}
	for _, d := range doomed {
		ids[d.ID] = true
	}
	doomed = slices.DeleteFunc(doomed, func(d Doomed) bool {
		house, beside := HouseOf(d.ID)
		return beside && ids[house]
	})
	if !spared {
		for _, l := range list {
			if l.shared() {
				doomed = append(doomed, Doomed{l, "nothing uses it"})
			}
		}
	}
	return doomed, problems, nil
}

func (l Listed) shared() bool { return l.Row == nil && len(l.Found) > 0 && l.Found[0].SandboxID == "" }

func (l Listed) doom(now time.Time) string {
	if l.shared() {
		return ""
	}
	if l.Row != nil {
		switch r := l.Row; {
		case r.State == Gone && len(l.Found) > 0:
			return "it was recorded as gone"
		case !l.OwnerAlive:
			return fmt.Sprintf("its %s is gone", r.Process)
		case !r.ExpiresAt.IsZero() && now.After(r.ExpiresAt):
			return "expired " + ago(now.Sub(r.ExpiresAt))
		}
		return ""
	}
	// A folder proves nothing about who made it; only things with our mark and a time to live are judged without a row.
	for _, f := range l.Found {
		if !f.ExpiresAt.IsZero() && now.After(f.ExpiresAt) {
			return "expired " + ago(now.Sub(f.ExpiresAt))
		}
	}
	return ""
}

func ago(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d days ago", int(d.Hours()/24))
}

// Remove removes one thing Prune named, by id, and marks its ledger row. What somebody took over or ended since, and a shared thing
// that something began to use, stays as it is, which is a Conflict error.
func (m *Manager) Remove(ctx context.Context, d Doomed) error {
	ctx, cancel := context.WithTimeout(ctx, TerminateLimit)
	defer cancel()
	if d.shared() {
		f := d.Found[0]
		p, err := m.Provider(f.Provider)
		if err == nil {
			err = p.Remove(ctx, f)
		}
		return fault.At(err, "%s stays", d.ID)
	}
	var failed []string
	if d.Row != nil {
		// From here on nobody takes the sandbox for alive.
		switch mine, err := m.ledger.Claim(ctx, *d.Row, m.self); {
		case err != nil:
			m.log.Debug("a sandbox is removed although the ledger cannot be told", "sandbox", d.ID, "error", err)
		case !mine:
			return fault.New(fault.Conflict, "%s stays: another process took it over or ended it meanwhile", d.ID)
		}
		p, err := m.Provider(d.Row.Type)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(d.ID, "pending-") {
			if err := m.end(ctx, p, d.ID); err != nil {
				failed = append(failed, err.Error())
			}
		}
	}
	for _, f := range d.Found {
		if len(failed) > 0 && d.Row != nil {
			break // without its folder a container that is still up would be taken for gone
		}
		p, err := m.Provider(f.Provider)
		if err == nil {
			err = p.Remove(ctx, f)
		}
		if err != nil && !slices.Contains(failed, err.Error()) {
			failed = append(failed, err.Error())
		}
	}
	if len(failed) > 0 {
		return fault.New(fault.Unavailable, "%s could not be removed: %s", d.ID, strings.Join(failed, "; "))
	}
	if d.Row != nil {
		// It is gone, whatever the ledger says: a later prune finds nothing left to remove and marks it then.
		if err := m.ledger.Mark(ctx, d.ID, Gone); err != nil {
			m.log.Warn("a removed sandbox stays listed for now", "sandbox", d.ID, "error", err)
		}
	}
	return nil
}
