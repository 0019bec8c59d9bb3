package local

import (
	"slices"
	"strings"
	"testing"

	"agentenv/fault"
)

func TestMapArgv(t *testing.T) {
	const d = "/w/app/box"
	for _, c := range []struct{ in, want []string }{
		{[]string{"ls", "/app", "/app/x", "/app:ro", "/application", "/home/a/app"}, []string{"ls", d, d + "/x", d + ":ro", "/application", "/home/a/app"}},
		{[]string{"docker", "exec", "-w", "/app", "c"}, []string{"docker", "exec", "-w", "/app", "c"}},
		{[]string{"bash", "-c", "sudo docker exec c ls /app"}, []string{"bash", "-c", "sudo docker exec c ls /app"}},
		{[]string{"docker", "cp", "/app/x", "c:/app/y"}, []string{"docker", "cp", d + "/x", "c:/app/y"}},
		{[]string{"sh", "-c", "cd /app && ls '/app/x' >/app;echo ~/app ${HOME}/app $(pwd)/app $APP/app /app2 x/app a-/app"},
			[]string{"sh", "-c", "cd " + d + " && ls '" + d + "/x' >" + d + ";echo ~/app ${HOME}/app $(pwd)/app $APP/app /app2 x/app a-/app"}},
	} {
		if got := mapArgv(c.in, d); !slices.Equal(got, c.want) {
			t.Errorf("%q\n gave %q\n want %q", c.in, got, c.want)
		}
	}
}

func TestWithoutSudo(t *testing.T) {
	for in, want := range map[string]string{
		"echo sudo x sudo": "echo sudo x sudo", "sudo ls -l": "ls -l", "sudo -n -u root -- ls -u": "ls -u", "sudo -E env": "env",
		"sudo A=b ls": "env A=b ls", "sudo": "",
	} {
		if got := strings.Join(withoutSudo(strings.Fields(in)), " "); got != want {
			t.Errorf("%s: %q, want %q", in, got, want)
		}
	}
}

func FuzzMapScript(f *testing.F) {
	f.Add("ls /app/x")
	f.Add("/app/app:/app")
	f.Fuzz(func(t *testing.T, s string) {
		if got := restore(mapScript(s, "/w/d"), "/w/d"); !strings.Contains(s, "/w/d") && got != s {
			t.Errorf("%q came back as %q", s, got)
		}
	})
}

func FuzzParsePorts(f *testing.F) {
	f.Add([]byte(`{"80":20001}`))
	f.Add([]byte(`{"x":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, _ := parsePorts(b)
		for k, v := range m {
			if k < 1 || k > 65535 || v < 1 || v > 65535 {
				t.Errorf("%q gives %d: %d", b, k, v)
			}
		}
	})
}

func TestDrawPorts(t *testing.T) {
	state := t.TempDir()
	seen := map[int]bool{}
	results := make(chan []int)
	for range 10 {
		go func() {
			p, err := drawPorts(t.Context(), state, 20)
			if err != nil {
				t.Error(err)
			}
			results <- p
		}()
	}
	for range 10 {
		for _, p := range <-results {
			if seen[p] || p < firstPort || p > lastPort {
				t.Errorf("port %d is drawn twice or out of range", p)
			}
			seen[p] = true
		}
	}
	if _, err := draw(t.Context(), state, 1, func(int) (bool, error) { return false, nil }); !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), "from 20000 to 29999 is in use") {
		t.Errorf("a full range: %v", err)
	}
	tried := 0
	one, err := draw(t.Context(), t.TempDir(), 1, func(int) (bool, error) { tried++; return tried == portRange, nil })
	if err != nil || len(one) != 1 || tried != portRange {
		t.Errorf("the last free port: %v after %d, %v", one, tried, err)
	}
	for text, want := range map[string]int{"20005\n": 20006, "29999": firstPort, "5": firstPort} {
		if got := nextPort(text); got != want {
			t.Errorf("after %q: %d, want %d", text, got, want)
		}
	}
	for _, text := range []string{"", "garbage", "-3"} {
		if got := nextPort(text); got < firstPort || got > lastPort {
			t.Errorf("after %q: %d", text, got)
		}
	}
}
