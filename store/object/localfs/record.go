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

// text renders the record as it is stored.
func (r record) text() []byte {
	if r.ContentType == defaultType {
		r.ContentType = ""
	}
	text, _ := json.Marshal(r) // two texts and two numbers
	return text
}

// writeRecord replaces the record of the object at p. When it fails there is none: the type is unknown then, which is no
// reason to fail a write whose bytes are in place.
func (w *writer) writeRecord(p string, r record) {
	st, err := w.newStaged()
	if err == nil {
		defer st.discard()
		if _, err = st.f.Write(r.text()); err == nil {
			err = st.f.Chmod(fileMode)
		}
	}
	if err != nil {
		os.Remove(w.s.recordPath(p))
		return
	}
	st.moved = w.placeRecord(st.f.Name(), p)
}

// placeRecord moves a written record to the object at p and reports whether it could; when not, there is none.
func (w *writer) placeRecord(staged, p string) bool {
	meta := w.s.recordPath(p)
	dir := filepath.Dir(meta)
	if !w.made[dir] {
		if os.MkdirAll(dir, 0o777) != nil {
			return false
		}
		w.made[dir] = true
	}
	if os.Rename(staged, meta) != nil {
		os.Remove(meta)
		return false
	}
	w.changed[dir] = true
	return true
}
