package config

import "strings"

// ratio is the Ratcliff/Obershelp similarity of two texts: twice the matching characters over all characters.
func ratio(a, b string) float64 {
	x, y := []rune(a), []rune(b)
	if len(x)+len(y) == 0 {
		return 1
	}
	return 2 * float64(matches(x, y)) / float64(len(x)+len(y))
}

// matches counts the characters of the longest common run and, on either side of it, of those that follow.
func matches(a, b []rune) int {
	at, bt, n := longest(a, b)
	if n == 0 {
		return 0
	}
	return n + matches(a[:at], b[:bt]) + matches(a[at+n:], b[bt+n:])
}

// longest finds the longest common run, the earliest of several.
func longest(a, b []rune) (at, bt, n int) {
	before := make([]int, len(b)+1)
	for i, x := range a {
		now := make([]int, len(b)+1)
		for j, y := range b {
			if x == y {
				if now[j+1] = before[j] + 1; now[j+1] > n {
					n = now[j+1]
					at, bt = i-n+1, j-n+1
				}
			}
		}
		before = now
	}
	return at, bt, n
}

const (
	nearEnough    = 0.75
	pluginsEnough = 0.85
	longestKey    = 64 // beyond it a key is no misspelling of ours, and comparing costs too much
)

// nearest returns the candidate most like the written name, "" when none is alike enough.
func nearest(written string, candidates []string) string {
	if len(written) > longestKey {
		return ""
	}
	best, score := "", 0.0
	for _, c := range candidates {
		if r := ratio(folded(written), folded(c)); r >= nearEnough && r > score {
			best, score = c, r
		}
	}
	return best
}

func folded(s string) string { return strings.ReplaceAll(strings.ToLower(s), "-", "_") }
