package agents

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// TestMasking takes values out of a stream wherever they lie, also across the pieces it comes in.
func TestMasking(t *testing.T) {
	t.Parallel()
	const secret = "sk-0123456789"
	for _, before := range []int{0, 1, 64<<10 - 13, 64<<10 - 5, 64 << 10, 200_000} {
		text := strings.Repeat("x", before) + secret + "y" + secret
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text))} {
			m := secrets{"other-value", secret}.reader(r)
			got, err := io.ReadAll(m)
			if want := strings.Repeat("x", before) + "***y***"; err != nil || string(got) != want || !m.found {
				t.Errorf("%s, %d before: %d bytes, %v", name, before, len(got), err)
			}
		}
	}
	m := secrets{secret}.reader(strings.NewReader(secret[:len(secret)-1]))
	if got, err := io.ReadAll(m); err != nil || string(got) != secret[:len(secret)-1] || m.found {
		t.Errorf("%q, %v", got, err)
	}
}
