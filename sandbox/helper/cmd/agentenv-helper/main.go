// Command agentenv-helper is the small static program that agent-env brings into containers: process 1 ("init"), and one
// request a run on its standard streams ("serve"; see package wire). It needs nothing in the image. On a machine itself it
// ends the commands of an agent-env that died ("watch"), or, without cgroups, stands between agent-env and a command ("guard").
//
//go:build linux

package main

import (
	"encoding/json"
	"os"
	"runtime"
	"syscall"

	"agentenv/sandbox/helper/wire"
)

func init() {
	runtime.LockOSThread() // main stays on the thread whose name others see as this process's
}

func main() {
	mode := ""
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	switch mode {
	case "init":
		os.Exit(runInit(os.Args[2:]))
	case "serve":
		os.Exit(serve())
	case "guard":
		os.Exit(guard(os.Args[2:]))
	case "watch":
		os.Exit(watch(os.Args[2:]))
	case "drain":
		drain()
	default:
		os.Stderr.WriteString("usage: agentenv-helper init [-end] -- [COMMAND [ARGUMENT...]] | serve | guard PATH ARGUMENT... | watch CGROUP FILE\n")
		os.Exit(2)
	}
}

// serve answers the one request that comes on standard input.
func serve() int {
	in, out := wire.NewReader(os.Stdin), wire.NewWriter(os.Stdout)
	t, b, err := in.Next()
	if err != nil {
		return 1
	}
	var q wire.Request
	if err = json.Unmarshal(b, &q); err != nil || t != wire.Ask {
		out.SendJSON(wire.Failed, wire.Failure{Kind: "internal", Msg: "the helper got an unreadable request"})
		return 1
	}
	// Everything made here gets exactly the mode it is given.
	syscall.Umask(umaskFor(q.Mode))
	switch q.Mode {
	case wire.ModeExec:
		err = execute(q, in, out)
	case wire.ModeKill:
		err = kill(q, out)
	case wire.ModePack, wire.ModeList:
		err = send(q, in, out)
	case wire.ModeUnpack:
		err = unpack(q, in, out)
	case wire.ModeAside:
		err = aside(q, in, out)
	case wire.ModeLook:
		err = look(q, out)
	case wire.ModeStatus:
		err = status(out)
	default:
		err = &wire.Failure{Kind: "unsupported", Msg: "the helper does not know the request " + string(q.Mode)}
	}
	if err != nil {
		out.SendJSON(wire.Failed, wire.Fail(err))
		return 1
	}
	return 0
}

func umaskFor(m wire.Mode) int {
	if m == wire.ModeUnpack || m == wire.ModeAside {
		return 0
	}
	return 0o022
}
