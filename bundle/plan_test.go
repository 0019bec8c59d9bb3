package bundle_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv/artifact"
	"agentenv/bundle"
	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/store/document"
)

func load(ids ...string) string {
	items := make([]string, len(ids))
	for i, id := range ids {
		items[i] = fmt.Sprintf(`{"id":%q}`, id)
	}
	return `{"id":"l","type":"load_artifact","artifacts":[` + strings.Join(items, ",") + `],"sandbox_name":"b"}`
}

func score(v string) string { return `{"id":"v","type":"score","value":` + v + `,"verifier_id":"v"}` }

// rich is a bundle of every artifact type; the digests of its entities come from a run of the reference over the same files.
var rich = map[string]string{
	"artifacts/f/x.SH":               "hi\n",
	"artifacts/img/Dockerfile":       "FROM scratch\nCOPY a /a\n",
	"artifacts/img/a":                "+xa\n",
	"artifacts/img/empty/":           "",
	"artifacts/img/lnk":              "->a",
	"artifacts/env/artifact.toml":    "type=\"environment\"\nenvironment_name=\"mail\"\ndescription=\"d\"\n",
	"artifacts/env/p.json":           "{\"files\":[]}\n",
	"artifacts/eu/artifact.toml":     "type=\"environment_universe\"\nenvironment_artifacts=[\"envn\"]\n",
	"artifacts/eu/mail/d.json":       "{}\n",
	"artifacts/eu/metadata/k/m.txt":  "m\n",
	"artifacts/envn/artifact.toml":   "type=\"environment\"\nenvironment_name=\"slack\"\nfile=\"f\"\n",
	"artifacts/cli/artifact.toml":    "type=\"cli\"\ncommand_name=\"foo\"\nentrypoint=\"foo.sh\"\n",
	"artifacts/cli/foo.sh":           "hi\n",
	"skills/sk/SKILL.md":             "---\nname: sk\ndescription: a skill\nlicense: MIT\nmetadata:\n  a: \"b\"\n---\n\nBody\n",
	"artifacts/named/a.txt":          "hello\n",
	"artifacts/named/artifact.toml":  "id = \"@local/demo/data\"\n",
	"artifacts/greeting/hello.txt":   "hello\n",
	"artifacts/greeting/check.sh":    "exit 0\n",
	"artifacts/unused/artifact.toml": "type=\"file\"\nnonsense=1\n",
	"artifacts/unused/x":             "",
	"evals/e.toml":                   "tasks=[\"t\"]\n",
	"tasks/t.json": `[{"id":"box","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"vm"},
		{"id":"l","type":"load_artifact","artifacts":[{"id":"f"},{"id":"sk"},{"id":"env"},{"id":"eu"},{"id":"img"},{"id":"named"},{"id":"greeting"}],"sandbox_name":"b"},
		{"id":"w","type":"wait","artifact_id":"cli"}]`,
}

