package bundle

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"sync"

	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/doc"
	"agentenv/task"
)

// summaryFile is the summary's name in a folder of outputs.
const summaryFile = "summary.json"

// Output is a folder that gets what the runs of one invocation came to: each run's final context, without secrets, as it ends, and the
// summary. It is safe for concurrent use; a nil Output takes everything and writes nothing.
type Output struct {
	dir  string
	mu   sync.Mutex
	errs []error
}

// OpenOutput makes the folder dir, or takes one that is empty, and claims it by a summary that says that the runs have not ended. A folder
// with anything in it is refused (Invalid), so that nothing in it is ever overwritten and results of two invocations never mix.
func OpenOutput(dir string) (*Output, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fault.Wrap(fault.KindOf(err), fault.Reason(err), "the folder %s cannot be made", shown(dir))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), fault.Reason(err), "the folder %s cannot be read", shown(dir))
	}
	taken := fault.New(fault.Invalid, "the folder %s is not empty; give each invocation a folder of its own, since nothing is overwritten", shown(dir))
	if len(entries) > 0 {
		return nil, taken
	}
	o := &Output{dir: dir}
	f, err := os.OpenFile(filepath.Join(dir, summaryFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	switch {
	case errors.Is(err, os.ErrExist):
		return nil, taken
	case err == nil:
		err = errors.Join(o.marshalTo(f, doc.Of("format_version", doc.Int(1), "ended", false)), f.Close())
	}
	if err != nil {
		return nil, fault.Wrap(fault.KindOf(err), fault.Reason(err), "nothing can be written into the folder %s", shown(dir))
	}
	return o, nil
}

// Close gives the folder back when nothing ran: the claim goes, and so does the folder when it is empty then.
func (o *Output) Close() {
	if o != nil && os.Remove(filepath.Join(o.dir, summaryFile)) == nil {
		_ = os.Remove(o.dir)
	}
}

func (o *Output) marshalTo(f *os.File, d *doc.Object) error {
	text, err := doc.MarshalIndent(d)
	if err == nil {
		_, err = f.Write(append(text, '\n'))
	}
	return err
}

// keep writes a run's final context and names the file in the run. nil contexts, of runs that never got that far, leave nothing.
func (o *Output) keep(r *Run, context *doc.Object) {
	if o == nil || context == nil {
		return
	}
	name := contextFile(r)
	text, err := doc.MarshalIndent(task.Shown(context))
	if err == nil {
		err = replace(filepath.Join(o.dir, name), append(text, '\n'))
	}
	if err == nil {
		r.Context = name
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.errs = append(o.errs, err)
}

// contextFile is the name of a run's context: a slug and a digest of the task's id, which may hold anything, and the run's number.
func contextFile(r *Run) string {
	name := path.Base(store.ImageRepository(r.TaskID))
	if r.Number > 0 {
		name += fmt.Sprintf("-run-%d", r.Number)
	}
	return name + ".json"
}

// Finish writes the summary and returns what could not be written, contexts included. It may be called again, for a summary that changed.
func (o *Output) Finish(s *Summary) error {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	text, err := doc.MarshalIndent(s.Document().Set("ended", true))
	if err == nil {
		err = replace(filepath.Join(o.dir, summaryFile), append(text, '\n'))
	}
	return errors.Join(append(o.errs[:len(o.errs):len(o.errs)], err)...)
}
