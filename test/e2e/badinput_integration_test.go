//go:build integration

package e2e_test

import (
	"context"
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/client"

	"agentenv/test/kit"
)

// engineState describes the engine for a comparison before and after: the containers with the user's mark, and the images of a bundle, whose name no other
// test may use: they build images at the same time.
func (k *user) engineState(bundle string) string {
	k.T.Helper()
	r, err := docker(k.T).Client().ImageList(k.T.Context(), client.ImageListOptions{})
	if err != nil {
		k.T.Fatal(err)
	}
	var out []string
	for _, i := range r.Items {
		out = append(out, i.RepoTags...)
	}
	out = slices.DeleteFunc(out, func(tag string) bool { return !strings.HasPrefix(tag, "local/"+bundle+"-") })
	slices.Sort(out)
	return strings.Join(append(k.containers(), out...), "\n")
}

// TestBadBundles runs bundles that cannot be run: one line says where, what and what to do; nothing is written, nothing deployed.
func TestBadBundles(t *testing.T) {
	const vm = `{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm"}`
	for name, c := range map[string]struct {
		task  string
		more  kit.Files
		args  []string
		env   string
		wants []string // in the one line
	}{
		"broken JSON":      {task: "[{\"id\": \"a\",\n  \"type\" \"x\"}]", wants: []string{"tasks/t.json", "JSON", "line 2", "column 1"}},
		"JSON ends":        {task: `[` + vm, wants: []string{"tasks/t.json", "JSON", "line 1"}},
		"no list":          {task: `{"steps": []}`, wants: []string{"tasks/t.json", "no steps"}},
		"no steps":         {task: `[]`, wants: []string{"tasks/t.json", "no steps", "at least one"}},
		"broken TOML":      {task: `[` + vm + `]`, more: kit.Files{"artifacts/a/artifact.toml": "type = \"file\nid = 3", "artifacts/a/x": ""}, args: []string{"check"}, wants: []string{"artifacts/a/artifact.toml", "TOML", "line 1", "column"}},
		"unknown type":     {task: `[{"id":"a","type":"deploy_sandbxo"}]`, wants: []string{"tasks/t.json", "'a'", "deploy_sandbxo", "not a known step type"}},
		"no type":          {task: `[{"id":"a"}]`, wants: []string{"tasks/t.json", "a", "type", "missing"}},
		"no id":            {task: `[{"type":"deploy_sandbox"}]`, wants: []string{"tasks/t.json", "id", "missing"}},
		"missing field":    {task: `[{"id":"a","type":"deploy_sandbox","sandbox_mode":"vm"}]`, wants: []string{"tasks/t.json", "'a'", `"sandbox_name"`, "missing"}},
		"mistyped field":   {task: `[{"id":"a","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"vm","cpu":"two"}]`, wants: []string{"tasks/t.json", "'a'", `"cpu"`, "number"}},
		"no such mode":     {task: `[{"id":"a","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"vmm"}]`, wants: []string{"tasks/t.json", "'a'", "sandbox_mode", "container"}},
		"duplicate ids":    {task: `[` + vm + `,` + vm + `]`, wants: []string{"tasks/t.json", `"box"`, "position 1", "unique"}},
		"forward edge":     {task: `[{"id":"a","type":"deploy_sandbox","sandbox_name":"a","sandbox_mode":"vm","depends_on":["box"]},` + vm + `]`, wants: []string{"tasks/t.json", `"a"`, `"box"`, "depends on", "move it up"}},
		"edge to nothing":  {task: `[{"id":"a","type":"deploy_sandbox","sandbox_name":"a","sandbox_mode":"vm","depends_on":["zz"]}]`, wants: []string{"tasks/t.json", "'a'", "depends_on", "'zz'"}},
		"no such artifact": {task: `[` + vm + `,{"id":"l","type":"load_artifact","sandbox_name":"box","artifact_id":"team/none"}]`, wants: []string{"tasks/t.json", "'l'", "artifact_id", "'team/none'", "store"}},
		"no image":         {task: `[{"id":"a","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"container","port":80}]`, wants: []string{"tasks/t.json", "'a'", "`image`"}},
		"no port":          {task: `[{"id":"a","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"container","image":"x"}]`, wants: []string{"tasks/t.json", "'a'", "`port`"}},
		"port too large":   {task: `[{"id":"a","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"container","image":"x","port":99999}]`, wants: []string{"tasks/t.json", "'a'", "port", "65535"}},
		"no engine": {task: `[{"id":"a","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"container","image":"x","port":80}]`, env: "DOCKER_HOST=unix:///nowhere/docker.sock",
			wants: []string{"tasks/t.json", "'a'", "no Docker Engine answers at unix:///nowhere/docker.sock", "DOCKER_HOST", "start it"}},
		"no engine for docker": {task: `[{"id":"a","type":"deploy_sandbox","sandbox_name":"b","sandbox_mode":"container","image":"x","port":80,"sandbox_type":"docker"}]`, env: "DOCKER_HOST=unix:///nowhere/docker.sock",
			wants: []string{"tasks/t.json", "'a'", "no Docker Engine answers at unix:///nowhere/docker.sock", "DOCKER_HOST", "start it"}},
		"vm on docker": {task: `[` + vm + `]`, args: []string{"--sandbox", "docker"}, wants: []string{"tasks/t.json", "'box'", "docker", "--sandbox local"}},
		"a step to come": {task: `[` + vm + `,{"id":"p","type":"run_container_unit_tests_verifier","sandbox_name":"box","container_name":"c","command":"true"}]`,
			wants: []string{"tasks/t.json", "'p'", "run_container_unit_tests_verifier", "not supported yet"}},
		"retry":            {task: `[{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","retry_config":{"max_attempts":2}}]`, wants: []string{"tasks/t.json", `"box"`, "retry_config", "retry_from_step_id", "missing"}},
		"agent option":     {task: `[` + vm + `]`, args: []string{"--agent", "claude"}, wants: []string{"--agent", "'claude' would take nobody's place"}},
		"load into an env": {task: `[` + vm + `,{"id":"l","type":"load_artifact","env_id":"x","artifact_id":"a"}]`, more: kit.Files{"artifacts/a/x": "x"}, wants: []string{"tasks/t.json", "'l'", "env", "not supported yet"}},
		"no such task":     {task: `[` + vm + `]`, args: []string{"--task", "zz"}, wants: []string{"--task", "'zz'", "'t'"}},
		"no such provider": {task: `[` + vm + `]`, args: []string{"--sandbox", "modal"}, wants: []string{`"modal"`, "docker, local"}},
		"link out":         {task: `[` + vm + `,{"id":"l","type":"load_artifact","sandbox_name":"box","artifact_id":"a"}]`, more: kit.Files{"artifacts/a/x": "->/etc/passwd"}, wants: []string{"artifacts/a", "/etc/passwd", "outside the bundle"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			k.ok("run", "hello") // there is something that could be harmed
			if c.env != "" {
				k.Env = []string{c.env}
			}
			dir := filepath.Join(k.Home, "badinput")
			kit.Write(t, dir, kit.Files{"tasks/t.json": c.task})
			kit.Write(t, dir, c.more)
			before, engine := k.everything(), k.engineState("badinput")
			args := append([]string{"run", dir}, c.args...)
			if len(c.args) > 0 && c.args[0] == "check" {
				args = []string{"bundle", "check", dir}
			}
			r := k.run(args...)
			if r.Code != 1 || r.Stdout != "" {
				t.Error(r)
			}
			k.oneLine(r.Stderr, c.wants...)
			if after := k.everything(); after != before {
				t.Errorf("something changed:\n%s", cmp.Diff(strings.Split(before, "\n"), strings.Split(after, "\n")))
			}
			if after := k.engineState("badinput"); c.env == "" && after != engine {
				t.Errorf("the engine changed:\n%s\n---\n%s", engine, after)
			}
		})
	}
}

