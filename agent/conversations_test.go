package agent_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"agentenv/agent"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

const talks = "agent_env_a2a_conversations"

func TestConversationDocument(t *testing.T) {
	t.Parallel()
	docs := openDocs(t, docsPath(t))
	at := noon()
	c := agent.NewConversations(docs, func() time.Time { at = at.Add(time.Second); return at })
	open := agent.Conversation{ID: "c", InstanceID: "t-1", Source: "user", Target: "solver"}
	steps := []struct {
		do   func() error
		want string
	}{
		{func() error { return c.Open(t.Context(), open) },
			`"messages": [], "a2a_tasks": [], "pending": false, "status": "active", "rev": 0`},
		{func() error { return c.AddMessage(t.Context(), "c", "user", []*doc.Object{text("hi")}, "M") },
			`"messages": [{"role": "user", "parts": [{"kind": "text", "text": "hi"}], "ts": "AT"}], "a2a_tasks": [{"a2a_task_id": "M", "state": "working", "requested_at": "AT", "input_message_idx": 0}], ` +
				`"pending": true, "status": "active", "rev": 1`},
		{func() error { return c.Complete(t.Context(), "c", []*doc.Object{text("ho")}) },
			`"messages": [{"role": "user", "parts": [{"kind": "text", "text": "hi"}], "ts": "AT"}, {"role": "agent", "parts": [{"kind": "text", "text": "ho"}], "ts": "AT"}], "a2a_tasks": [{"a2a_task_id": "M", ` +
				`"state": "completed", "requested_at": "AT", "input_message_idx": 0, "response_message_idx": 1, "ended_at": "AT"}], "pending": false, "status": "active", "rev": 2`},
		{func() error { return c.Close(t.Context(), "c") }, `"pending": false, "status": "closed", "rev": 3`},
		{func() error { return c.Close(t.Context(), "c") }, `"pending": false, "status": "closed", "rev": 3`},
		{func() error { return c.Open(t.Context(), open) }, `"pending": false, "status": "active", "rev": 4`},
		{func() error { return c.Open(t.Context(), open) }, `"pending": false, "status": "active", "rev": 4`},
		{func() error { return c.AddMessage(t.Context(), "c", "user", nil, "") }, `"ended_at": "AT"}], "pending": false, "status": "active", "rev": 5`},
		{func() error { return c.AddMessage(t.Context(), "c", "user", nil, "N") }, `"state": "working", "requested_at": "AT", "input_message_idx": 3}], "pending": true, "status": "active", "rev": 6`},
		{func() error { return c.CancelTask(t.Context(), "c", "M") }, `"pending": true, "status": "active", "rev": 6`},
		{func() error { return c.CancelTask(t.Context(), "c", "N") }, `"state": "canceled", "requested_at": "AT", "input_message_idx": 3, "ended_at": "AT"}], "pending": false, "status": "active", "rev": 7`},
		{func() error { return c.Complete(t.Context(), "c", nil) }, `{"role": "agent", "parts": [], "ts": "AT"}], "a2a_tasks"`},
		{func() error { return c.AddMessage(t.Context(), "c", "user", nil, "O") }, `"pending": true, "status": "active", "rev": 9`},
		{func() error { return c.Close(t.Context(), "c") }, `"state": "canceled", "requested_at": "AT", "input_message_idx": 5, "ended_at": "AT"}], "pending": false, "status": "closed", "rev": 10`},
	}
	for i, s := range steps {
		if err := s.do(); err != nil {
			t.Fatal(i, err)
		}
		got := times.ReplaceAllString(stored(t, docs, talks, document.By("conversation_id", "c")), "AT")
		if !contains(got, s.want) {
			t.Errorf("step %d: %s\ndoes not hold %s", i, got, s.want)
		}
		if !contains(got, `{"conversation_id": "c", "task_instance_id": "t-1", "source_agent_name": "user", "target_agent_name": "solver", "messages": [`) ||
			!contains(got, `, "created_at_utc": "AT", "updated_at_utc": "AT"}`) {
			t.Error(got)
		}
	}
	got, err := c.Get(t.Context(), "c")
	if err != nil || got.Status != agent.ConversationClosed || got.Revision != 10 || len(got.Messages) != 6 || len(got.Tasks) != 3 || *got.Tasks[0].Response != 1 ||
		got.Tasks[1].Response != nil || got.Tasks[1].State != agent.Canceled || got.Messages[1].Parts[0].Str("text") != "ho" || got.CreatedAt >= got.UpdatedAt {
		t.Errorf("%+v, %v", got, err)
	}
	if status, err := c.Status(t.Context(), "c"); err != nil || status != agent.ConversationClosed {
		t.Error(status, err)
	}
}

func TestNoConversation(t *testing.T) {
	t.Parallel()
	c := agent.NewConversations(openDocs(t, docsPath(t)), nil)
	if err := c.Open(t.Context(), agent.Conversation{}); !fault.Is(err, fault.Invalid) {
		t.Error(err)
	}
	_, get := c.Get(t.Context(), "x")
	_, status := c.Status(t.Context(), "x")
	for i, err := range []error{get, status, c.AddMessage(t.Context(), "x", "user", nil, "M"), c.Complete(t.Context(), "x", nil), c.CancelTask(t.Context(), "x", "M"), c.Close(t.Context(), "x")} {
		if !fault.Is(err, fault.NotFound) {
			t.Error(i, err)
		}
	}
}

