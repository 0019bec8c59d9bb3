//go:build integration

package e2e_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentenv/test/kit"
)

// keeperAgent is the static binary of the agent that keeps its state, built once.
var keeperAgent = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "agentenv-keeper-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "keeper"), "agentenv/test/keeper")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return string(out), err
	}
	b, err := os.ReadFile(filepath.Join(dir, "keeper"))
	return string(b), err
})

// keeperFolder is the agent's folder in a bundle.
func keeperFolder(program string) kit.Files {
	return kit.Files{
		"agents/keeper/keeper":     "+x" + program,
		"agents/keeper/tmp/.keep":  "",
		"agents/keeper/agent.toml": modelFree,
		"agents/keeper/Dockerfile": "FROM scratch\nCOPY keeper /keeper\nCOPY --chown=65532:65532 tmp /tmp\nLABEL agentenv.a2a.auth=bearer\nUSER 65532:65532\nENTRYPOINT [\"/keeper\"]\n",
	}
}

// TestChangelogGoesOn in another process, which takes up the run and the agent of one that was killed: the agent still writes by the grant that
// the first one gave it.
func TestChangelogGoesOn(t *testing.T) {
	t.Parallel()
	program, err := keeperAgent()
	if err != nil {
		t.Fatalf("build the keeper: %v\n%s", err, program)
	}
	k := newUser(t)
	url, asked := changing(t, "", "good")
	ask := func(text string) map[string]any {
		return map[string]any{"id": text, "type": "prompt_agent", "agent_name": "first", "context_id": "talk", "prompt": text, "prompt_id": text}
	}
	dir := k.bundle("goeson", steps{{"id": "deploy", "type": "deploy_agent", "a2a_agent_id": "keeper", "agent_name": "first", "enable_agent_changelog": true}, ask("one"),
		{"id": "wait", "type": "load_artifact", "agent_name": "first", "urls": []string{url}, "destination_path": "/tmp/in"}, ask("two")}, keeperFolder(program))
	p := k.start("run", dir, "--sandbox", "local")
	t.Cleanup(p.kill)
	p.waitFor("wait (load_artifact)")
	p.until(func() bool { return asked.Load() > 0 })
	id := k.Select(`SELECT json_extract(doc, '$.instance_id') FROM docs_task_instances`)[0]
	p.kill()
	k.ok("run", "--resume", id)
	record := k.instance(id)
	log := record.at("context", "metadata", "agent_changelog", 0)
	if log.num("grant_port") == 0 || record.str("context", "prompt_responses", 1, "response") != "I heard one, two" {
		t.Errorf("%s, %s", log, record.at("context", "prompt_responses"))
	}
	same(t, kit.Read(t, strings.TrimPrefix(log.str("object_url"), "file://")), kit.Files{"000001.txt": "one", "000002.txt": "two"})
	if left := k.leftovers(); left != "" && !onlyTmp(k, left) {
		t.Errorf("left behind: %s", left)
	}
}

// TestKeptState has agents in containers go on with the conversation of another one, by its snapshot and by its changelog, with objects that go by
// grants of the store and by the agents' own staging.
func TestKeptState(t *testing.T) {
	for _, c := range []struct{ target, grants string }{{"local", "auto"}, {"local", "off"}, {"docker", "off"}} {
		t.Run(c.target+" with grants "+c.grants, func(t *testing.T) {
			t.Parallel()
			program, err := keeperAgent()
			if err != nil {
				t.Fatalf("build the keeper: %v\n%s", err, program)
			}
			k := newUser(t)
			kit.Write(t, k.Home, kit.Files{"agent-env.toml": "[stores.object]\nimpl = \"agent_env.store.object_store:LocalFilesystemObjectStore\"\n[stores.object.config]\ngrants = \"" + c.grants + "\"\n"})
			k.Env = append(k.Env, "AGENT_ENV_CONFIG="+filepath.Join(k.Home, "agent-env.toml"))
			deploy := func(name string, more map[string]any) map[string]any {
				step := map[string]any{"id": "deploy-" + name, "type": "deploy_agent", "a2a_agent_id": "keeper", "agent_name": name}
				for key, v := range more {
					step[key] = v
				}
				return step
			}
			ask := func(name, conversation, text string) map[string]any {
				return map[string]any{"id": text, "type": "prompt_agent", "agent_name": name, "context_id": conversation, "prompt": text, "prompt_id": text}
			}
			task := steps{
				deploy("first", map[string]any{"enable_agent_changelog": true}), ask("first", "talk", "one"), ask("first", "talk", "two"),
				map[string]any{"id": "keep", "type": "snapshot_agent_state", "agent_name": "first", "prompt_id": "two", "artifact_id": "kept"},
				map[string]any{"id": "end", "type": "teardown_sandboxes", "agent_names": []string{"first"}, "fail_task_on_error": false},
				deploy("second", map[string]any{"agent_snapshot_files_artifact_id": "kept", "agent_snapshot_target_context_id": "again"}), ask("second", "again", "three"),
			}
			files := keeperFolder(program)
			runs := func(name string, task steps) doc {
				s, r := k.summed(k.bundle(name, task, files), "--sandbox", c.target)
				if r.Code != 0 || len(s.Tasks) != 1 || s.Tasks[0].Class != "passed" || len(s.StillUp) != 0 {
					t.Fatal(r)
				}
				return k.instance(s.Tasks[0].Instance)
			}
			kept := runs("keeper", task)
			if got := kept.str("context", "prompt_responses", 2, "response"); got != "I heard one, two, three" {
				t.Errorf("it goes on with %q", got)
			}
			if got := kept.at("context", "metadata", "agent_loaded_snapshots", 0); got.str("context_id") != "again" || got.str("agent_name") != "second" {
				t.Errorf("recorded %s", got)
			}
			log := kept.at("context", "metadata", "agent_changelog", 0)
			url := log.str("object_url")
			staged := strings.Contains(log.String(), "staging_max_object_bytes")
			if staged != (c.grants == "off") || strings.Contains(log.String(), "staging_url") {
				t.Errorf("recorded %s", log)
			}
			same(t, kit.Read(t, strings.TrimPrefix(url, "file://")), kit.Files{"000001.txt": "one", "000002.txt": "two"})

			replay := steps{deploy("third", map[string]any{"agent_changelog_object_url": url, "agent_changelog_toolcall_position_exclusive": 2, "agent_snapshot_target_context_id": "past"}), ask("third", "past", "other")}
			record := runs("replay", replay)
			if got := record.str("context", "prompt_responses", 0, "response"); got != "I heard one, other" {
				t.Errorf("it goes on with %q", got)
			}
			if got := record.at("context", "metadata", "agent_changelog_rewinds", 0); got.str("context_id") != "past" || got.num("up_to_tool_call_exclusive") != 2 {
				t.Errorf("recorded %s", got)
			}
			k.keepsFolder(kept.str("context", "deployed_agents", 0, "sandbox_id"))
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// keepsFolder looks in everything that was stored for the folder in which the agent of a sandbox staged its changelog.
func (k *user) keepsFolder(sandbox string) {
	k.T.Helper()
	key, err := os.ReadFile(filepath.Join(k.State, "agent-tokens.key"))
	if err != nil {
		k.T.Fatal(err)
	}
	m := hmac.New(sha256.New, key)
	m.Write([]byte("changelog\x00" + sandbox))
	folder := hex.EncodeToString(m.Sum(nil))[:32]
	for name, text := range kit.Read(k.T, k.State) {
		if strings.Contains(text, folder) {
			k.T.Errorf("where the changelog was staged is in %s", name)
		}
	}
}
