package triggers

import (
	"context"
	"time"

	"github.com/dlclark/regexp2"

	"agentenv/fault"
)

// sighting is one turn as conditions see it; their patterns share one time.
type sighting struct {
	turn  Turn
	ctx   context.Context
	until time.Time
}

type condition interface {
	met(s *sighting) (bool, error)
}

type stepCondition struct {
	turn  int64
	later bool // on later turns too
}

func (c stepCondition) met(s *sighting) (bool, error) {
	return s.turn.Number == c.turn || c.later && s.turn.Number > c.turn, nil
}

type envCondition struct{ env, id, status string }

func (c envCondition) met(s *sighting) (bool, error) {
	status, known := s.turn.Envs[c.env][c.id]
	return known && status == c.status, nil
}

type several struct {
	all bool
	of  []condition
}

func (c several) met(s *sighting) (bool, error) {
	for _, one := range c.of {
		if met, err := one.met(s); err != nil || met != c.all {
			return met, err
		}
	}
	return c.all, nil
}

type exists bool

func (c exists) met(s *sighting) (bool, error) { return (s.turn.Message != "") == bool(c), nil }

// equals compares with the message, which no value but a string can equal.
type equals struct {
	text   string
	isText bool
}

func (c equals) met(s *sighting) (bool, error) { return c.isText && s.turn.Message == c.text, nil }

type matches struct{ re *regexp2.Regexp }

func (c matches) met(s *sighting) (bool, error) {
	left := time.Until(s.until)
	if left <= 0 || s.ctx.Err() != nil {
		return false, tooSlow()
	}
	c.re.MatchTimeout = left // one decision at a time
	found, err := c.re.MatchString(s.turn.Message)
	if err != nil {
		return false, tooSlow()
	}
	return found, nil
}

func tooSlow() error {
	return fault.New(fault.Timeout, "the patterns of all triggers together took longer than %s on this message; nothing was decided", decideMatching)
}
