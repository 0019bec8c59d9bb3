package agents

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"agentenv/agent"
	"agentenv/agent/deploy"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/store/doc"
	"agentenv/task"
)

const (
	peersLimit  = 30 * time.Second
	peersAtOnce = 16
)

func peerType(d Deps) *task.StepType {
	return &task.StepType{
		Name:    "peer_agents",
		Summary: "Let agents message each other",
		Family:  "agents",
		Doc: "Tells each source agent which peers it may message: their names, cards and where it reaches them. What a source was told before is replaced; an empty list takes " +
			"its peers away. Everything is checked before the first agent is told. A peer that asks for a token can be given only to a source whose card takes a `token` for its peers.",
		FailsTask:  true,
		Repeatable: true,
		Fields: []task.Field{
			{Name: "peerings", Kind: task.List, Items: task.ObjectKind, Required: true, Doc: "who may message whom: `{\"source_agent_name\": …, \"peer_agent_names\": […]}`, each source once"},
		},
		Parse: func(_ string, f *doc.Object) (task.Action, *doc.Object, error) {
			a := &peerAgents{deps: d}
			var err error
			a.peerings, err = peeringsOf(f.Arr("peerings"))
			return a, nil, err
		},
	}
}

type peerAgents struct {
	deps     Deps
	peerings []peering
}

// peering is an agent and those it may message.
type peering struct {
	source string
	peers  []string
}

func peeringsOf(list []any) ([]peering, error) {
	bad := func(format string, args ...any) ([]peering, error) {
		return nil, fault.New(fault.Invalid, format, args...)
	}
	if len(list) == 0 {
		return bad("peerings is empty: name at least one agent and its peers")
	}
	var out []peering
	for i, v := range list {
		o, _ := v.(*doc.Object)
		p := peering{source: o.Str("source_agent_name")}
		names, isList := o.Value("peer_agent_names").([]any)
		if p.source == "" || !isList {
			return bad("peerings[%d] must be {\"source_agent_name\": …, \"peer_agent_names\": […]}", i)
		}
		if slices.ContainsFunc(out, func(other peering) bool { return other.source == p.source }) {
			return bad("peerings[%d]: the agent %q is a source twice; put all its peers into one entry", i, p.source)
		}
		for _, v := range names {
			name, _ := v.(string)
			switch {
			case name == "":
				return bad("peerings[%d].peer_agent_names must hold names of agents, not %s", i, task.Brief(v))
			case name == p.source:
				return bad("peerings[%d]: the agent %q is its own peer", i, name)
			case slices.Contains(p.peers, name):
				return bad("peerings[%d]: the peer %q is there twice", i, name)
			}
			p.peers = append(p.peers, name)
		}
		out = append(out, p)
	}
	return out, nil
}

// Execute tells every source its peers, several at a time, and records who was told.
func (a *peerAgents) Execute(ctx context.Context, r *task.Run) error {
	return fault.At(a.execute(ctx, r), "peer_agents %q", r.StepID)
}

func (a *peerAgents) execute(ctx context.Context, r *task.Run) error {
	tables := make([]*table, len(a.peerings))
	for i, p := range a.peerings {
		var err error
		if tables[i], err = a.table(r, p); err != nil {
			return err
		}
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(peersAtOnce)
	for _, t := range tables {
		g.Go(func() error {
			_, err := a.deps.Client.Call(gctx, t.source, agent.Call{URI: card.PeerAgents, Op: "set", Body: doc.Of("peers", t.peers), Timeout: peersLimit, Secrets: t.secret})
			return fault.At(err, "tell the agent %q its peers", t.name)
		})
	}
	err := g.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return err
	}
	for _, p := range a.peerings {
		names := make([]any, len(p.peers))
		for i, n := range p.peers {
			names[i] = n
		}
		r.Append(doc.Of("source_agent_name", p.source, "peer_agent_names", names), "agent_peerings")
	}
	return nil
}

// table is what one source is told.
type table struct {
	name   string
	source agent.Endpoint
	peers  []any
	secret bool // a token is in it
}

// table checks one peering and puts together what its source is told.
func (a *peerAgents) table(r *task.Run, p peering) (*table, error) {
	record, source, err := a.deps.find(r, p.source)
	if err != nil {
		return nil, err
	}
	offered := source.Card.Extension(card.PeerAgents)
	if offered == nil {
		return nil, fault.New(fault.Unsupported, "the agent %q takes no peers: its card offers no peer-agents; use an agent that does", p.source).WithClass("RuntimeError")
	}
	t := &table{name: p.source, source: source, peers: []any{}}
	for _, name := range p.peers {
		told, peer, err := a.deps.find(r, name)
		if err != nil {
			return nil, fault.At(err, "a peer of %q", p.source)
		}
		url, err := a.deps.Deployer.Reach(record, peer)
		if err != nil {
			return nil, fault.At(err, "the agent %q cannot message %q", p.source, name)
		}
		shown := told.Obj("a2a_card")
		if shown == nil {
			shown = doc.Of()
		}
		entry := doc.Of("name", name, "url", url, "card", shown)
		if s := shown.Str("description"); s != "" {
			entry.Set("description", s)
		}
		if peer.Card.Bearer() {
			if err := mayHold(offered, p.source, name, peer.Token); err != nil {
				return nil, err
			}
			entry.Set("token", peer.Token)
			t.secret = true
		}
		t.peers = append(t.peers, entry)
	}
	return t, nil
}

// mayHold refuses a peer that asks for a token which its source could not send.
func mayHold(offered *card.Extension, source, peer, token string) error {
	switch {
	case token == "":
		return fault.New(fault.Unsupported, "the agent %q asks for a token that this program does not know, so %q cannot message it", peer, source).WithClass("RuntimeError")
	case !takesTokens(offered):
		return fault.New(fault.Unsupported, "the agent %q asks for a token, and the card of %q takes none for its peers, so it could not message it; use an image of %q without the label %s=bearer, "+
			"or a source that takes tokens", peer, source, peer, deploy.BearerLabel).WithClass("RuntimeError")
	}
	return nil
}

// takesTokens reports whether the request of peer-agents' set declares a token of each peer: the JSON schema in its contract does.
func takesTokens(e *card.Extension) bool {
	at := e.Params
	for _, key := range []string{"methods", "set", "request", "schema", "properties", "peers", "items", "properties", "token"} {
		var ok bool
		if at, ok = at[key].(map[string]any); !ok {
			return false
		}
	}
	return true
}
