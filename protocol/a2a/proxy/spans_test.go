package proxy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv/protocol/a2a/proxy"
)

// ticking is a clock that goes on by a second each time it is read.
func ticking() func() time.Time {
	var mu sync.Mutex
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("", 3600))
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(time.Second)
		return now
	}
}

// span shows an event of a trajectory: its name and status, then its attributes. The prompt and the completion must be JSON in a string, which
// is shown with its keys in order.
func (d driver) span(e object) (shown string, start time.Time) {
	d.t.Helper()
	if keys := strings.Join(slices.Sorted(maps.Keys(e)), " "); keys != "attributes end_time name start_time status" {
		d.t.Errorf("an event with %s", keys)
	}
	const form = "2006-01-02T15:04:05.000000Z"
	start, err := time.Parse(form, e["start_time"].(string))
	end, bad := time.Parse(form, e["end_time"].(string))
	if err != nil || bad != nil || end.Before(start) {
		d.t.Errorf("from %s to %s", e["start_time"], e["end_time"])
	}
	shown = fmt.Sprint(e["name"], " ", e["status"].(object)["status_code"])
	attributes := e["attributes"].(object)
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		value := attributes[key]
		if key == "gen_ai.prompt" || key == "gen_ai.completion" {
			var inner any
			if err := json.Unmarshal([]byte(value.(string)), &inner); err != nil {
				d.t.Errorf("%s: %v", key, err)
			}
			again, err := json.Marshal(inner)
			if err != nil {
				d.t.Fatal(err)
			}
			value = string(again)
		}
		shown += fmt.Sprint("\n  ", strings.TrimPrefix(key, "gen_ai."), " ", value)
	}
	return shown, start
}

func TestSpans(t *testing.T) {
	t.Parallel()
	d := serve(t, proxy.Options{Now: ticking()})
	d.call("claim", object{}, 200)
	const turn = "\n  operation.name chain\n  prompt [{\"kind\":\"text\",\"text\":\"go\"}]"
	add := func(a, b int) object {
		return object{"kind": "tool", "server": "sums", "name": "add", "arguments": object{"A": a, "B": b}}
	}
	for name, c := range map[string]struct {
		actions []object
		reply   object
		want    []string
	}{
		"nothing is done": {nil, object{"parts": []any{words("a"), words("b")}},
			[]string{"turn OK\n  completion [{\"kind\":\"text\",\"text\":\"a\"},{\"kind\":\"text\",\"text\":\"b\"}]" + turn}},
		"commands": {
			[]object{{"kind": "bash", "command": "echo 1"}, {"kind": "bash", "command": "exit 3"}, {"kind": "bash", "command": "sleep 60", "timeout_seconds": 0.1}}, object{"error": "no model"},
			[]string{
				"execute_tool bash OK\n  completion {\"exit_code\":0,\"kind\":\"bash\",\"stderr\":\"\",\"stdout\":\"1\\n\",\"timed_out\":false}\n" +
					"  operation.name execute_tool\n  prompt {\"input\":{\"command\":\"echo 1\"}}\n  tool.name bash",
				"execute_tool bash ERROR\n  completion {\"exit_code\":3,\"kind\":\"bash\",\"stderr\":\"\",\"stdout\":\"\",\"timed_out\":false}\n" +
					"  operation.name execute_tool\n  prompt {\"input\":{\"command\":\"exit 3\"}}\n  tool.name bash",
				"execute_tool bash ERROR\n  completion {\"kind\":\"bash\",\"stderr\":\"\",\"stdout\":\"\",\"timed_out\":true}\n" +
					"  operation.name execute_tool\n  prompt {\"input\":{\"command\":\"sleep 60\"}}\n  tool.name bash",
				"turn ERROR\n  completion {\"error\":\"no model\"}" + turn,
			},
		},
		"tools": {
			[]object{add(1, 2), add(-1, 2)}, object{"parts": []any{words("3")}},
			[]string{
				"execute_tool add OK\n  completion {\"content\":[{\"text\":\"3\",\"type\":\"text\"}],\"is_error\":false,\"kind\":\"tool\"}\n" +
					"  operation.name execute_tool\n  prompt {\"input\":{\"A\":1,\"B\":2}}\n  tool.name add",
				"execute_tool add ERROR\n  completion {\"content\":[{\"text\":\"no debts\",\"type\":\"text\"}],\"is_error\":true,\"kind\":\"tool\"}\n" +
					"  operation.name execute_tool\n  prompt {\"input\":{\"A\":-1,\"B\":2}}\n  tool.name add",
				"turn OK\n  completion [{\"kind\":\"text\",\"text\":\"3\"}]" + turn,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := driver{t, d.url}
			task := d.open(words("go"))
			for i, a := range c.actions {
				d.call("act", object{"task_id": task, "action_id": fmt.Sprint(name, i), "action": a}, 200)
			}
			c.reply["task_id"] = task
			d.call("reply", c.reply, 200)
			d.await(task)
			var began []time.Time
			for i, e := range d.ext("/ext/trajectory", object{"task_id": task}, 200)["trajectory"].([]any) {
				got, start := d.span(e.(object))
				if began = append(began, start); i < len(c.want) && got != c.want[i] {
					t.Errorf("%s\nnot %s", got, c.want[i])
				}
			}
			if len(began) != len(c.want) {
				t.Fatalf("%d events, not %d", len(began), len(c.want))
			}
			last := began[len(began)-1]
			if last.Hour() != 2 { // the clock is an hour ahead of UTC
				t.Errorf("the turn began at %v", last)
			}
			for _, start := range began[:len(began)-1] {
				if !last.Before(start) {
					t.Errorf("an action at %v, before the turn of %v", start, last)
				}
			}
		})
	}
}