// everything describes all that a run may write on this machine.
func (k *user) everything() string {
	return strings.Join([]string{prints(k.T, k.State), prints(k.T, k.Home), prints(k.T, k.Sandboxes), prints(k.T, k.Tmp)}, "\n")
}

// oneLine checks that a text is a single error line that says what is wanted.
func (k *user) oneLine(text string, wants ...string) {
	k.T.Helper()
	if !strings.HasPrefix(text, "Error: ") || strings.Count(text, "\n") != 1 || len(text) > 800 {
		k.T.Errorf("not one line of a sensible length:\n%s", text)
	}
	for _, w := range wants {
		if !strings.Contains(text, w) {
			k.T.Errorf("%q is not in %s", w, text)
		}
	}
}

// TestImageThatCannotBePulled fails the one step, in one line, and leaves nothing.
func TestImageThatCannotBePulled(t *testing.T) {
	for _, provider := range providers {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			s, r := k.summed(k.bundle("pull", steps{box("localhost:1/no/such:1")}, nil), "--sandbox", provider)
			if r.Code != 1 || len(s.Tasks[0].Failures) != 1 {
				t.Fatal(r)
			}
			f := s.Tasks[0].Failures[0]
			for _, w := range []string{`"box"`, "localhost:1/no/such:1", "cannot be pulled", "check the name"} {
				if !strings.Contains(f.Error, w) || strings.Contains(f.Error, "\n") {
					t.Errorf("%q is not in one line %q", w, f.Error)
				}
			}
			if f.Class != "RuntimeError" || s.Tasks[0].Class != "infrastructure" && s.Tasks[0].Class != "configuration" {
				t.Errorf("class %s, %s", f.Class, s.Tasks[0].Class)
			}
			if left := k.leftovers(); left != "" {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// TestBadConfig runs with configuration files that cannot be used.
func TestBadConfig(t *testing.T) {
	for name, c := range map[string]struct {
		text  string
		wants []string
	}{
		"broken":        {"[artifacts]\naliases = {\n", []string{"config.toml", "TOML", "line"}},
		"mistyped":      {"[plugins.agent-env]\nmax_sandboxes = \"many\"\n", []string{"config.toml", "max_sandboxes"}},
		"no such store": {"[stores.document]\nimpl = \"nowhere:Nothing\"\n", []string{"nowhere:Nothing", "document"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := newUser(t)
			file := filepath.Join(k.Dir, "config.toml")
			if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}
			k.Env = []string{"AGENT_ENV_CONFIG=" + file}
			r := k.run("run", "hello")
			if r.Code != 1 {
				t.Error(r)
			}
			k.oneLine(r.Stderr, c.wants...)
			if !absent(k.State) {
				t.Errorf("the state folder was made:\n%s", prints(t, k.State))
			}
		})
	}
}

// TestNoWritePermission runs as another user on a state folder that is not theirs.
func TestNoWritePermission(t *testing.T) {
	k := newUser(t)
	if err := os.MkdirAll(k.State, 0o755); err != nil {
		t.Fatal(err)
	}
	for d := k.State; d != "/"; d = filepath.Dir(d) {
		info, err := os.Stat(d)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o005 != 0o005 {
			if err := os.Chmod(d, info.Mode().Perm()|0o055); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Chmod(k.Tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	before := prints(t, k.State)
	cmd := exec.CommandContext(t.Context(), "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", program, "run", "hello")
	cmd.Dir, cmd.Env = "/", k.Environ()
	r := kit.Finish(t, cmd)
	if r.Code != 1 {
		t.Error(r)
	}
	k.oneLine(r.Stderr, k.State, "permission denied")
	if after := prints(t, k.State); after != before {
		t.Errorf("the state folder changed:\n%s", after)
	}
}

// TestLockedDatabase has another process hold the database: the program waits, and goes on when the lock is let go, or says so.
func TestLockedDatabase(t *testing.T) {
	lock := func(k *user) (release func()) {
		db, err := sql.Open("sqlite", "file:"+filepath.Join(k.State, "document_store", "local.db"))
		if err != nil {
			t.Fatal(err)
		}
		conn, err := db.Conn(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.ExecContext(context.Background(), "BEGIN IMMEDIATE"); err != nil {
			t.Fatal(err)
		}
		return func() {
			_, _ = conn.ExecContext(context.Background(), "ROLLBACK")
			conn.Close()
			db.Close()
		}
	}
	t.Run("let go", func(t *testing.T) {
		t.Parallel()
		k := newUser(t)
		k.ok("run", "hello")
		release := lock(k)
		p := k.start("run", "hello")
		defer p.kill()
		time.Sleep(1500 * time.Millisecond)
		release()
		if code := p.wait(); code != 0 {
			t.Errorf("exit code %d\n%s", code, p.text())
		}
	})
	t.Run("held", func(t *testing.T) {
		t.Parallel()
		k := newUser(t)
		k.ok("run", "hello")
		defer lock(k)()
		dir := k.bundle("wait", steps{host("box")}, nil)
		begin := time.Now()
		r := k.run("run", dir)
		if took := time.Since(begin); r.Code != 1 || took < 3*time.Second || took > 60*time.Second {
			t.Errorf("it took %s: %s", took, r)
		}
		k.oneLine(r.Stderr, "local.db", "lock")
		if left := k.leftovers(); left != "" {
			t.Errorf("left behind: %s", left)
		}
	})
}
