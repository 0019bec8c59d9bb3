package agent

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"agentenv/fault"
	"agentenv/protocol/card"
)

// The places of a card: the first is the older one, which every agent written for the urn:agentenv extensions has.
var cardPaths = []string{"/.well-known/agent.json", "/.well-known/agent-card.json"}

// DefaultReadiness is how long AwaitCard waits when no limit is given.
const DefaultReadiness = 300 * time.Second

const (
	cardTry      = 2 * time.Second
	cardPace     = 50 * time.Millisecond
	cardPaceMost = 500 * time.Millisecond
	cardWrong    = 10 * time.Second // so long an agent may serve what is no card; a proxy before it may do so while it starts
)

// Card reads the agent's card, as long as ctx goes on. The error is Unavailable when the agent cannot be reached or serves no card, and Invalid when what it
// serves is none.
func (c *Client) Card(ctx context.Context, e Endpoint) (*card.Card, error) {
	var last error
	for _, path := range cardPaths {
		a, err := c.do(ctx, e, http.MethodGet, strings.TrimRight(e.URL, "/")+path, "application/json", nil)
		if err != nil {
			kind := fault.Unavailable
			if ctx.Err() != nil {
				kind = fault.KindOf(ctx.Err())
			}
			return nil, fault.Wrap(kind, err, "read the card of %s", e.where())
		}
		if why := e.refusal(a); why != "" {
			if last == nil {
				last = fault.New(fault.Unavailable, "read the card of %s: GET %s %s", e.where(), path, why)
			}
			continue
		}
		found, err := card.Parse(a.body)
		return found, fault.At(err, "read the card of %s", e.where())
	}
	return nil, last
}

// AwaitCard reads the agent's card as soon as it serves one: it asks again and again, each time for 2 seconds at most, until limit has passed
// (0 = DefaultReadiness). The error is then of kind Timeout and says why the last try failed; when ctx ends it is of ctx's kind. An agent that serves what
// is no card for 10 seconds is not waited for any longer, which is an Invalid error.
func (c *Client) AwaitCard(ctx context.Context, e Endpoint, limit time.Duration) (*card.Card, error) {
	if limit <= 0 {
		limit = DefaultReadiness
	}
	began := c.now()
	waiting, stop := context.WithTimeout(ctx, limit)
	defer stop()
	var last error
	var wrong time.Time // since when it serves what is no card
	for pace := cardPace; ; pace = min(2*pace, cardPaceMost) {
		try, end := context.WithTimeout(waiting, cardTry)
		found, err := c.Card(try, e)
		end()
		if err == nil {
			return found, nil
		}
		if last == nil || waiting.Err() == nil {
			last = err
		}
		var size *sizeError
		switch noCard := fault.Is(err, fault.Invalid) || errors.As(err, &size); {
		case !noCard:
			wrong = time.Time{}
		case wrong.IsZero():
			wrong = c.now()
		case c.now().Sub(wrong) >= cardWrong:
			return nil, fault.Wrap(fault.Invalid, err, "%s serves no card", e.where())
		}
		if !sleep(waiting, pace) {
			break
		}
	}
	if err := ctx.Err(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return nil, fault.Wrap(fault.KindOf(err), err, "wait for the card of %s", e.where())
	}
	return nil, fault.Wrap(fault.Timeout, last, "%s served no card within %s", e.where(), c.now().Sub(began).Round(time.Second))
}
