//go:build integration

package interop_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"agentenv/test/kit"
)

// wholeTalk has an agent on the reference's library that offers everything work with another one, which plays its user and is its peer, and a
// third one go on from its snapshot.
const wholeTalk = `[
	{"id":"worker","type":"deploy_agent","a2a_agent_id":"whole","agent_name":"w","enable_agent_changelog":true,"skills":[{"name":"brief","description":"short answers","skill_md":"Be brief.\n"}]},
	{"id":"user","type":"deploy_agent","a2a_agent_id":"whole","agent_name":"user"},
	{"id":"in","type":"load_artifact","agent_name":"w","artifact_id":"in","destination_path":"/vault"},
	{"id":"learns","type":"add_skills","agent_name":"w","skills":[{"skill_artifact_id":"many"},{"name":"plain","description":"one text","body":"Plain words.\n"}]},
	{"id":"knows","type":"peer_agents","peerings":[{"source_agent_name":"w","peer_agent_names":["user"]}]},
	{"id":"wakes","type":"register_agent_triggers","agent_name":"user","triggers":[{"id":"wake","when":{"type":"step","turn":2},"actions":[{"type":"say","text":"fired words"}]}]},
	{"id":"talk","type":"prompt_agent","agent_name":"w","prompt_id":"talk","context_id":"c","user_agent_name":"user","max_conversation_turns":6,
		"parts":[{"kind":"text","text":"ask your peer"},{"kind":"file","file":{"bytes":"aGk=","name":"x.png","mimeType":"image/png"}},{"kind":"data","data":{"k":1}}],
		"live_trajectory":true,"snapshot_config":{"at_end":true,"per_turn":true,"max_snapshots":2}},
	{"id":"keep","type":"snapshot_agent_state","agent_name":"w","prompt_id":"talk","artifact_id":"kept"},
	{"id":"staged","type":"verify_sandbox","agent_name":"w","base_dir":"/vault","verifier_id":"staged","criteria":[{"type":"probe_file_contains","paths":["in.txt"],"expected":"staged"}]},
	{"id":"out","type":"collect_artifacts","agent_name":"w","base_path":"/work"},
	{"id":"loads","type":"deploy_agent","a2a_agent_id":"whole","agent_name":"l","agent_snapshot_files_artifact_id":"kept","agent_snapshot_target_context_id":"again"},
	{"id":"on","type":"prompt_agent","agent_name":"l","prompt_id":"on","context_id":"again","prompt":"on","output_format":{"type":"object","properties":{"heard":{"type":"array"}},"required":["heard"]}},
	{"id":"check","type":"verify_sandbox","agent_name":"l","base_dir":"/work","verifier_id":"check","criteria":[
		{"type":"probe_file_contains","paths":["notes.txt"],"expected":"ask your peer\ngo on 1\nfired words\ngo on 2\non\n"}]}
]`

// manySkill is the text of a skill of several files, and sentFirst what the first turn is asked.
const (
	manySkill = "---\nname: many\ndescription: many files\n---\nRead b.\n"
	sentFirst = `[{"kind":"text","text":"ask your peer"},{"file":{"bytes":"aGk=","mimeType":"image/png","name":"x.png"},"kind":"file"},{"data":{"k":1},"kind":"data"}]`
)

// wholeReplay has another one make the changes of a changelog again, up to the third.
const wholeReplay = `[
	{"id":"replays","type":"deploy_agent","a2a_agent_id":"whole","agent_name":"r","agent_changelog_object_url":%q,"agent_changelog_toolcall_position_exclusive":3,"agent_snapshot_target_context_id":"past"},
	{"id":"other","type":"prompt_agent","agent_name":"r","prompt_id":"other","context_id":"past","prompt":"other"},
	{"id":"check","type":"agent_prompt_response_verifier","prompt_id":"other","verifier_id":"check","criteria":[{"type":"response_contains","needles":["1:ask your peer, 2:go on 1, other"]}]}
]`

