package bundle

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// fold makes two names equal that differ only in case or Unicode form.
func fold(s string) string { return norm.NFC.String(cases.Fold().String(norm.NFC.String(s))) }

// printable writes a name for a one-line message: what is invisible, breaks lines or is no UTF-8 is escaped.
func printable(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co) || r == 0xFFFE || r == 0xFFFF:
			if r > 0xFFFF {
				fmt.Fprintf(&b, `\U%08x`, r)
			} else {
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// maxShown is how many characters of a value that somebody wrote are shown in a message.
const maxShown = 80

// shown quotes a value that somebody wrote, cut to a length that fits a line.
func shown(s string) string {
	if utf8.RuneCountInString(s) > maxShown {
		s = string([]rune(s)[:maxShown]) + "…"
	}
	return "'" + printable(s) + "'"
}

// quoteAll lists values for a message.
func quoteAll(values []string) string {
	out := make([]string, len(values))
	for i, v := range values {
		out[i] = shown(v)
	}
	return strings.Join(out, ", ")
}