func TestLedgerKnownAnswers(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "b2", rich)
	_, lines := k.write(t, dir, bundle.Selection{})
	wantLines(t, lines, "artifacts/cli: v1 (new)", "artifacts/env: v1 (new)", "artifacts/f: v1 (new)", "artifacts/envn: v1 (new)", "artifacts/eu: v1 (new)",
		"artifacts/greeting: v1 (new)", "artifacts/img (Dockerfile image): v1 (new)", "artifacts/named: v1 (new)", "skills/sk: v1 (new)",
		"tasks/t.json: v1 (new)", "evals/e.toml: v1 (new)")
	for id, want := range map[string]string{
		"@local/~/b2/cli":  "1c9bee98d4abddac01847a0733d2b8382cd4ab3473276aab8c5436aa48e9abbe",
		"@local/~/b2/env":  "227326dbf84aef38a2923a608c0781e10021df8959174d5f2de7e90b2edacb7a",
		"@local/~/b2/f":    "36c95160b98bb85b667eaf5080005b267fcdc457c54aac1234c090e32c45538a",
		"@local/~/b2/envn": "5e5746c948f2edad991ef1f6109cb8aa00e9242eb300b09a819c7190c57a25a5",
		"@local/~/b2/eu":   "6bde8b355116ee996d39ffa431412fa8433786c14594cb0678339a20cb3e25ed",
		"@local/~/b2/img":  "91b4e75e8da773646db5e3ade64d09f8d55bf49863528bca5d2d7574693fcbe3",
		"@local/~/b2/sk":   "e35173355362715f0a4f210715c2fa95057aa962504e69b84acbaa70ac8b42e0",
		"@local/demo/data": "26d5a5cf3a0a0fe7095d1985d978277e799a5b950b29a068d863389ed9ee12b3",
	} {
		row := k.row(t, "artifact", id)
		if got := row.Str("digest"); got != "sha256:"+want {
			text, _ := doc.MarshalIndent(row)
			t.Errorf("%s has the digest %s, want %s\n%s", id, got, want, text)
		}
	}
	if got := k.row(t, "eval", "@local/~/b2/e").Str("digest"); got != "sha256:1a216ece78e465124f435285a970b7156fe5da82e678d1148c89cf9b6794a93d" {
		t.Errorf("the eval has the digest %s", got)
	}
	img, err := artifact.GetAs[*artifact.DockerImage](t.Context(), k.artifacts, artifact.Ref{ID: "@local/~/b2/img"})
	if err != nil || img.SourceDigest != "sha256:a7a2f8b381b0a8b3a762264068561ba0289523fce15bc06483097ad2131bdf51" || img.Description != "built from artifacts/img/Dockerfile" {
		t.Errorf("image %+v, %v", img, err)
	}
	uni, err := artifact.GetAs[*artifact.EnvironmentUniverse](t.Context(), k.artifacts, artifact.Ref{ID: "@local/~/b2/eu"})
	if err != nil || len(uni.Environments) != 2 || uni.Environments[0].ID != "@local/~/b2/eu__mail" || uni.Environments[1].ID != "@local/~/b2/envn" {
		t.Errorf("universe %+v, %v", uni, err)
	}
	if len(k.images.builds) != 0 {
		t.Error("an image that no sandbox runs was built")
	}
	d, err := document.Versioned{Store: k.docs, Collection: "tasks"}.Get(t.Context(), "@local/~/b2/t", 1)
	if err != nil || d.Arr("steps")[1].(*doc.Object).Arr("artifacts")[0].(*doc.Object).Str("id") != "@local/~/b2/f" {
		t.Errorf("the stored task is %v, %v", d, err)
	}
	_, lines = k.write(t, dir, bundle.Selection{})
	for _, l := range lines {
		if !strings.HasSuffix(l, ": v1, unchanged") {
			t.Errorf("a second run wrote %s", l)
		}
	}
}

func TestTaskDigest(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "hello2", map[string]string{"artifacts/greeting/hello.txt": "hello\n", "artifacts/greeting/check.sh": "exit 0\n", "tasks/t.json": `[
		{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","sandbox_type":"local"},
		{"id":"l","type":"load_artifact","artifact_id":"greeting","sandbox_name":"box","destination_path":"/app/greeting"}]`})
	k.write(t, dir, bundle.Selection{})
	if got := k.row(t, "artifact", "@local/~/hello2/greeting").Str("digest"); got != "sha256:f6ab35ead1d2c22b89e64af90dd6bd9fbeb8cfe7ce577792c49da03728acb444" {
		t.Errorf("the artifact has the digest %s", got)
	}
	row := k.row(t, "task", "@local/~/hello2/t")
	// The digest of a task is that of its steps with ids for names, whatever the order of the keys.
	if got := row.Obj("inputs").Str("config"); got != "sha256:39f2a2376025b37e6dca0926021b1b95ebcca14a95a8ee009ea02d6ca93102bf" {
		t.Errorf("the task has the config %s", got)
	}
	if row.Obj("inputs").Obj("files").Len() != 0 || row.Str("bundle") != "@local/~/hello2" || row.Str("status") != "done" {
		t.Errorf("row %v", row)
	}
}