// TestEverythingOfTheReferencesKit takes an agent on the reference's library that answers in a stream through all that the library offers, and has
// others go on from what it kept.
func TestEverythingOfTheReferencesKit(t *testing.T) {
	t.Parallel()
	agent, err := os.ReadFile(filepath.Join("testdata", "kit_agent.py"))
	if err != nil {
		t.Fatal(err)
	}
	u := newUser(t)
	bundle := u.onPythonKit(t, "whole", string(agent), kit.Files{
		"artifacts/in/artifact.toml": "type = \"file_artifact_universe\"\n", "artifacts/in/in.txt": "staged\n",
		"skills/many/SKILL.md": manySkill, "skills/many/a.txt": "a\n", "skills/many/deep/b.txt": "b\n",
	})

	talk := u.passes(t, bundle, wholeTalk)
	is(t, kit.At(talk, "deployed_agents", 0, "a2a_card", "capabilities", "streaming"), `true`)
	response := kit.At(talk, "prompt_responses", 0)
	is(t, kit.At(response, "response_text"), `"I heard\nask your peer, go on 1, fired words, go on 2"`)
	is(t, kit.At(response, "tool_call_count"), `4`)
	is(t, kit.At(response, "source_agent_per_turn_prompt_parts"), `[`+sentFirst+`,[{"kind":"text","text":"go on 1"}],[{"kind":"text","text":"fired words"}],[{"kind":"text","text":"go on 2"}]]`)
	is(t, kit.At(talk, "prompt_responses", 1, "structured_output"), `{"heard":["ask your peer","go on 1","fired words","go on 2","on"]}`)
	metadata := kit.At(talk, "metadata")
	is(t, kit.At(metadata, "agent_peerings"), `[{"peer_agent_names":["user"],"source_agent_name":"w"}]`)
	is(t, kit.At(metadata, "agent_trigger_registrations"), `[{"added":["wake"],"agent_name":"user","step_id":"wakes"}]`)
	is(t, kit.At(metadata, "agent_trigger_firings", "talk"), `[{"fired":[],"turn":1},{"fired":["wake"],"turn":2},{"fired":[],"turn":3},{"fired":[],"turn":4}]`)
	is(t, kit.At(metadata, "usersim_turn_outputs", "talk"), `[{"fields":{"mood":"calm"},"turn":1},{"fields":{"mood":"calm"},"turn":3},{"fields":{"mood":"calm"},"turn":4}]`)
	is(t, kit.At(metadata, "models"), `{"solver":{"on":null,"talk":null},"user simulator":{"talk":null}}`)
	is(t, kit.At(metadata, "agent_loaded_snapshots"), `[{"agent_name":"l","context_id":"again","source_artifact_id":"@local/~/b/t/kept","source_artifact_version":1}]`)
	is(t, kit.At(metadata, "agent_trigger_state", "talk", 1, "trigger_id"), `"wake"`)
	out, _ := kit.At(metadata, "artifacts").(map[string]any)
	collected := kit.Files{}
	for name, url := range out {
		collected[name] = object(t, url)
	}
	same(t, "what was collected", collected, kit.Files{"notes.txt": "ask your peer\ngo on 1\nfired words\ngo on 2\n", "skills/brief/SKILL.md": "Be brief.\n",
		"skills/plain/SKILL.md": "---\nname: plain\ndescription: one text\n---\n\nPlain words.\n", "skills/many/SKILL.md": manySkill, "skills/many/a.txt": "a\n", "skills/many/deep/b.txt": "b\n"})
	u.keptConversation(t, response)
	keptTrajectories(t, response)
	keptSnapshots(t, kit.At(metadata, "agent_snapshots"))

	// The agent wrote its changelog by a grant of the store: the record knows of no place where it was staged.
	log, _ := kit.At(metadata, "agent_changelog", 0).(map[string]any)
	url, _ := log["object_url"].(string)
	for key, want := range map[string]string{"agent_name": `"w"`, "roots": `["/work"]`, "transfer_mode": `"objects"`, "staging_url": `null`, "staging_max_object_bytes": `null`} {
		is(t, log[key], want)
	}
	same(t, "the changelog", kit.Read(t, path(url)), kit.Files{"000001.tgz": "ask your peer", "000002.tgz": "go on 1", "000003.tgz": "fired words", "000004.tgz": "go on 2"})

	again := u.passes(t, bundle, fmt.Sprintf(wholeReplay, url))
	rewind, _ := kit.At(again, "metadata", "agent_changelog_rewinds", 0).(map[string]any)
	if rewind["object_url"] != url {
		t.Errorf("replayed %v, not %s", rewind["object_url"], url)
	}
	delete(rewind, "object_url")
	is(t, rewind, `{"agent_name":"r","context_id":"past","transfer_mode":"objects","up_to_tool_call_exclusive":3}`)
}

