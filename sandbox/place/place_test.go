package place_test

import (
	"testing"
	"unicode/utf8"

	"agentenv/fault"
	"agentenv/sandbox/place"
)

func FuzzCheckName(f *testing.F) {
	for _, s := range []string{"a", "../a", "a/..", `a\..\b`, "/", "", ".", "a/./b", "..."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		err := place.CheckName(name)
		if err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", name, err)
		}
		if err == nil && (name == "" || name[0] == '/' || name == "..") {
			t.Errorf("%q is let through", name)
		}
	})
}

func FuzzText(f *testing.F) {
	f.Add([]byte("a\xffb"), 2)
	f.Add([]byte("日本"), 4)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if !utf8.ValidString(place.Text(b)) || n >= 0 && !utf8.ValidString(place.Last(string(b), n)) {
			t.Errorf("%q gives text that is not UTF-8", b)
		}
	})
}

func TestTail(t *testing.T) {
	for _, step := range []int{1, 3, 7, 100} {
		tail := &place.Tail{Most: 10}
		all := []byte("abcdefghijklmnopqrstuvwxyz0123456789")
		for i := 0; i < len(all); i += step {
			tail.Write(all[i:min(i+step, len(all))])
		}
		if got, cut := tail.Bytes(); string(got) != "0123456789" || cut != 26 {
			t.Errorf("in steps of %d: %q, cut %d", step, got, cut)
		}
	}
}

func TestCheckCmd(t *testing.T) {
	for name, c := range map[string]place.Cmd{
		"empty": {}, "both": {Argv: []string{"a"}, Script: "b"}, "nul": {Argv: []string{"a\x00"}}, "folder": {Script: "x", Dir: "rel"},
		"env": {Script: "x", Env: map[string]string{"A=B": ""}}, "no name": {Argv: []string{""}},
	} {
		if err := place.CheckCmd(c); !fault.Is(err, fault.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
