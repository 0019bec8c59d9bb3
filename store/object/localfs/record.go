package localfs

import (
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// record is what is kept beside an object. The reference reads content_type and object; without a content type, as for
// objects of the default type, it takes the type as unknown, and so do we.
type record struct {
	ContentType string   `json:"content_type,omitempty"`
	Object      [2]int64 `json:"object"` // size and modification time in nanoseconds of the file it describes
	SHA256      string   `json:"sha256,omitempty"`
}

// maxRecord bounds what is read of a record.
const maxRecord = 64 << 10

func (r *record) describes(info fs.FileInfo) bool {
	return r != nil && r.Object == [2]int64{info.Size(), info.ModTime().UnixNano()}
}

func (s *Store) recordPath(p string) string {
	return filepath.Join(s.root, metaDir, strings.TrimPrefix(p, s.root))
}

// readRecord returns nil for a record that is missing or malformed.
func (s *Store) readRecord(p string) *record {
	f, err := os.OpenFile(s.recordPath(p), os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRecord+1))
	if err != nil || len(text) > maxRecord {
		return nil
	}
	return parseRecord(text)
}

func parseRecord(text []byte) *record {
	var r struct {
		ContentType string  `json:"content_type"`
		Object      []int64 `json:"object"`
		SHA256      string  `json:"sha256"`
	}
	if json.Unmarshal(text, &r) != nil || len(r.Object) != 2 {
		return nil
	}
	return &record{ContentType: r.ContentType, Object: [2]int64{r.Object[0], r.Object[1]}, SHA256: r.SHA256}
}

// writeRecord replaces the record of the object at p; its failure leaves none.
func (b *batch) writeRecord(p string, r record) {
	if r.ContentType == defaultType {
		r.ContentType = ""
	}
	meta := b.s.recordPath(p)
	text, err := json.Marshal(r)
	if err != nil {
		return
	}
	dir := filepath.Dir(meta)
	if !b.made[dir] {
		if os.MkdirAll(dir, 0o777) != nil {
			return
		}
		b.made[dir] = true
	}
	st, err := b.newStaged()
	if err != nil {
		os.Remove(meta)
		return
	}
	defer st.discard()
	if _, err := st.f.Write(text); err != nil {
		os.Remove(meta)
		return
	}
	if os.Rename(st.f.Name(), meta) != nil {
		os.Remove(meta)
		return
	}
	st.moved = true
	b.dirs[dir] = true
}
