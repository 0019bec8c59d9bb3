package store

import (
	"strings"

	"golang.org/x/text/unicode/norm"
)

// maxNear is how many names are suggested for one that is not known.
const maxNear = 3

// Near returns up to three of the known names, in their order, that are nearest to name: one letter off or, for want of those and in names of
// four letters or more, two. Case does not count.
func Near(name string, known []string) []string {
	like := func(s string) string { return strings.ToLower(norm.NFC.String(s)) }
	wanted := like(name)
	most := 2
	if len([]rune(wanted)) < 4 {
		most = 1
	}
	for off := 1; off <= most; off++ {
		var out []string
		for _, k := range known {
			if len(out) < maxNear && distance(wanted, like(k), off) <= off {
				out = append(out, k)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	return nil
}

// distance is the number of edits between two words, given up above most.
func distance(a, b string, most int) int {
	x, y := []rune(a), []rune(b)
	if len(x)-len(y) > most || len(y)-len(x) > most {
		return most + 1
	}
	row := make([]int, len(y)+1)
	for j := range row {
		row[j] = j
	}
	for i, r := range x {
		last := row[0]
		row[0] = i + 1
		for j, q := range y {
			cost := 1
			if r == q {
				cost = 0
			}
			last, row[j+1] = row[j+1], min(last+cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(y)]
}
