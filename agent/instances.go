package agent

import (
	"context"
	"crypto/rand"
	"math/big"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

const collInstances = "a2a_agent_instances"

// Instance is an agent that was deployed.
type Instance struct {
	InstanceID, AgentID    string
	AgentVersion           int64
	URL                    string // the base URL it answers on
	SandboxID, SandboxType string // "" = none
	Card                   *doc.Object
	NetworkPolicy          *doc.Object // nil = none
	CreatedAt, ExpiresAt   time.Time   // stored to the minute
}

// Instances stores deployed agents (collection a2a_agent_instances). It is safe for concurrent use, also by several processes.
type Instances struct {
	docs    document.Store
	indexes indexes
}

// NewInstances returns the instances of a document store.
func NewInstances(docs document.Store) *Instances {
	return &Instances{docs: docs, indexes: indexes{coll: collInstances, list: []document.Index{{Fields: []string{"instance_id"}, Unique: true}}}}
}

// NewInstanceID returns a fresh id for an instance of an agent: <agent id>-<8 of a-z0-9>.
func NewInstanceID(agentID string) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	var b [8]byte
	for i := range b {
		n, _ := rand.Int(rand.Reader, big.NewInt(int64(len(letters)))) // crypto/rand ends the program rather than fail
		b[i] = letters[n.Int64()]
	}
	return agentID + "-" + string(b[:])
}

// Put stores an instance. One without an id is Invalid; an id that is taken is an Exists error.
func (s *Instances) Put(ctx context.Context, in Instance) error {
	if in.InstanceID == "" {
		return fault.New(fault.Invalid, "an instance of an agent needs an id")
	}
	ctx, err := s.indexes.ensure(ctx, s.docs, in.InstanceID)
	if err != nil {
		return err
	}
	return fault.At(s.docs.Insert(ctx, collInstances, in.Document()), "instance %s", in.InstanceID)
}

// Document returns the stored form.
func (in Instance) Document() *doc.Object {
	o := doc.Of("instance_id", in.InstanceID, "agent_id", in.AgentID, "agent_version", doc.Int(in.AgentVersion), "a2a_url", in.URL,
		"sandbox_id", orNull(in.SandboxID), "sandbox_type", orNull(in.SandboxType), "agent_card", in.Card.Clone(), "network_policy", nil,
		"created_at_utc", in.CreatedAt.UTC().Format(minuteForm), "expires_at_utc", in.ExpiresAt.UTC().Format(minuteForm))
	if in.NetworkPolicy != nil {
		o.Set("network_policy", in.NetworkPolicy)
	}
	return o
}

// Get returns an instance; a NotFound error when there is none. A time that cannot be read is zero.
func (s *Instances) Get(ctx context.Context, id string) (Instance, error) {
	o, err := s.docs.FindOne(ctx, collInstances, document.By("instance_id", id))
	if err == nil && o == nil {
		err = fault.New(fault.NotFound, "no instance %s of an agent is on record", id)
	}
	if err != nil {
		return Instance{}, err
	}
	in := Instance{InstanceID: id, AgentID: o.Str("agent_id"), URL: o.Str("a2a_url"), SandboxID: o.Str("sandbox_id"), SandboxType: o.Str("sandbox_type"),
		Card: o.Obj("agent_card"), NetworkPolicy: o.Obj("network_policy")}
	in.AgentVersion, _ = o.Int("agent_version")
	in.CreatedAt, _ = time.Parse(minuteForm, o.Str("created_at_utc"))
	in.ExpiresAt, _ = time.Parse(minuteForm, o.Str("expires_at_utc"))
	return in, nil
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
