package local

import (
	"path/filepath"
	"regexp"
	"strings"
)

const app = "/app"

var inContainer = regexp.MustCompile(`^\s*(sudo\s+)?docker\s+exec\b`)

// mapArg puts the work folder in place of a leading /app.
func mapArg(arg, dir string) string {
	if arg == app || strings.HasPrefix(arg, app+"/") || strings.HasPrefix(arg, app+":") {
		return dir + arg[len(app):]
	}
	return arg
}

// mapArgv maps each argument, and the script of a shell. What runs inside a container stays as it is.
func mapArgv(argv []string, dir string) []string {
	if len(argv) >= 2 && argv[0] == "docker" && argv[1] == "exec" {
		return argv
	}
	script := -1
	if len(argv) >= 3 && argv[1] == "-c" {
		if base := filepath.Base(argv[0]); base == "bash" || base == "sh" {
			if script = 2; inContainer.MatchString(argv[2]) {
				return argv
			}
		}
	}
	out := make([]string, len(argv))
	for i, a := range argv {
		if i == script {
			out[i] = mapScript(a, dir)
		} else {
			out[i] = mapArg(a, dir)
		}
	}
	return out
}

// mapScript replaces every /app that stands by itself: not the end of a longer path or expansion, not the beginning of a
// longer name.
func mapScript(s, dir string) string {
	return replaceWhole(s, app, dir, func(before byte) bool {
		return before >= 'A' && before <= 'Z' || before >= 'a' && before <= 'z' || before >= '0' && before <= '9' || strings.IndexByte("._/~})$-", before) >= 0
	})
}

// restore puts /app back where output names the work folder.
func restore(s, dir string) string {
	return replaceWhole(s, dir, app, func(byte) bool { return false })
}

func replaceWhole(s, old, with string, joined func(byte) bool) string {
	var w strings.Builder
	for from := 0; ; {
		i := strings.Index(s[from:], old)
		if i < 0 {
			w.WriteString(s[from:])
			return w.String()
		}
		i += from
		end := i + len(old)
		w.WriteString(s[from:i])
		if (i == 0 || !joined(s[i-1])) && (end == len(s) || strings.IndexByte("/: \t\n\r\v\f'\";)&|", s[end]) >= 0) {
			w.WriteString(with)
		} else {
			w.WriteString(old)
		}
		from = end
	}
}

// withoutSudo drops a leading sudo and its flags: commands here run as this process's user.
func withoutSudo(argv []string) []string {
	if len(argv) == 0 || argv[0] != "sudo" {
		return argv
	}
	rest := argv[1:]
	for len(rest) > 0 && strings.HasPrefix(rest[0], "-") {
		flag := rest[0]
		rest = rest[1:]
		if flag == "--" {
			break
		}
		// Of the flags of one letter these take a value, in the next argument unless it is joined on.
		if len(flag) == 2 && strings.IndexByte("ugCDhpRrtTU", flag[1]) >= 0 && len(rest) > 0 {
			rest = rest[1:]
		}
	}
	for len(rest) > 0 && strings.Contains(rest[0], "=") && !strings.HasPrefix(rest[0], "/") {
		return append([]string{"env"}, rest...) // sudo NAME=value command
	}
	return rest
}