// keptConversation checks what is stored of the talk with the user: every message, and that each turn has ended.
func (u *user) keptConversation(t *testing.T, response any) {
	talk := u.inOrder("agent_env_a2a_conversations")[0]
	for key, want := range map[string]string{"status": `"closed"`, "pending": `false`, "source_agent_name": `"user"`, "target_agent_name": `"w"`} {
		is(t, kit.At(talk, key), want)
	}
	var said, turns []any
	messages, _ := kit.At(talk, "messages").([]any)
	for i, message := range messages {
		if role := kit.At(message, "role"); role != []any{"user", "agent"}[i%2] {
			t.Errorf("message %d is of the %v", i, role)
		}
		said = append(said, kit.At(message, "parts", min(i%2, 1), "text"))
	}
	tasks, _ := kit.At(talk, "a2a_tasks").([]any)
	for _, turn := range tasks {
		turns = append(turns, []any{kit.At(turn, "state"), kit.At(turn, "input_message_idx"), kit.At(turn, "response_message_idx")})
	}
	is(t, said, `["ask your peer","ask your peer","go on 1","ask your peer, go on 1","fired words","ask your peer, go on 1, fired words","go on 2","ask your peer, go on 1, fired words, go on 2"]`)
	is(t, kit.At(talk, "messages", 0, "parts"), sentFirst)
	is(t, turns, `[["completed",0,1],["completed",2,3],["completed",4,5],["completed",6,7]]`)
	if last := kit.At(talk, "a2a_tasks", 3, "agent_task_id"); last == nil || last != kit.At(response, "agent_session_id") {
		t.Errorf("the last turn is the agent's task %v", last)
	}
}

// keptTrajectories checks the trajectory of each turn, whole and as it was kept while the agent worked.
func keptTrajectories(t *testing.T, response any) {
	const skills = `{"skills":["brief","many","plain"]}`
	urls, _ := kit.At(response, "target_agent_per_turn_trajectory_object_urls").([]any)
	want := [][]string{
		{`{"parts":["ask your peer",["x.png","image/png","aGk="],{"k":1}],"told":"ask your peer"}`, `{"peers":["user"],"response":"{\"message\": \"go on 1\", \"done\": false, \"mood\": \"calm\"}","state":"completed"}`, skills},
		{`{"parts":["go on 1"],"told":"go on 1"}`, skills},
		{`{"parts":["fired words"],"told":"fired words"}`, skills},
		{`{"parts":["go on 2"],"told":"go on 2"}`, skills},
	}
	if len(urls) != len(want) || kit.At(response, "agent_trajectory_object_url") != urls[len(urls)-1] {
		t.Fatalf("the trajectories are %v", urls)
	}
	id := func(turn int) any {
		if turn == len(urls) {
			return nil
		}
		return strings.TrimSuffix(strings.TrimPrefix(filepath.Base(path(urls[turn])), "trajectory-"), ".json")
	}
	for turn, events := range want {
		is(t, kit.Parse(t, object(t, urls[turn])), "["+strings.Join(events, ",")+"]")
		live := kit.Read(t, filepath.Join(path(kit.At(response, "agent_trajectory_object_prefix")), id(turn).(string), "live"))
		is(t, kit.Parse(t, live["meta.json"]), `{"format":"whole/v1"}`)
		is(t, kit.Parse(t, live["end.json"]), fmt.Sprintf(`{"next":%d,"state":"completed"}`, len(events)))
		if next := kit.Parse(t, live["next.json"]); !reflect.DeepEqual(next, map[string]any{"turn": id(turn + 1)}) {
			t.Errorf("turn %d: after it comes %v", turn, next)
		}
		var kept []any
		chunks := 0
		for _, name := range slices.Sorted(maps.Keys(live)) {
			if strings.HasSuffix(name, ".json") {
				continue
			}
			from := len(kept)
			for line := range strings.Lines(live[name]) {
				kept = append(kept, kit.Parse(t, line))
			}
			if want := fmt.Sprintf("%08d-%08d.jsonl", from, len(kept)); name != want {
				t.Errorf("turn %d: %s is named %s", turn, want, name)
			}
			chunks++
		}
		is(t, kept, "["+strings.Join(events, ",")+"]")
		// The first turn waits for the peer, seconds after its first event.
		if turn == 0 && chunks < 2 {
			t.Errorf("nothing was kept while the agent worked: %v", live)
		}
	}
}

