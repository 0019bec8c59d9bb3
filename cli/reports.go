package cli

import (
	"errors"

	"agentenv/bundle"
	"agentenv/fault"
)

// reports are the files that a run's summary goes to beside the output.
type reports struct {
	junit   *bundle.JUnit
	output  *bundle.Output
	written bool
}

// openReports makes sure, before anything runs, that the files can be written.
func openReports(f *runFlags) (*reports, error) {
	r := &reports{}
	var err error
	if f.junit != "" {
		if r.junit, err = bundle.OpenJUnit(f.junit); err != nil {
			return nil, fault.At(err, "--junit")
		}
	}
	if f.outputDir != "" {
		if r.output, err = bundle.OpenOutput(f.outputDir); err != nil {
			return nil, fault.At(err, "--output-dir")
		}
	}
	return r, nil
}

func (r *reports) write(sum *bundle.Summary) error {
	r.written = true
	return errors.Join(r.junit.Write(sum), r.output.Finish(sum))
}

// close gives back the folder of outputs when nothing came to run.
func (r *reports) close() {
	if !r.written {
		r.output.Close()
	}
}
