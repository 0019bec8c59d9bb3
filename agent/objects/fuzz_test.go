package objects_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"agentenv/agent/objects"
	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/card"
)

// FuzzIncrements reads names of objects as increments: what it takes is in order, without doubles.
func FuzzIncrements(f *testing.F) {
	f.Add("000001", "000002.tgz")
	f.Add("000001.tgz", "000001.tar")
	f.Fuzz(func(t *testing.T, a, b string) {
		got, err := objects.Increments([]string{a, b})
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Error(err)
			}
			return
		}
		if len(got) != 2 || got[0].Sequence >= got[1].Sequence {
			t.Error(got)
		}
	})
}

// FuzzTrajectoryAnswers stores what an agent answers: what is stored is a JSON list of as many elements, and only an object with one is taken.
func FuzzTrajectoryAnswers(f *testing.F) {
	f.Add([]byte(`{"trajectory":[{"a":"\ud800"},[],null]}`))
	f.Add([]byte(`{"x":{},"trajectory":[1, 2],"y":0}`))
	f.Add([]byte(`{"trajectory":[1}`))
	r := newRig(f, nowhere, a2a.Settings{})
	var answer []byte
	e := scripted(f, r.e, func(w http.ResponseWriter, _ string) { _, _ = w.Write(answer) })
	n := 0
	f.Fuzz(func(t *testing.T, text []byte) {
		r.t, answer = t, text
		n++
		url, err := r.mover.FetchTrajectory(t.Context(), e, objects.Of{TaskID: "x"}, r.url(fmt.Sprint("t/", n)))
		if err != nil {
			if !fault.Is(err, fault.Invalid) {
				t.Error(err)
			}
			return
		}
		var whole map[string]json.RawMessage
		if err := json.Unmarshal(text, &whole); err != nil {
			t.Fatalf("took %q: %v", text, err)
		}
		var kept []json.RawMessage
		if err := json.Unmarshal([]byte(r.get(url)), &kept); err != nil {
			t.Fatalf("kept %q of %q: %v", r.get(url), text, err)
		}
	})
}

// TestNoCard asks an agent whose card is not known for nothing.
func TestNoCard(t *testing.T) {
	t.Parallel()
	r := newRig(t, byGrant, a2a.Settings{})
	for _, c := range []*card.Card{nil, card.Of(nil)} {
		r.e.Card = c
		_, err := r.mover.Drain(t.Context(), r.e, objects.Changelog{StagingURL: r.e.URL + "/ext/staging/x", ObjectURL: r.url("x")})
		fails(t, err, fault.Invalid, "was not staged on")
		_, err = r.mover.EnableChangelog(t.Context(), r.e, objects.Recording{ObjectURL: r.url("x")})
		if !fault.Is(err, fault.Unsupported) {
			t.Error(err)
		}
	}
}
