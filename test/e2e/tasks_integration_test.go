//go:build integration

package e2e_test

import (
	"os"
	"strings"

	"agentenv/test/kit"
)

// inspectScript is a run_code script: it describes every file below a folder as [kind, uid, gid, mode, sha256].
const inspectScript = `import hashlib, os, stat

def run(input):
    root = input["args"]["folder"]
    out = {"uid": os.getuid(), "files": {}}
    for here, folders, names in os.walk(root):
        for n in folders + names:
            p = os.path.join(here, n)
            s = os.lstat(p)
            digest = ""
            if stat.S_ISREG(s.st_mode):
                with open(p, "rb") as f:
                    digest = hashlib.sha256(f.read()).hexdigest()
            out["files"][os.path.relpath(p, root)] = [s.st_uid, s.st_gid, oct(s.st_mode & 0o7777), digest]
    with open(os.path.join(root, "made inside.bin"), "wb") as f:
        f.write(bytes(range(256)))
    return out
`

// box is a deploy step of a container.
func box(image string) map[string]any {
	return map[string]any{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "container", "image": image, "port": 8080}
}

// host is a deploy step of a bare machine.
func host(name string) map[string]any {
	return map[string]any{"id": name, "type": "deploy_sandbox", "sandbox_name": name, "sandbox_mode": "vm", "sandbox_type": "local"}
}

func load(id, sandbox, artifact, into string) map[string]any {
	return map[string]any{"id": id, "type": "load_artifact", "sandbox_name": sandbox, "artifact_id": artifact, "destination_path": into}
}

func collect(id, sandbox, base string, paths ...string) map[string]any {
	s := map[string]any{"id": id, "type": "collect_artifacts", "sandbox_name": sandbox, "base_path": base, "universe_id_suffix": "-" + id}
	if len(paths) > 0 {
		s["artifact_paths"] = paths
	}
	return s
}

func verify(id, sandbox, base string, criteria ...map[string]any) map[string]any {
	return map[string]any{"id": id, "type": "verify_sandbox", "sandbox_name": sandbox, "base_dir": base, "verifier_id": id, "criteria": criteria}
}

func code(id, sandbox, script string, args map[string]any) map[string]any {
	return map[string]any{"id": id, "type": "run_code", "sandbox_name": sandbox, "script_artifact_id": script, "args": args}
}

func is(path ...string) map[string]any {
	return map[string]any{"type": "probe_file_exists", "paths": path}
}

func dirIs(path ...string) map[string]any {
	return map[string]any{"type": "probe_dir_exists", "paths": path}
}

func contains(path, pattern string) map[string]any {
	return map[string]any{"type": "probe_file_contains", "paths": []string{path}, "expected": pattern}
}

func sh(line string) map[string]any {
	return map[string]any{"type": "bash_cmd_succeeds", "bash_cmd": line}
}

// odd is a set of files that is hard to move whole.
func odd() kit.Files {
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	return kit.Files{
		"a.txt":                     "hello\n",
		"deep/er/still/b.json":      "{\"x\": 1}\n",
		"empty":                     "",
		"bytes.bin":                 string(all),
		"with space/and 'quote\".x": "q",
		"-dash":                     "-",
		"--help":                    "h",
		"ünïcode/☃ naïve.txt":       "snow",
		"run.sh":                    "+x#!/bin/sh\necho ran\n",
		"dots..txt":                 "d",
		".hidden/.file":             "hidden",
		"$(touch x)`y`;z":           "shell",
		"star*?[a]":                 "glob",
		strings.Repeat("n", 255):    "long",
		".gitignore":                "*\n",
		".dockerignore":             "*\n",
		"big.bin":                   strings.Repeat(string(all), 4096),
	}
}

func absent(path string) bool {
	_, err := os.Lstat(path)
	return os.IsNotExist(err)
}
