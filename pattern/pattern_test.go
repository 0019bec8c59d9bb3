package pattern

import (
	"strings"
	"testing"
	"time"
)

func TestPatternsReadAsPythonReadsThem(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		found         bool
	}{
		{"", "anything", true}, {"hello", "say hello", true}, {"^b", "a\nb", false}, {"(?m)^b", "a\nb", true}, {"(?i)HELLO", "hello", true},
		{`(?<=a)b`, "ab", true}, {`(a)\1`, "aa", true}, {`(?P<x>a)(?P=x)`, "aa", true}, {`(?P<x>a)(?P=x)`, "ab", false},
		{`a\Z`, "a\n", false}, {`a$`, "a\n", true}, {`a{,2}b`, "aab", true}, {`^a{,2}b`, "aaab", false}, {`[a-z-[b]]`, "b]", true}, {`[]x]`, "]", true},
		{`[^]x]`, "]", false}, {`[\]]`, "]", true}, {`\d+`, "a12", true}, {`(?s)a.b`, "a\nb", true}, {`a.b`, "a\nb", false}, {"é", "caf\u00e9", true},
		// escapes
		{`\_`, "_", true}, {`\é`, "é", true}, {`\"`, `"`, true}, {`\U000000e9`, "é", true}, {`\u00e9`, "é", true}, {`\x6c`, "l", true}, {`\07`, "\a", true},
		{`\101`, "A", true}, {`\N{DIGIT ONE}`, "1", true}, {`[\N{digit one}]`, "1", true}, {`[\b]`, "\b", true}, {`\U0001d7d9`, "𝟙", true},
		// flags
		{`(?a)\w`, "é", false}, {`\w`, "é", true}, {`(?ai)K`, "\u212a", false}, {`(?i)k`, "\u212a", true}, {`(?ai)K`, "k", true}, {`(?i)ı`, "I", true},
		{`(?i:L)i`, "li", true}, {`(?i:L)i`, "lI", false}, {`(?i-s:A.)`, "a\n", false}, {`(?-i:L)`, "l", false}, {`(?x)l i # n`, "li", true}, {`(?i)(?m)^B`, "a\nb", true},
		{`(?i)[à-é]`, "É", true}, {`(?i)[^k]`, "K", false}, {`(?i)(l)\1`, "lL", true}, {`(?#c)(?i)L`, "l", true}, {`(?t)a`, "a", true},
		// quantifiers
		{`l++i`, "lli", true}, {`l++l`, "lll", false}, {`l?+i`, "li", true}, {`o{1}+`, "o", true}, {`(?:a|b)++r`, "abar", true}, {`o{,}`, "", true}, {`^o{,}$`, "ooo", true},
		{`a{1`, "a{1", true}, {`{`, "{", true}, {`x{}`, "x{}", true}, {`(?=a)*`, "", true}, {`(?:^)*a`, "ba", true}, {`(x*)*y`, "xxy", true},
		// classes
		{`[^\W]`, "é", true}, {`[^\W\d]`, "1", false}, {`[\W\d]`, "1", true}, {`[\d-]`, "-", true}, {`[a&&b]`, "&", true}, {`\s`, "\x1c", true}, {`[^\d\D]`, "a", false},
		// positions
		{`\Bb`, "ab", true}, {`\B`, "", false}, {`\bé`, "é", true}, {`(?a)\bé`, "é", false}, {`(?m)1$`, "1\n2", true}, {`1$`, "1\n2", false},
		// groups
		{`(?P<a>l)(?(a)i|z)`, "li", true}, {`(l)?(?(1)i|z)`, "z", true}, {`(?>l|li)ne`, "line", false}, {`(?<=(l))i`, "li", true}, {`(?<!ab)c`, "abc", false},
		{`(?!)`, "a", false}, {`(((((((((((l)))))))))))\11`, "ll", true}, {`(?:(a)|l)\1`, "l", false},
	} {
		re, err := Compile(c.pattern)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		if found, err := re.MatchString(c.text); err != nil || found != c.found {
			t.Errorf("%q in %q: %t, %v", c.pattern, c.text, found, err)
		}
	}
}

