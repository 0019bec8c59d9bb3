package code

import "strings"

// listener is a stream that is thrown away but for one word, which calls heard once. It is used by one goroutine at a time.
type listener struct {
	word  string
	heard func()
	tail  string // the end of what came, which may be the beginning of the word
	done  bool
}

// Write never fails.
func (l *listener) Write(b []byte) (int, error) {
	if l.done {
		return len(b), nil
	}
	text := l.tail + string(b)
	if strings.Contains(text, l.word) {
		l.done = true
		l.heard()
	}
	l.tail = text[max(0, len(text)-len(l.word)):]
	return len(b), nil
}