func TestReasons(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{"artifacts/d/a": "hi\n", "artifacts/e/artifact.toml": "type=\"environment\"\nenvironment_name=\"x\"\nfile=\"d2\"\n",
		"artifacts/d2/y": "y", "tasks/t.json": "[" + vm + "," + load("d", "e") + "]"})
	write := func() []string { _, lines := k.write(t, dir, bundle.Selection{}); return lines }
	put := func(name, body string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write()
	put("artifacts/d/a", "more\n")
	put("artifacts/d/b", "x")
	before := k.plan(t, dir, bundle.Selection{})
	dry, err := before.DryRun(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lines := write()
	wantLines(t, lines, "artifacts/d: v2 (type changed: file → file_artifact_universe; files added: b; files changed: a)", "artifacts/d2: v1, unchanged",
		"artifacts/e: v1, unchanged", "tasks/t.json: v1, unchanged")
	for _, l := range lines {
		if !strings.Contains(dry, l+"\n") {
			t.Errorf("the dry run did not predict %q:\n%s", l, dry)
		}
	}
	put("artifacts/d2/y", "yy")
	for i := range 7 {
		put(fmt.Sprintf("artifacts/d/n%d", i), "n")
	}
	wantLines(t, write(), "artifacts/d: v3 (files added: n0, n1, n2, n3, n4 and 2 more)", "artifacts/d2: v2 (files changed: y)",
		"artifacts/e: v2 (artifact @local/~/p/d2 is written anew (v1 → v2))", "tasks/t.json: v1, unchanged")
	put("artifacts/d2/y", "y")
	if got := write()[1]; got != "artifacts/d2: v3 (files changed: y)" {
		t.Errorf("going back gave %s", got)
	}
	put("tasks/t.json", "["+vm+","+strings.Replace(load("d", "e"), `"id":"l",`, `"id":"m",`, 1)+"]")
	if got := write()[3]; got != "tasks/t.json: v2 (config changed)" {
		t.Errorf("an edited task gave %s", got)
	}
	put("tasks/t.json", "["+vm+`,{"sandbox_name":"b",`+strings.Replace(strings.TrimSuffix(load("d", "e"), `,"sandbox_name":"b"}`), `{"id":"l",`, `"id":"m",`, 1)+"}]")
	if got := write()[3]; got != "tasks/t.json: v2, unchanged" {
		t.Errorf("another order of keys gave %s", got)
	}
	if _, err := k.artifacts.PutFile(t.Context(), "@local/~/p/d2", "", artifact.Source{Name: "y", Size: -1, Open: open("z")}); err != nil {
		t.Fatal(err)
	}
	if got := write()[1]; got != "artifacts/d2: v5 (the store's latest, v4, was not written by a bundle)" {
		t.Errorf("a foreign version gave %s", got)
	}
	if _, err := k.docs.Delete(t.Context(), artifact.Documents, document.By("id", "@local/~/p/d2", "version", doc.Int(5))); err != nil {
		t.Fatal(err)
	}
	if got := write()[1]; got != "artifacts/d2: v5 (its v5 is not in the store)" {
		t.Errorf("a lost version gave %s", got)
	}
	other := k.files(t, "q", map[string]string{"artifacts/d/a": "hello\n", "artifacts/d/artifact.toml": `id = "@local/~/p/d2"`, "tasks/t.json": "[" + vm + "," + load("d") + "]"})
	_, lines = k.write(t, other, bundle.Selection{})
	if lines[0] != "artifacts/d: v6 (last written by the bundle @local/~/p)" {
		t.Errorf("another bundle gave %s", lines[0])
	}
}

func TestAdoption(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{"artifacts/d/a": "hi\n", "tasks/t.json": "[" + vm + "," + load("d") + "]"})
	k.write(t, dir, bundle.Selection{})
	id := "@local/~/p/d"
	// A process that died between the write and its record leaves a pending row with a version.
	set := document.Update{Set: doc.Of("status", "pending")}
	if n, err := k.docs.Update(t.Context(), "bundle_ledger", document.By("store", "artifact", "id", id), set, false); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	_, lines := k.write(t, dir, bundle.Selection{})
	if lines[0] != "artifacts/d: v1, unchanged" || k.row(t, "artifact", id).Str("status") != "done" {
		t.Errorf("%s, row %v", lines[0], k.row(t, "artifact", id))
	}
	// One that died before the write leaves a pending row without one.
	if _, err := k.docs.Update(t.Context(), "bundle_ledger", document.By("store", "artifact", "id", id),
		document.Update{Set: doc.Of("status", "pending"), Unset: []string{"version"}}, false); err != nil {
		t.Fatal(err)
	}
	if _, lines = k.write(t, dir, bundle.Selection{}); lines[0] != "artifacts/d: v2 (new)" {
		t.Error(lines[0])
	}
}