func TestPatternsPythonRefuses(t *testing.T) {
	for pattern, want := range map[string]string{
		`(`: "missing ), unterminated subpattern at position 0", "a\n)": "unbalanced parenthesis at position 2 (line 2, column 1)",
		`\p{L}`: `bad escape \p at position 0`, `\P{L}`: `bad escape \P`, `\z`: `bad escape \z`, `\G`: `bad escape \G`, `a\`: "bad escape (end of pattern)",
		`(?<n>l)`: "unknown extension ?<n", `(?'n'l)`: "unknown extension ?'", `(?n)a`: "unknown extension ?n", `[\w-z]`: `bad character range \w-z at position 1`,
		`(?<=.*)x`: "look-behind requires fixed-width pattern", `(?<=a|bc)d`: "fixed-width", `(?P<n>l)(?P<n>i)`: "redefinition of group name 'n' as group 2; was group 1",
		`a(?i)`: "global flags not at the start of the expression", `|(?i)a`: "not at the start", `^*`: "nothing to repeat at position 1", `$*`: "nothing to repeat",
		`\b*`: "nothing to repeat", `^?l`: "nothing to repeat", `a**`: "multiple repeat at position 2", `a{2}{2}`: "multiple repeat", `a{3,1}`: "min repeat greater than max repeat",
		`a{4294967295}`: "too large", `\1`: "invalid group reference 1 at position 1", `(\1)`: "cannot refer to an open group", `(l)(?(2)i)`: "invalid group reference 2",
		`(?P=x)`: "unknown group name 'x'", `(?P<1a>l)`: "bad character in group name", `[z-a]`: "bad character range z-a", `[a`: "unterminated character set",
		`\x1`: `incomplete escape \x1`, `\U00110000`: "bad escape", `\N{NOPE}`: "undefined character name 'NOPE'", `\400`: "outside of range", `(?L)a`: "'L' flag",
		`(?au)a`: "incompatible", `(?a)(?u)a`: "incompatible", `(?i-i:a)`: "flag turned on and off", `(?#open`: "unterminated comment", `(a)(?(1)b|c|d)`: "more than two branches",
		`(?<=(l)\1)`: "same lookbehind subpattern", strings.Repeat("(", 5000): "nested too deeply",
	} {
		if _, err := Compile(pattern); err == nil || !strings.Contains(Reason(err), want) {
			t.Errorf("%.50s: %v, want %q", pattern, err, want)
		}
	}
}

func FuzzPattern(f *testing.F) {
	for _, s := range []string{"a|b", "(?P<n>x)[]a]", `\Z{,3}`, "[^]"} {
		f.Add(s)
	}
	f.Fuzz(func(_ *testing.T, pattern string) {
		if re, err := Compile(pattern); err == nil {
			re.MatchTimeout = 50 * time.Millisecond
			_, _ = re.MatchString("some text\nwith lines")
		}
	})
}

func TestFlagsByName(t *testing.T) {
	for _, c := range []struct {
		pattern, text string
		flags         []string
		found         bool
	}{
		{"A.b", "a\nB", []string{"IGNORECASE", "S"}, true}, {"a.b", "a\nb", nil, false}, {"^b", "a\nb", []string{"M"}, true}, {"a b", "ab", []string{"VERBOSE"}, true},
		{`\w`, "é", []string{"ASCII"}, false}, {`(?i)A.`, "a\n", []string{"DOTALL", "UNICODE"}, true},
	} {
		re, err := CompileWith(c.pattern, c.flags...)
		if err != nil {
			t.Errorf("%s: %v", c.pattern, err)
			continue
		}
		if found, err := re.MatchString(c.text); err != nil || found != c.found {
			t.Errorf("%q %v in %q: %t, %v", c.pattern, c.flags, c.text, found, err)
		}
	}
	if _, err := CompileWith("a", "LOUD"); err == nil || !strings.Contains(Reason(err), "LOUD") {
		t.Error(err)
	}
}
