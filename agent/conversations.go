package agent

import (
	"context"
	"strconv"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

const collConversations = "agent_env_a2a_conversations"

// The states of a conversation.
const (
	ConversationActive = "active"
	ConversationClosed = "closed"
)

// DefaultPending is how many waiting conversations are listed when nobody says.
const DefaultPending = 50

// Conversation is what two agents of a run have said to each other. Times are RFC 3339 in UTC.
type Conversation struct {
	ID             string
	InstanceID     string // the run
	StepID         string // ours: the step that holds it, "" = not known
	Source, Target string // the names of who asks and who answers
	Messages       []Message
	Tasks          []ConversationTask
	Pending        bool // the target owes an answer
	Status         string
	Revision       int64 // how often it was changed
	CreatedAt      string
	UpdatedAt      string
}

// Message is one message of a conversation.
type Message struct {
	Role  string // user or agent
	Parts []*doc.Object
	At    string
}

// ConversationTask is one turn of a conversation: a message and, when it has ended, its answer.
type ConversationTask struct {
	ID          string // that of the message
	AgentTask   string // ours: the agent's own id of its task, "" = not known
	State       string // working, completed or canceled
	RequestedAt string
	Input       int64  // index of its message
	Response    *int64 // index of the answer, nil = none
	EndedAt     string // "" = it goes on
}

// Conversations stores conversations (collection agent_env_a2a_conversations). Every change is a compare and swap on the conversation's revision, so that
// indexes of messages stay true when several change it at once. It is safe for concurrent use, also by several processes.
type Conversations struct {
	docs    document.Store
	indexes indexes
	now     func() time.Time
}

// NewConversations returns the conversations of a document store; now is the clock (nil: time.Now).
func NewConversations(docs document.Store, now func() time.Time) *Conversations {
	if now == nil {
		now = time.Now
	}
	return &Conversations{docs: docs, now: now, indexes: indexes{coll: collConversations, list: []document.Index{
		{Fields: []string{"conversation_id"}, Unique: true}, {Fields: []string{"task_instance_id"}}, {Fields: []string{"a2a_tasks.a2a_task_id"}},
		{Fields: []string{"pending", "status", "updated_at_utc"}},
	}}}
}

func conversationFilter(id string) document.Filter { return document.By("conversation_id", id) }

// Open records a conversation between Source and Target in a run, held by a step; the other fields of c are not used. One that is on record under the id
// already is gone on with: a closed one becomes active again. Without an id it is an Invalid error.
func (s *Conversations) Open(ctx context.Context, c Conversation) error {
	if c.ID == "" {
		return fault.New(fault.Invalid, "a conversation needs an id")
	}
	ctx, err := s.indexes.ensure(ctx, s.docs, c.InstanceID)
	if err != nil {
		return err
	}
	at := preciseTime(s.now())
	o := doc.Of("conversation_id", c.ID, "task_instance_id", orNull(c.InstanceID), "source_agent_name", c.Source,
		"target_agent_name", c.Target, "messages", []any{}, "a2a_tasks", []any{}, "pending", false, "status", ConversationActive, "rev", doc.Int(0),
		"created_at_utc", at, "updated_at_utc", at)
	if c.StepID != "" {
		o.Set("step_id", c.StepID)
	}
	err = s.docs.Insert(ctx, collConversations, o)
	if !fault.Is(err, fault.Exists) {
		return err
	}
	_, err = s.change(ctx, c.ID, func(o *doc.Object, at string) *document.Update {
		if o.Str("status") == ConversationActive {
			return nil
		}
		return &document.Update{Set: doc.Of("status", ConversationActive)}
	})
	return err
}

// AddMessage appends a message. With a taskID it opens a turn that works on it, and the conversation waits for the answer; a taskID of "" only keeps
// the message. The error is NotFound when there is no such conversation. A second call appends a second message.
func (s *Conversations) AddMessage(ctx context.Context, id, role string, parts []*doc.Object, taskID string) error {
	return s.must(ctx, id, func(o *doc.Object, at string) *document.Update {
		u := &document.Update{Set: doc.Of(), Push: doc.Of("messages", []any{message(role, parts, at)})}
		if taskID != "" {
			u.Push.Set("a2a_tasks", []any{doc.Of("a2a_task_id", taskID, "state", Working, "requested_at", at, "input_message_idx", doc.Int(len(o.Arr("messages"))))})
			u.Set.Set("pending", true)
		}
		return u
	})
}

// Complete appends the answer of the target and completes the oldest turn that works. When no turn works the answer is kept without one; when
// the turn was ended by somebody else in the same moment nothing is appended. The error is NotFound when there is no such conversation.
func (s *Conversations) Complete(ctx context.Context, id string, parts []*doc.Object) error {
	first, chosen := true, -1
	return s.must(ctx, id, func(o *doc.Object, at string) *document.Update {
		u := &document.Update{Set: doc.Of("pending", false), Push: doc.Of("messages", []any{message("agent", parts, at)})}
		working := workingTasks(o)
		if first {
			first = false
			if len(working) > 0 {
				chosen = working[0]
			}
		}
		if chosen < 0 {
			return u
		}
		if len(working) == 0 || working[0] != chosen {
			return nil
		}
		u.Set.Set(taskPath(chosen, "state"), Completed)
		u.Set.Set(taskPath(chosen, "response_message_idx"), doc.Int(len(o.Arr("messages"))))
		u.Set.Set(taskPath(chosen, "ended_at"), at)
		return u
	})
}

// NoteAgentTask keeps the agent's own id of the task that works on a turn, so that another process can stop it. A turn that is not there is left
// as it is. The error is NotFound when there is no such conversation.
func (s *Conversations) NoteAgentTask(ctx context.Context, id, taskID, agentTask string) error {
	return s.must(ctx, id, func(o *doc.Object, _ string) *document.Update {
		for i, v := range o.Arr("a2a_tasks") {
			if t, _ := v.(*doc.Object); t.Str("a2a_task_id") == taskID {
				return &document.Update{Set: doc.Of(taskPath(i, "agent_task_id"), agentTask)}
			}
		}
		return nil
	})
}

// LeftOpen returns the conversations of a step of a run that are still active: those of an attempt whose process died.
func (s *Conversations) LeftOpen(ctx context.Context, instance, step string) ([]*Conversation, error) {
	return s.query(ctx, document.Query{Filter: document.By("task_instance_id", instance, "step_id", step, "status", ConversationActive)})
}

// CancelTask ends a turn that works, without an answer; one that has ended, or is not there, is left as it is. The error is NotFound when there is
// no such conversation.
func (s *Conversations) CancelTask(ctx context.Context, id, taskID string) error {
	return s.must(ctx, id, func(o *doc.Object, at string) *document.Update {
		working := workingTasks(o)
		for _, i := range working {
			if t, _ := o.Arr("a2a_tasks")[i].(*doc.Object); t.Str("a2a_task_id") == taskID {
				return &document.Update{Set: doc.Of("pending", len(working) > 1, taskPath(i, "state"), Canceled, taskPath(i, "ended_at"), at)}
			}
		}
		return nil
	})
}

// Close ends a conversation and cancels the turns that still work. A second call does nothing. The error is NotFound when there is no such conversation.
func (s *Conversations) Close(ctx context.Context, id string) error {
	return s.must(ctx, id, func(o *doc.Object, at string) *document.Update {
		working := workingTasks(o)
		if o.Str("status") == ConversationClosed && len(working) == 0 {
			return nil
		}
		u := &document.Update{Set: doc.Of("pending", false, "status", ConversationClosed)}
		for _, i := range working {
			u.Set.Set(taskPath(i, "state"), Canceled)
			u.Set.Set(taskPath(i, "ended_at"), at)
		}
		return u
	})
}

// Get returns a conversation; a NotFound error when there is none.
func (s *Conversations) Get(ctx context.Context, id string) (*Conversation, error) {
	o, err := s.docs.FindOne(ctx, collConversations, conversationFilter(id))
	if err != nil {
		return nil, err
	}
	if o == nil {
		return nil, unknownConversation(id)
	}
	return conversationOf(o), nil
}

// Status returns whether a conversation is active or closed; a NotFound error when there is none.
func (s *Conversations) Status(ctx context.Context, id string) (string, error) {
	c, err := s.Get(ctx, id)
	if err != nil {
		return "", err
	}
	return c.Status, nil
}

// Pending returns the active conversations whose target owes an answer, the last changed first, at most limit (0 = DefaultPending).
func (s *Conversations) Pending(ctx context.Context, limit int) ([]*Conversation, error) {
	if limit <= 0 {
		limit = DefaultPending
	}
	return s.query(ctx, document.Query{Filter: document.By("pending", true, "status", ConversationActive), Limit: limit,
		Sort: []document.Sort{{Path: "updated_at_utc", Desc: true}}})
}

func (s *Conversations) query(ctx context.Context, q document.Query) ([]*Conversation, error) {
	list, err := s.docs.Query(ctx, collConversations, q)
	if err != nil {
		return nil, err
	}
	out := make([]*Conversation, len(list))
	for i, o := range list {
		out[i] = conversationOf(o)
	}
	return out, nil
}

// change applies what mutate asks for, at a time, under the conversation's revision; found is false when there is no such conversation.
func (s *Conversations) change(ctx context.Context, id string, mutate func(o *doc.Object, at string) *document.Update) (found bool, err error) {
	_, err = document.CompareAndSwap(ctx, s.docs, collConversations, conversationFilter(id), "rev", func(o *doc.Object) (*document.Update, error) {
		found = true
		at := preciseTime(s.now())
		u := mutate(o, at)
		if u != nil {
			u.Set.Set("updated_at_utc", at)
		}
		return u, nil
	})
	return found, fault.At(err, "conversation %s", id)
}

func (s *Conversations) must(ctx context.Context, id string, mutate func(o *doc.Object, at string) *document.Update) error {
	found, err := s.change(ctx, id, mutate)
	if err == nil && !found {
		err = unknownConversation(id)
	}
	return err
}

func unknownConversation(id string) error {
	return fault.New(fault.NotFound, "no conversation %s is on record", id)
}

func message(role string, parts []*doc.Object, at string) *doc.Object {
	return doc.Of("role", role, "parts", arrayOf(parts), "ts", at)
}

func taskPath(i int, field string) string { return "a2a_tasks." + strconv.Itoa(i) + "." + field }

// workingTasks returns the indexes of the turns that have not ended, the oldest first.
func workingTasks(o *doc.Object) []int {
	var out []int
	for i, v := range o.Arr("a2a_tasks") {
		if t, ok := v.(*doc.Object); ok && t.Str("state") == Working {
			out = append(out, i)
		}
	}
	return out
}

func conversationOf(o *doc.Object) *Conversation {
	c := &Conversation{ID: o.Str("conversation_id"), InstanceID: o.Str("task_instance_id"), Source: o.Str("source_agent_name"), Target: o.Str("target_agent_name"),
		StepID: o.Str("step_id"), Pending: o.Bool("pending"), Status: o.Str("status"), CreatedAt: o.Str("created_at_utc"), UpdatedAt: o.Str("updated_at_utc")}
	c.Revision, _ = o.Int("rev")
	for _, v := range o.Arr("messages") {
		if m, ok := v.(*doc.Object); ok {
			c.Messages = append(c.Messages, Message{Role: m.Str("role"), Parts: partsOf(m), At: m.Str("ts")})
		}
	}
	for _, v := range o.Arr("a2a_tasks") {
		t, ok := v.(*doc.Object)
		if !ok {
			continue
		}
		turn := ConversationTask{ID: t.Str("a2a_task_id"), AgentTask: t.Str("agent_task_id"), State: t.Str("state"), RequestedAt: t.Str("requested_at"), EndedAt: t.Str("ended_at")}
		turn.Input, _ = t.Int("input_message_idx")
		if n, ok := t.Int("response_message_idx"); ok {
			turn.Response = &n
		}
		c.Tasks = append(c.Tasks, turn)
	}
	return c
}
