// Package house holds the tests that keep the shape of the tree.
package house

import (
	"os/exec"
	"strings"
	"testing"
)

const module = "agentenv/"

// rooms lists, for each room, the rooms it may import besides itself: arrows point down only.
var rooms = map[string]string{
	"fault":     "",
	"pattern":   "",
	"telemetry": "fault",
	"config":    "fault store/doc",
	"store":     "fault telemetry config protocol/transfer",
	"sandbox":   "fault telemetry store config examples", // examples: the name of the image that test images stand in for
	"artifact":  "fault telemetry store config",
	"task":      "fault telemetry store config",
	"protocol":  "fault pattern",
	"agent":     "fault telemetry store config sandbox artifact protocol",
	"env":       "fault telemetry store config sandbox artifact protocol",
	"steps":     "fault pattern telemetry store config task agent env artifact sandbox protocol",
	"runner":    "fault telemetry store config task sandbox",
	"episode":   "fault telemetry store config task runner sandbox",
	"bundle":    "fault telemetry store config task agent env artifact sandbox examples",
	"examples":  "",
	"cli":       "fault telemetry store config task agent env artifact sandbox bundle runner episode protocol",
	"cmd":       "fault telemetry store config task artifact sandbox bundle runner episode cli steps examples agent env protocol",
	"bench":     "fault telemetry store config task artifact agent sandbox steps protocol",
	"test":      "fault telemetry store config task agent env artifact sandbox bundle runner cli steps examples protocol",
}

// drivers are the packages that only cmd hands down: no room above imports them, and each imports only what its interface needs.
var drivers = map[string]string{
	"store/document/sqlite": "store",
	"store/object/localfs":  "store",
	"sandbox/local":         "sandbox",
	"sandbox/docker":        "sandbox",
}

func packages(t *testing.T) map[string][]string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-f", `{{.ImportPath}}:{{join .Imports " "}}`, "agentenv/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	pkgs := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		name, imports, _ := strings.Cut(strings.TrimSpace(line), ":")
		pkgs[strings.TrimPrefix(name, module)] = strings.Fields(imports)
	}
	return pkgs
}

func TestArrowsPointDown(t *testing.T) {
	for pkg, imports := range packages(t) {
		room, _, _ := strings.Cut(pkg, "/")
		allowed, known := rooms[room]
		if !known {
			t.Errorf("%s is in no room of the house; give %q its place in this table", pkg, room)
			continue
		}
		for _, imp := range imports {
			below, ours := strings.CutPrefix(imp, module)
			if !ours {
				continue
			}
			target, _, _ := strings.Cut(below, "/")
			if target == room || fits(allowed, below) {
				continue
			}
			t.Errorf("%s imports %s, which is not below it", pkg, below)
		}
	}
}

func fits(allowed, pkg string) bool {
	for _, a := range strings.Fields(allowed) {
		if pkg == a || strings.HasPrefix(pkg, a+"/") {
			return true
		}
	}
	return false
}

func TestOnlyMainHandsDriversDown(t *testing.T) {
	for pkg, imports := range packages(t) {
		room, _, _ := strings.Cut(pkg, "/")
		if room == "cmd" || room == "test" || room == "bench" {
			continue
		}
		for _, imp := range imports {
			below := strings.TrimPrefix(imp, module)
			home, isDriver := drivers[below]
			if isDriver && pkg != below {
				t.Errorf("%s imports the driver %s (of %s); only cmd hands drivers down", pkg, below, home)
			}
			if strings.HasPrefix(below, "steps/") && room != "steps" {
				t.Errorf("%s imports %s; only cmd imports steps", pkg, below)
			}
		}
	}
}