// keptSnapshots checks the snapshots that were taken of the talk: after two turns, not after the third, at the end, and by the step after it.
func keptSnapshots(t *testing.T, rows any) {
	const name = `"id":"@local/~/b/t-INSTANCE__talk-workspace"`
	for i, want := range []struct {
		row    string
		heard  string
		events int
	}{
		{`{"capture_status":"ok",` + name + `,"is_final":false,"source_agent_name":"w","source_context_id":"c","turn":1,"version":1}`, `["ask your peer"]`, 3},
		{`{"capture_status":"ok",` + name + `,"is_final":false,"source_agent_name":"w","source_context_id":"c","turn":2,"version":2}`, `["ask your peer","go on 1"]`, 5},
		{`{"capture_reason":"limit_reached","capture_status":"skipped","is_final":false,"source_agent_name":"w","source_context_id":"c","turn":3}`, ``, 0},
		{`{"capture_status":"ok",` + name + `,"is_final":true,"source_agent_name":"w","source_context_id":"c","version":3}`, `["ask your peer","go on 1","fired words","go on 2"]`, 9},
		{`{"capture_step_id":"keep","id":"@local/~/b/t/kept","source_agent_name":"w","source_context_id":"c","version":1}`, `["ask your peer","go on 1","fired words","go on 2"]`, 0},
	} {
		row, _ := kit.At(rows, i).(map[string]any)
		state, events := row["bundle_object_url"], row["trajectory_object_url"]
		for _, key := range []string{"bundle_object_url", "trajectory_object_url", "trajectory_s3_uri", "captured_at_utc", "elapsed_s"} {
			delete(row, key)
		}
		is(t, normal(t, row), want.row)
		if want.heard != "" {
			heard := strings.Join(strings.Split(strings.Trim(want.heard, `[]"`), `","`), "\n") + "\n"
			same(t, want.row, kit.Read(t, path(state)), kit.Files{"trajectory": strings.ReplaceAll(want.heard, `,`, `, `), "workspace": heard})
		}
		if want.events > 0 {
			if got, _ := kit.Parse(t, object(t, events)).([]any); len(got) != want.events {
				t.Errorf("%s: its trajectory has %d events, not %d: %v", want.row, len(got), want.events, got)
			}
		}
	}
	if more := kit.At(rows, 5); more != nil {
		t.Errorf("a snapshot more: %v", more)
	}
}

// passes runs the one task of a bundle, which must pass every check and leave nothing up, and returns the context that is recorded of it.
func (u *user) passes(t *testing.T, bundle, task string) any {
	t.Helper()
	kit.Write(t, bundle, kit.Files{"tasks/t.json": task})
	r := u.Run(ours, "run", bundle, "--json")
	if r.Code != 0 {
		t.Fatal(r)
	}
	sum := kit.Parse(t, r.Stdout)
	scores, _ := kit.At(sum, "tasks", 0, "scores").([]any)
	for _, score := range scores {
		if kit.At(score, "value") != 1.0 {
			t.Fatal(r)
		}
	}
	if up, ok := kit.At(sum, "still_up").([]any); len(scores) == 0 || !ok || len(up) != 0 {
		t.Fatal(r)
	}
	id, _ := kit.At(sum, "tasks", 0, "instance").(string)
	return kit.At(instanceOf(t, u, id), "context")
}

// is compares a value with a JSON text without spaces and with its keys in order.
func is(t *testing.T, got any, want string) {
	t.Helper()
	if b, err := json.Marshal(got); err != nil || string(b) != want {
		t.Errorf("%s, %v; want %s", b, err, want)
	}
}

func same(t *testing.T, what string, got, want kit.Files) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// path is where the local store keeps what is at a URL.
func path(url any) string {
	s, _ := url.(string)
	return strings.TrimPrefix(s, "file://")
}

// object is what the local store keeps at a URL.
func object(t *testing.T, url any) string {
	t.Helper()
	b, err := os.ReadFile(path(url))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