func TestPlanProblems(t *testing.T) {
	step := func(s string) string { return "[" + vm + "," + s + "]" }
	for name, c := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"references": {map[string]string{"artifacts/x/a": "", "artifacts/loose.txt": "", "tasks/t.json": "[" + vm + `,
			{"id":"a","type":"load_artifact","artifact_id":"X","sandbox_name":"b"},
			{"id":"p","type":"load_artifact","artifact_id":"x","artifact_version":2,"sandbox_name":"b"},
			{"id":"c","type":"load_artifact","artifact_id":"nowhere","sandbox_name":"b"},
			{"id":"r","type":"load_artifact","artifact_id":"@local/~/p/zz","sandbox_name":"b"},
			{"id":"f","type":"load_artifact","artifact_id":"loose.txt","sandbox_name":"b"},
			{"id":"d","type":"load_artifact","artifact_id":"x","sandbox_name":"b","depends_on":["zz"]},
			{"id":"e","type":"nope"}]`}, []string{
			"step 'a': artifact_id: 'X' isn't in this bundle, but 'x' is; names are case-sensitive",
			"step 'c': artifact_id: there is no artifact 'nowhere' in this bundle or in the store",
			"step 'd': depends_on 'zz' names no step in this task", "step 'e': 'nope' is not a known step type",
			"step 'f': artifact_id: 'loose.txt' is a file in artifacts/",
			"step 'p': artifact_id: 'x' is defined in this bundle, so it has no fixed version; drop the pin",
			"step 'r': artifact_id: '@local/~/p/zz' isn't in this bundle"}},
		"folders and keys": {map[string]string{"artifacts/y/artifact.toml": "type=\"file\"\nfoo=1", "artifacts/y/b": "", "artifacts/l/h": "->/etc/hostname", "artifacts/l/i": "",
			"artifacts/two/artifact.toml": "type=\"file\"", "artifacts/two/a": "", "artifacts/two/b": "", "artifacts/loop/a/b": "->..", "artifacts/odd/artifact.toml": "type=\"odd\"",
			"tasks/t.json": step(load("y", "l", "two", "loop", "odd"))}, []string{
			"artifacts/l/h: links to /etc/hostname, outside the bundle; copy what it points to into the bundle", "artifacts/loop/a/b: links to a folder that holds it",
			"artifacts/odd: 'odd' is not a known artifact type",
			"artifacts/two: a file holds exactly one file, and this folder holds 2", "artifacts/y: artifact.toml: unknown key 'foo'; a file artifact takes description, type and id"}},
		"universe folder": {map[string]string{"artifacts/u/artifact.toml": `type="environment_universe"`, "artifacts/u/gmail/a": "", "artifacts/u/gmail/b": "", "artifacts/u/slack/": "",
			"artifacts/u/stray": "", "artifacts/u/metadata/x": "", "tasks/t.json": step(load("u"))}, []string{
			"artifacts/u/gmail: a folder with files of its own holds exactly one", "artifacts/u/metadata/x: a file directly in metadata/", "artifacts/u/slack: a folder without a file",
			"artifacts/u/stray: a stray file", "artifacts/u: an environment_universe needs at least one environment"}},
		"stored names": {map[string]string{"artifacts/e/artifact.toml": "type=\"environment\"\nservice_name=\"x\"\nfile_artifact_id=\"y\"", "artifacts/e/f": "", "tasks/t.json": step(load("e"))},
			[]string{"environment_name is missing", "unknown key 'file_artifact_id'; write file instead", "unknown key 'service_name'; write environment_name instead"}},
		"not yet": {map[string]string{"envs/e/Dockerfile": "FROM scratch", "tasks/t.json": "[" + vm + `,{"id":"p","type":"peer_agents"},
			{"id":"r","type":"load_artifact","artifact_id":"x","env_id":"e","sandbox_name":"b"}]`},
			[]string{"step 'p': steps of the type peer_agents are not supported yet", "step 'r': artifact_id: there is no artifact 'x'", "step 'r': env_id: it names the env 'e'; envs are not supported yet"}},
		"steps": {map[string]string{"tasks/t.json": "[" + vm + `,{"id":"a","type":"load_artifact","artifacts":"x"},{"id":"c","type":"load_artifact"},{"id":"b","type":"wait"},{"type":"wait"}]`},
			[]string{"a step without an id: … field \"id\" is missing", "step 'a': … artifacts", "step 'c': it has no target"}},
		"evals": {map[string]string{"evals/e.toml": `tasks = ["t", "@local/~/p/t", "gone", 3]`, "tasks/t.json": "[" + vm + "]"},
			[]string{"tasks[1]: '@local/~/p/t' is listed twice", "tasks[2]: 'gone' is no task of this bundle", "tasks[3]: must be"}},
		"duplicate ids":   {map[string]string{"tasks/t.json": "[" + vm + "," + vm + "]"}, []string{`has the id of the step`}},
		"provider":        {map[string]string{"tasks/t.json": strings.Replace("["+vm+"]", `"local"`, `"moon"`, 1)}, []string{"step 'b': Unknown sandbox backend: 'moon'"}},
		"no VMs there":    {map[string]string{"tasks/t.json": strings.Replace("["+vm+"]", `"local"`, `"far"`, 1)}, []string{"step 'b': the provider far has no VMs"}},
		"image elsewhere": {map[string]string{"artifacts/box/Dockerfile": "FROM scratch", "tasks/t.json": `[{"id":"b","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"container","image":"box","sandbox_type":"far"}]`}, []string{"step 'b': the image is built on this machine, which the provider far cannot reach"}},
		"a cli without an agent": {map[string]string{"artifacts/cli/artifact.toml": "type=\"cli\"\ncommand_name=\"foo\"\nentrypoint=\"foo.sh\"\n", "artifacts/cli/foo.sh": "+x#!/bin/sh\n", "tasks/t.json": step(load("cli"))},
			[]string{"the cli 'cli' is installed into an agent, so the step needs agent_name and env_id"}},
		"skill":           {map[string]string{"skills/s/SKILL.md": "---\nname: other\ndescription: d\n---\n", "tasks/t.json": step(load("s"))}, []string{"skills/s: SKILL.md: name is 'other'"}},
		"image with both": {map[string]string{"artifacts/i/Dockerfile": "FROM scratch", "artifacts/i/artifact.toml": "type=\"docker_image\"\nref=\"busybox\"", "tasks/t.json": step(load("i"))}, []string{"artifacts/i: ref 'busybox' must spell out its registry", "artifacts/i: ref names an image in a registry"}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit(t)
			b := k.parse(t, k.files(t, "p", c.files))
			_, err := k.runner.Plan(t.Context(), b, bundle.Selection{})
			wantProblems(t, err, c.want...)
			if _, err := os.Stat(filepath.Join(k.state, "document_store", "local.db")); err == nil {
				t.Error("a refused bundle made the local store")
			}
		})
	}
}

