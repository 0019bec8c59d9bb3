package bundle

import (
	"encoding/xml"
	"strconv"
	"strings"

	"agentenv/task"
)

type junitSuites struct {
	XMLName xml.Name `xml:"testsuites"`
	Name    string   `xml:"name,attr"`
	junitCounts
	Suites []*junitSuite `xml:"testsuite"`
}

type junitCounts struct {
	Tests    int    `xml:"tests,attr"`
	Failures int    `xml:"failures,attr"`
	Errors   int    `xml:"errors,attr"`
	Skipped  int    `xml:"skipped,attr"`
	Time     string `xml:"time,attr"`
	seconds  float64
}

type junitSuite struct {
	Name string `xml:"name,attr"`
	junitCounts
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Name       string          `xml:"name,attr"`
	ClassName  string          `xml:"classname,attr"`
	Time       string          `xml:"time,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Failure    *junitResult    `xml:"failure"`
	Error      *junitResult    `xml:"error"`
	Skipped    *junitResult    `xml:"skipped"`
}

type junitResult struct {
	Type    string `xml:"type,attr,omitempty"`
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// JUnit is a file that gets a report in the XML that CI systems read. A nil JUnit writes nothing.
type JUnit struct{ path string }

// OpenJUnit makes sure that the report can be written to path before anything runs: its folder is there and takes files, and what is there
// already is a regular file (or a link to one), which the report will replace. It changes nothing yet.
func OpenJUnit(path string) (*JUnit, error) {
	at, err := place(path)
	if err != nil {
		return nil, err
	}
	return &JUnit{at}, nil
}

// Write writes the report, whole or not at all.
func (j *JUnit) Write(s *Summary) error {
	if j == nil {
		return nil
	}
	text, err := s.JUnit()
	if err != nil {
		return err
	}
	return replace(j.path, text)
}

// JUnit returns the summary as JUnit XML: a suite for each task, a case for each run. A run that failed, timed out or scored below 1 is a
// failure; one that ended for a reason that is not the agent's (infrastructure, configuration, judge) is an error; a cancelled one, started or
// not, is skipped. What XML cannot hold is replaced by U+FFFD.
func (s *Summary) JUnit() ([]byte, error) {
	all := &junitSuites{Name: "agent-env"}
	suites := map[string]*junitSuite{}
	for _, r := range s.Runs {
		suite := suites[r.Path]
		if suite == nil {
			suite = &junitSuite{Name: r.Path, Properties: []junitProperty{{"task_id", r.TaskID}, {"version", strconv.FormatInt(r.Version, 10)}, {"run_group_id", s.RunGroup}}}
			for _, e := range s.Evals {
				for _, t := range e.Tasks {
					if t == r.Path {
						suite.Properties = append(suite.Properties, junitProperty{"eval", e.Path})
					}
				}
			}
			suites[r.Path] = suite
			all.Suites = append(all.Suites, suite)
		}
		c := r.junit()
		suite.Cases = append(suite.Cases, c)
		suite.count(c, r.Seconds)
		all.count(c, r.Seconds)
	}
	all.Time = fixed(all.seconds)
	for _, suite := range all.Suites {
		suite.Time = fixed(suite.seconds)
	}
	text, err := xml.MarshalIndent(all, "", "  ")
	if err != nil {
		return nil, err
	}
	return append([]byte(xml.Header), append(text, '\n')...), nil
}

func (c *junitCounts) count(one junitCase, seconds float64) {
	c.Tests++
	c.seconds += seconds
	switch {
	case one.Failure != nil:
		c.Failures++
	case one.Error != nil:
		c.Errors++
	case one.Skipped != nil:
		c.Skipped++
	}
}

func (r *Run) junit() junitCase {
	c := junitCase{Name: r.Label(), ClassName: r.Path, Time: fixed(r.Seconds)}
	property := func(name, value string) {
		if value != "" {
			c.Properties = append(c.Properties, junitProperty{name, value})
		}
	}
	property("instance_id", r.Instance)
	if r.Number > 0 {
		property("number", strconv.Itoa(r.Number))
	}
	property("outcome", string(r.Outcome))
	property("class", string(r.Class))
	property("seconds", fixed(r.Seconds))
	for _, score := range r.Scores {
		property("score."+score.Step, shortFloat(score.Value))
	}
	property("repeat", r.Repeat)
	switch r.Outcome {
	case Cancelled:
		c.Skipped = &junitResult{Message: r.detail()}
	case ScoredBelow:
		c.Failure = &junitResult{Type: string(ScoredBelow), Message: r.detail()}
	case Failed:
		res := &junitResult{Type: string(r.Class), Message: r.detail()}
		var texts []string
		for _, f := range r.Failures {
			texts = append(texts, f.Class+": "+f.Error)
		}
		res.Text = strings.Join(texts, "\n")
		if r.Class == task.Failed || r.Class == task.TimedOut {
			c.Failure = res
		} else {
			c.Error = res
		}
	}
	return c
}

func fixed(seconds float64) string { return strconv.FormatFloat(seconds, 'f', 3, 64) }
