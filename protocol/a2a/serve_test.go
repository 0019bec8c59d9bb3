package a2a_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"agentenv/fault"
	"agentenv/protocol/a2a"
	"agentenv/protocol/card"
)

func TestServeEndsWithItsContext(t *testing.T) {
	t.Parallel()
	server, err := a2a.New(t.Context(), stepping(make(chan struct{})), a2a.Settings{StagingDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(ctx, l, patience) }()
	p := &peer{t: t, url: "http://" + l.Addr().String(), client: &http.Client{Transport: &http.Transport{}}}
	defer p.client.CloseIdleConnections()
	events := p.stream("message/stream", sending{text: "x"}.params(), func(e object) {
		if e.text("metadata", "step") == "1" {
			stop()
		}
	})
	if got := kinds(events); got[len(got)-1] != "status-update canceled!" {
		t.Errorf("the stream was cut off: %v", got)
	}
	p.client.CloseIdleConnections()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("it goes on")
	}
}

func TestMainSaysWhyItCannotListen(t *testing.T) {
	t.Parallel()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = a2a.Main(t.Context(), answering(), a2a.Settings{Host: "127.0.0.1", Port: l.Addr().(*net.TCPAddr).Port, StagingMaxBytes: -1})
	if !fault.Is(err, fault.Unavailable) || !strings.Contains(err.Error(), l.Addr().String()) {
		t.Error(err)
	}
}

func TestAnImageWithoutATemporaryFolder(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()+"/none")
	log := &syncBuffer{}
	server, err := a2a.New(t.Context(), answering(), a2a.Settings{Log: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close(t.Context())
	if of, err := server.Card(); err != nil || of.Extension(card.Staging) != nil || !strings.Contains(log.String(), "AGENTENV_STAGING_DIR") {
		t.Errorf("%v %v %s", of, err, log)
	}
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := a2a.New(t.Context(), answering(), a2a.Settings{StagingDir: file}); err == nil {
		t.Error("a folder that was asked for and cannot be had is passed over")
	}
}
