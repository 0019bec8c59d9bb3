package code

import "testing"

func TestListenerHearsItsWord(t *testing.T) {
	for name, c := range map[string]struct {
		chunks []string
		times  int
	}{
		"alone": {[]string{"WORD"}, 1}, "in pieces": {[]string{"noise W", "O", "RD noise"}, 1}, "twice": {[]string{"WORD", "WORD"}, 1},
		"after a false start": {[]string{"WOR", "WOR", "D"}, 1}, "not there": {[]string{"WOR", " D", ""}, 0}, "nothing": {nil, 0},
	} {
		heard := 0
		l := &listener{word: "WORD", heard: func() { heard++ }}
		for _, chunk := range c.chunks {
			if n, err := l.Write([]byte(chunk)); n != len(chunk) || err != nil {
				t.Errorf("%s: %d, %v", name, n, err)
			}
		}
		if heard != c.times {
			t.Errorf("%s: heard %d times, want %d", name, heard, c.times)
		}
		if len(l.tail) > len(l.word) {
			t.Errorf("%s: %d bytes are kept", name, len(l.tail))
		}
	}
}