func TestSelection(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{"tasks/a.json": "[" + vm + "]", "tasks/b.json": "[" + vm + "]", "tasks/c.json": `[{"id":"x","type":"load_artifact","artifact_id":"gone","sandbox_name":"s"}]`,
		"evals/e.toml": `tasks = ["a"]`})
	b := k.parse(t, dir)
	_, err := k.runner.Plan(t.Context(), b, bundle.Selection{Tasks: []string{"A"}, Evals: []string{"q"}})
	wantProblems(t, err, "--eval 'q': this bundle has no eval with that name or id; its evals are 'e'", "--task 'A': this bundle has no task with that name or id; its tasks are 'a', 'b', 'c'")
	_, err = k.runner.Plan(t.Context(), b, bundle.Selection{Sandbox: "nowhere"})
	if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), "'far', 'local'") {
		t.Errorf("got %v", err)
	}
	_, err = k.runner.Plan(t.Context(), b, bundle.Selection{Agent: "x"})
	wantProblems(t, err, "--agent: no task that is to run deploys an agent and prompts it, so 'x' would take nobody's place")
	dry := func(sel bundle.Selection) string {
		t.Helper()
		out, err := k.plan(t, dir, sel).DryRun(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := "Dry run: nothing is written or run.\ntasks/a.json: v1 (new)\nevals/e.toml: v1 (new)\n\nWould run:\n  tasks/a.json v1\nEvals:\n  evals/e.toml v1: tasks/a.json\n" +
		"tasks/b.json isn't named by any eval, so it wouldn't run; run it with --task b\ntasks/c.json isn't named by any eval, so it wouldn't run; run it with --task c\n" +
		"Dry run: nothing is written or run.\n"
	if got := dry(bundle.Selection{}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := dry(bundle.Selection{Tasks: []string{"b", "@local/~/p/b"}, Evals: []string{"e"}}); strings.Count(got, "tasks/b.json v1") != 1 || !strings.Contains(got, "tasks/a.json v1\n") {
		t.Errorf("selected by name and id:\n%s", got)
	}
	if entries, err := os.ReadDir(k.state); err == nil && len(entries) > 0 {
		t.Errorf("a dry run made %v", entries)
	}
}

func TestStoreReferences(t *testing.T) {
	k := newKit(t)
	for range 2 {
		if _, err := k.artifacts.PutFile(t.Context(), "shared", "", artifact.Source{Name: "s.txt", Size: -1, Open: open("s")}); err != nil {
			t.Fatal(err)
		}
	}
	env := "type=\"environment\"\nenvironment_name=\"x\"\nfile=%s\n"
	dir := k.files(t, "p", map[string]string{"artifacts/e/artifact.toml": fmt.Sprintf(env, `"shared"`), "tasks/t.json": "[" + vm + "," + load("e", "shared") + "]"})
	out, err := k.plan(t, dir, bundle.Selection{}).DryRun(t.Context())
	if err != nil || !strings.Contains(out, "Store refs:\n  artifact shared v2, the latest\nWould run:") {
		t.Errorf("%v\n%s", err, out)
	}
	k.write(t, dir, bundle.Selection{})
	if got := k.row(t, "artifact", "@local/~/p/e").Obj("inputs").Obj("store_refs").Str("artifact shared"); got != "2" {
		t.Errorf("the ledger says %q", got)
	}
	if _, err := k.artifacts.PutFile(t.Context(), "shared", "", artifact.Source{Name: "s.txt", Size: -1, Open: open("s")}); err != nil {
		t.Fatal(err)
	}
	if _, lines := k.write(t, dir, bundle.Selection{}); lines[0] != "artifacts/e: v2 (artifact shared has a new version in the store (v2 → v3))" {
		t.Error(lines[0])
	}
	if err := os.WriteFile(filepath.Join(dir, "artifacts/e/artifact.toml"), fmt.Appendf(nil, env, `{artifact="shared",version=1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	k.write(t, dir, bundle.Selection{})
	e, err := artifact.GetAs[*artifact.Environment](t.Context(), k.artifacts, artifact.Ref{ID: "@local/~/p/e"})
	if err != nil || *e.File != (artifact.Ref{ID: "shared", Version: 1}) {
		t.Errorf("the environment wraps %v, %v", e.File, err)
	}
}

func TestImages(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{"artifacts/box/Dockerfile": "FROM scratch\n", "artifacts/box/a": "x",
		"artifacts/pub/artifact.toml": "type=\"docker_image\"\nref=\"ghcr.io/x/y:1\"\n",
		"tasks/t.json": `[{"id":"b","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"container","image":"box","port":80},
			{"id":"c","type":"deploy_sandbox","sandbox_name":"c","sandbox_mode":"container","image":"pub","port":80},
			{"id":"d","type":"deploy_sandbox","sandbox_name":"d","sandbox_mode":"container","image":"busybox:1","port":80}]`})
	out, err := k.plan(t, dir, bundle.Selection{}).DryRun(t.Context())
	if err != nil || !strings.Contains(out, "built here as local/p-box-") {
		t.Errorf("%v\n%s", err, out)
	}
	_, lines := k.write(t, dir, bundle.Selection{})
	wantLines(t, lines, "artifacts/box (Dockerfile image): v1 (new)", "artifacts/pub (ghcr.io/x/y:1 image): v1 (new), pinned to sha256:abababababab", "tasks/t.json: v1 (new)")
	img, err := artifact.GetAs[*artifact.DockerImage](t.Context(), k.artifacts, artifact.Ref{ID: "@local/~/p/box"})
	if err != nil {
		t.Fatal(err)
	}
	if len(k.images.builds) != 1 || k.images.builds[0].Name != img.Image || k.images.builds[0].Sources != img.SourceDigest {
		t.Errorf("built %+v", k.images.builds)
	}
	images := func() []string {
		t.Helper()
		d, err := document.Versioned{Store: k.docs, Collection: "tasks"}.Get(t.Context(), "@local/~/p/t", 0)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, s := range d.Arr("steps") {
			out = append(out, s.(*doc.Object).Str("image"))
		}
		return out
	}
	wantLines(t, images(), img.Image, "ghcr.io/x/y:1@sha256:"+strings.Repeat("ab", 32), "busybox:1")
	k.write(t, dir, bundle.Selection{})
	if len(k.images.builds) != 1 {
		t.Error("built again for the same content")
	}
	if err := os.WriteFile(filepath.Join(dir, "artifacts/box/a"), []byte("y"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, lines = k.write(t, dir, bundle.Selection{})
	wantLines(t, lines, "artifacts/box (Dockerfile image): v2 (files changed: a)", "artifacts/pub (ghcr.io/x/y:1 image): v1, unchanged", "tasks/t.json: v2 (config changed)")
	if len(k.images.builds) != 2 || images()[0] != k.images.builds[1].Name {
		t.Errorf("builds %v, steps run %v", len(k.images.builds), images())
	}
	k.images.fail = fault.New(fault.Invalid, "RUN false failed")
	if err := os.WriteFile(filepath.Join(dir, "artifacts/box/a"), []byte("z"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := k.plan(t, dir, bundle.Selection{})
	err = p.Materialize(t.Context(), func(l string) { t.Errorf("wrote %s", l) }, func(string) {})
	if !fault.Is(err, fault.Invalid) || !strings.Contains(err.Error(), "artifacts/box (Dockerfile image): RUN false failed") {
		t.Errorf("a failed build gave %v", err)
	}
}

func TestTaskPreflightHoldsBackTasks(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{"artifacts/s/run.py": "", "tasks/ok.json": `[{"id":"r","type":"run_code","script_artifact_id":"s"}]`})
	out, err := k.plan(t, dir, bundle.Selection{}).DryRun(t.Context())
	if err != nil || !strings.Contains(out, "Not preflighted, since each reads what the run would write first:\n  tasks/ok.json: step 'r' (run_code)\nDry run") {
		t.Errorf("%v\n%s", err, out)
	}
	k.write(t, dir, bundle.Selection{})
	if out, _ = k.plan(t, dir, bundle.Selection{}).DryRun(t.Context()); strings.Contains(out, "Not preflighted") {
		t.Errorf("a stored script was not looked at:\n%s", out)
	}
}

func TestOneFailedPreflightWritesNoTask(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{"artifacts/s/a.py": "", "artifacts/s/b.py": "", "tasks/bad.json": `[{"id":"r","type":"run_code","script_artifact_id":"s"}]`,
		"tasks/good.json": "[" + vm + "]", "evals/e.toml": `tasks = ["bad", "good"]`})
	var lines []string
	err := k.plan(t, dir, bundle.Selection{}).Materialize(t.Context(), func(l string) { lines = append(lines, l) }, func(string) {})
	wantProblems(t, err, "tasks/bad.json: step 'r': the script is no file")
	wantLines(t, lines, "artifacts/s: v1 (new)")
	for _, coll := range []string{"tasks", "evals"} {
		if n, err := k.docs.Count(t.Context(), coll, nil); n != 0 || err != nil {
			t.Errorf("%d %s, %v", n, coll, err)
		}
	}
}

func TestChangedMeanwhile(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{"artifacts/d/a": "one", "tasks/t.json": "[" + vm + "," + load("d") + "]"})
	p := k.plan(t, dir, bundle.Selection{})
	k.onInsert = func() {
		if err := os.WriteFile(filepath.Join(dir, "artifacts/d/a"), []byte("two"), 0o644); err != nil {
			t.Error(err)
		}
	}
	if err := p.Materialize(t.Context(), func(string) {}, func(string) {}); err != nil {
		t.Fatal(err)
	}
	k.onInsert = nil
	if row := k.row(t, "artifact", "@local/~/p/d"); row.Value("digest") != nil || row.Value("inputs") != nil {
		t.Errorf("a file changed while it was written, and the ledger claims %v", row)
	}
	if err := os.WriteFile(filepath.Join(dir, "artifacts/d/a"), []byte("one"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, lines := k.write(t, dir, bundle.Selection{}); lines[0] != "artifacts/d: v2 (what it was made of is not known)" {
		t.Error(lines[0])
	}
}

func TestLocksWait(t *testing.T) {
	k := newKit(t)
	dir := k.files(t, "p", map[string]string{"artifacts/d/a": "x", "tasks/t.json": "[" + vm + "," + load("d") + "]"})
	p := k.plan(t, dir, bundle.Selection{})
	done := make(chan error, 1)
	waiting := make(chan string, 8)
	release := lock(t, k.state, "@local/~/p/d")
	go func() {
		done <- p.Materialize(t.Context(), func(l string) { waiting <- l }, func(string) {})
	}()
	if l := <-waiting; !strings.Contains(l, "waiting for another run") {
		t.Errorf("said %q", l)
	}
	select {
	case err := <-done:
		t.Fatalf("did not wait: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestCheck(t *testing.T) {
	k := newKit(t)
	ok := k.parse(t, k.files(t, "ok", map[string]string{"artifacts/d/a": "x", "tasks/t.json": "[" + vm + "," + load("d", "elsewhere") + "]"}))
	if err := bundle.Check(t.Context(), k.registry, ok); err != nil {
		t.Error("a reference to a store must not be looked up: ", err)
	}
	bad := k.parse(t, k.files(t, "bad", rich))
	wantProblems(t, bundle.Check(t.Context(), k.registry, bad), "artifacts/unused: artifact.toml: unknown key 'nonsense'")
	if _, err := os.Stat(k.state); err == nil {
		t.Error("a check made the state folder")
	}
}
