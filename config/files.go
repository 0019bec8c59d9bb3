package config

import "agentenv/store/doc"

// ReadFile reads a small regular file that people write: at most 8 MiB, and it never waits on a pipe. The error is the reason
// alone, without the path.
func ReadFile(path string) ([]byte, error) { return readBytes(path) }

// ParseTOML reads TOML text into a document that keeps the order of the file's keys; dates and times become ISO text. A leading
// byte order mark is dropped. The error is Invalid and gives line and column.
func ParseTOML(text []byte) (*doc.Object, error) {
	o, err := parse(text)
	if err != nil {
		return nil, err
	}
	return plain(o).(*doc.Object), nil
}
