package bundle

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"agentenv/config"
)

func isReadme(name string) bool { return fold(name) == "readme.md" || fold(name) == "readme" }

// description returns the first line of text of the bundle's README, "" when there is none to read. Further spellings of the
// name are reported as ignored.
func description(dir string, entries []os.DirEntry, ignored *[]string) string {
	var names []string
	for _, e := range entries {
		if isReadme(e.Name()) {
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return ""
	}
	sort.Slice(names, func(i, j int) bool { return names[i] == "README.md" || names[j] != "README.md" && names[i] < names[j] })
	*ignored = append(*ignored, names[1:]...)
	text, err := config.ReadFile(filepath.Join(dir, names[0]))
	if err != nil {
		return ""
	}
	return firstText(text)
}

// firstText finds the first line that says something: no front matter, HTML, badge or picture.
func firstText(text []byte) string {
	lines := bufio.NewScanner(bytes.NewReader(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))))
	lines.Buffer(nil, len(text)+1)
	front := false
	for n := 0; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "---" && (n == 0 || front) {
			front = !front
			continue
		}
		if front {
			continue
		}
		line = strings.TrimSpace(strings.TrimLeft(line, "#"))
		if line == "" || strings.HasPrefix(line, "<") || strings.HasPrefix(line, "[![") || strings.HasPrefix(line, "![") {
			continue
		}
		return printable(line)
	}
	return ""
}