func TestPending(t *testing.T) {
	t.Parallel()
	at := noon()
	c := agent.NewConversations(openDocs(t, docsPath(t)), func() time.Time { at = at.Add(time.Second); return at })
	for i := range 4 {
		id := fmt.Sprint("c", i)
		if err := c.Open(t.Context(), agent.Conversation{ID: id}); err != nil {
			t.Fatal(err)
		}
		if err := c.AddMessage(t.Context(), id, "user", nil, "M"); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Close(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	if err := c.Complete(t.Context(), "c2", nil); err != nil {
		t.Fatal(err)
	}
	list, err := c.Pending(t.Context(), 0)
	if err != nil || len(list) != 2 || list[0].ID != "c3" || list[1].ID != "c0" {
		t.Error(list, err)
	}
	if list, err := c.Pending(t.Context(), 1); err != nil || len(list) != 1 {
		t.Error(list, err)
	}
}

// TestWritersAtOnce has eight writers, over two connections to one file, change one conversation at once: no message is lost, and every
// index points at its message.
func TestWritersAtOnce(t *testing.T) {
	t.Parallel()
	path := docsPath(t)
	stores := []*agent.Conversations{agent.NewConversations(openDocs(t, path), nil), agent.NewConversations(openDocs(t, path), nil)}
	const writers, each = 8, 6
	var all sync.WaitGroup
	for w := range writers {
		c := stores[w%2]
		all.Go(func() {
			if err := c.Open(t.Context(), agent.Conversation{ID: "c", InstanceID: "t"}); err != nil {
				t.Error(err)
				return
			}
			for i := range each {
				id := fmt.Sprintf("%d-%d", w, i)
				if err := c.AddMessage(t.Context(), "c", "user", []*doc.Object{text(id)}, id); err != nil {
					t.Error(err)
				}
				if i%3 == 2 {
					if err := c.CancelTask(t.Context(), "c", id); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	c, err := stores[0].Get(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Messages) != writers*each || len(c.Tasks) != writers*each || c.Revision != writers*(each+each/3) {
		t.Errorf("%d messages, %d tasks, rev %d", len(c.Messages), len(c.Tasks), c.Revision)
	}
	for _, task := range c.Tasks {
		if got := c.Messages[task.Input].Parts[0].Str("text"); got != task.ID {
			t.Errorf("task %s points at message %s", task.ID, got)
		}
	}
}

// TestAnswerAgainstClose races the answer of a turn against the close of its conversation: the turn ends once, and an answer that lost is
// not appended.
func TestAnswerAgainstClose(t *testing.T) {
	t.Parallel()
	c := agent.NewConversations(openDocs(t, docsPath(t)), nil)
	for i := range 20 {
		id := fmt.Sprint("c", i)
		if err := c.Open(t.Context(), agent.Conversation{ID: id}); err != nil {
			t.Fatal(err)
		}
		if err := c.AddMessage(t.Context(), id, "user", nil, "M"); err != nil {
			t.Fatal(err)
		}
		var both sync.WaitGroup
		for _, end := range []func() error{
			func() error { return c.Complete(t.Context(), id, []*doc.Object{text("answer")}) },
			func() error { return c.Close(t.Context(), id) },
		} {
			both.Go(func() {
				if err := end(); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		got, err := c.Get(t.Context(), id)
		if err != nil || got.Status != agent.ConversationClosed || got.Pending {
			t.Fatalf("%+v, %v", got, err)
		}
		switch turn := got.Tasks[0]; turn.State {
		case agent.Completed:
			if len(got.Messages) != 2 || turn.Response == nil || *turn.Response != 1 {
				t.Errorf("%+v", got)
			}
		case agent.Canceled:
			if turn.Response != nil {
				t.Errorf("%+v", got)
			}
		default:
			t.Errorf("%+v", got)
		}
	}
}

// TestOldConversation changes a document that was written before there were revisions.
func TestOldConversation(t *testing.T) {
	t.Parallel()
	docs := openDocs(t, docsPath(t))
	if err := docs.Insert(t.Context(), talks, doc.Of("conversation_id", "c", "messages", []any{}, "pending", false, "status", "active", "more", doc.Int(1))); err != nil {
		t.Fatal(err)
	}
	c := agent.NewConversations(docs, nil)
	if err := c.AddMessage(t.Context(), "c", "user", nil, "M"); err != nil {
		t.Fatal(err)
	}
	if got, err := c.Get(t.Context(), "c"); err != nil || got.Revision != 1 || len(got.Messages) != 1 || len(got.Tasks) != 1 {
		t.Errorf("%+v, %v", got, err)
	}
	if got := stored(t, docs, talks, document.By("conversation_id", "c")); !contains(got, `"more": 1`) {
		t.Error(got)
	}
}
