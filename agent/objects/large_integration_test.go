//go:build integration

package objects_test

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"agentenv/agent/objects"
	"agentenv/fault"
	"agentenv/protocol/a2a"
)

// TestLargeTrajectories are read an event at a time, and refused where one event is too large to hold.
func TestLargeTrajectories(t *testing.T) {
	const events = 300
	r := newRig(t, nowhere, a2a.Settings{})
	event := `"` + strings.Repeat("x", 1<<20) + `"`
	e := scripted(t, r.e, func(w http.ResponseWriter, _ string) {
		fmt.Fprint(w, `{"trajectory":[`, event)
		for range events - 1 {
			fmt.Fprint(w, ",", event)
		}
		fmt.Fprint(w, `]}`)
	})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	url, err := r.mover.FetchTrajectory(t.Context(), e, objects.Of{TaskID: "x"}, r.url("t.json"))
	must(t, err)
	runtime.ReadMemStats(&after)
	info, err := r.store.Stat(t.Context(), url)
	if err != nil || info.Size != int64(events*(len(event)+1)+1) {
		t.Error(info, err)
	}
	if grown := (after.Sys - before.Sys) >> 20; grown > 100 {
		t.Errorf("%d MiB of memory for %d MiB", grown, info.Size>>20)
	}
	for _, fill := range []string{"x", " "} {
		e = scripted(t, r.e, func(w http.ResponseWriter, _ string) {
			fmt.Fprint(w, `{"trajectory":[`, strings.Repeat(`"`, len(strings.TrimSpace(fill))))
			for range 66 {
				fmt.Fprint(w, strings.Repeat(fill, 1<<20))
			}
			fmt.Fprint(w, `"]}`)
		})
		_, err = r.mover.FetchTrajectory(t.Context(), e, objects.Of{TaskID: "x"}, r.url("t2.json"))
		fails(t, err, fault.Invalid, "one element")
	}
}
