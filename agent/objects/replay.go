package objects

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/store/doc"
)

// Increment is one step of a changelog: what one tool call changed.
type Increment struct {
	Name     string
	Sequence int64 // the number of the tool call
}

var incrementName = regexp.MustCompile(`^(\d{6})(\.[A-Za-z0-9][A-Za-z0-9._-]*)?$`)

// Increments reads the names of the objects of a changelog and returns them in order. A name that is none of an increment (six digits, and
// perhaps a dot and more), and two of one number, are Invalid.
func Increments(names []string) ([]Increment, error) {
	out := make([]Increment, len(names))
	for i, name := range slices.Sorted(slices.Values(names)) {
		match := incrementName.FindStringSubmatch(name)
		if match == nil {
			return nil, fault.New(fault.Invalid, "%q is no name of an increment, such as 000042.tgz", name)
		}
		n, err := strconv.ParseInt(match[1], 10, 64)
		if err != nil {
			return nil, fault.Wrap(fault.Invalid, err, "the increment %q", name)
		}
		if i > 0 && out[i-1].Sequence == n {
			return nil, fault.New(fault.Invalid, "the increments %s and %s have the same number", out[i-1].Name, name)
		}
		out[i] = Increment{name, n}
	}
	return out, nil
}

// Replay says what of a changelog is made again.
type Replay struct {
	ObjectURL       string // of the folder with the increments
	Before          *int64 // only increments with a lower number; nil = all
	Resume          bool   // the conversation goes on too
	TargetContextID string // as which context; "" = the agent chooses
}

// Applied is what an agent made of a changelog.
type Applied struct {
	Count     int    // increments
	ContextID string // "" = no conversation goes on
}

func (r Replay) form() form {
	f := form{uri: card.Snapshot, op: "apply-changelog", objects: []string{"increments"}}
	if r.Resume {
		f.objects = append(f.objects, "resume_conversation")
	}
	if r.TargetContextID != "" {
		f.objects = append(f.objects, "target_context_id")
	}
	return f
}

// folder is the URL with the slash that makes it a folder.
func (r Replay) folder() string { return strings.TrimRight(r.ObjectURL, "/") + "/" }

// CanApplyChangelog says why ApplyChangelog cannot be asked of an agent, nil when it can; nothing is sent.
func (m *Mover) CanApplyChangelog(e agent.Endpoint, r Replay) error {
	_, err := m.mode(e, r.form(), r.folder())
	return err
}

// ListChangelog returns what of a changelog would be made again, without asking an agent. The errors are those of ApplyChangelog.
func (m *Mover) ListChangelog(ctx context.Context, r Replay) ([]Increment, error) {
	return m.increments(ctx, r.folder(), r.Before)
}

// ApplyChangelog has an agent make the changes of a changelog again. When there is none, or none before the cutoff, the agent is sent an empty list, so that it still says which conversation goes on. An agent that applied another number than it was sent is
// an Unavailable error.
func (m *Mover) ApplyChangelog(ctx context.Context, e agent.Endpoint, r Replay) (Applied, error) {
	f, folder := r.form(), r.folder()
	all, err := m.increments(ctx, folder, r.Before)
	if err != nil {
		return Applied{}, fault.At(err, "%s", f)
	}
	body := doc.Of("increments", nil)
	if r.Resume {
		body.Set("resume_conversation", true)
	}
	if r.TargetContextID != "" {
		body.Set("target_context_id", r.TargetContextID)
	}
	urls := make([]string, len(all))
	for i, inc := range all {
		urls[i] = folder + inc.Name
	}
	x, err := m.exchange(e, f, urls...)
	if err != nil {
		return Applied{}, err
	}
	defer x.close(ctx)
	list, total := make([]any, len(all)), int64(0)
	for i, inc := range all {
		o, err := x.read(ctx, urls[i], "the increment "+inc.Name, maxIncrementBytes)
		if err != nil {
			return Applied{}, fault.At(err, "%s", f)
		}
		if total += o.Size; total > maxChangelogBytes {
			return Applied{}, fault.New(fault.Invalid, "%s: the increments below %s have more than %d bytes together", f, folder, int64(maxChangelogBytes))
		}
		list[i] = doc.Of("sequence", doc.Int(inc.Sequence), "object", wire(o))
	}
	answer, err := x.call(ctx, body.Set("increments", list))
	if err != nil {
		return Applied{}, err
	}
	count, ok := answer.Int("count")
	if !ok || count != int64(len(all)) {
		return Applied{}, untrue("%s: %s was sent %d increments and says that it applied %v", f, e, len(all), answer.Value("count"))
	}
	return Applied{Count: len(all), ContextID: answer.Str("context_id")}, nil
}

// increments lists a changelog up to the cutoff.
func (m *Mover) increments(ctx context.Context, folder string, before *int64) ([]Increment, error) {
	urls, err := m.o.Store.ListAt(ctx, folder)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(urls))
	for i, url := range urls {
		names[i] = strings.TrimPrefix(url, folder)
	}
	all, err := Increments(names)
	if err != nil {
		return nil, fault.At(err, "the changelog at %s", folder)
	}
	if before != nil {
		all = slices.DeleteFunc(all, func(i Increment) bool { return i.Sequence >= *before })
	}
	if len(all) > maxIncrements {
		return nil, fault.New(fault.Invalid, "the changelog at %s has %d increments, more than the %d that an agent is given", folder, len(all), maxIncrements)
	}
	return all, nil
}
