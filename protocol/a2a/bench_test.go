package a2a_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"agentenv/protocol/a2a"
)

// BenchmarkTurn compares one turn on the wire, from the message to its end, with a plain HTTP request that answers as much.
func BenchmarkTurn(b *testing.B) {
	agent := a2a.Agent{Identity: identity(), Extensions: []a2a.Extension{a2a.Trajectory(true)}, Stream: func(_ context.Context, r *a2a.Request, _ a2a.Emit) (a2a.Result, error) {
		if err := r.Trajectory.SetFormat("f"); err != nil {
			return a2a.Result{}, err
		}
		return a2a.Result{Parts: []a2a.Part{a2a.Text("Echo: " + r.Text())}}, r.Trajectory.Append(map[string]any{"type": "echo"})
	}}
	server, err := a2a.New(b.Context(), agent, a2a.Settings{StagingMaxBytes: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = server.Close(context.Background()) }()
	plain := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	var n atomic.Int64
	for _, c := range []struct {
		name, method string
		handler      http.Handler
	}{{"plain", "", plain}, {"send", "message/send", server.Handler()}, {"stream", "message/stream", server.Handler()}} {
		b.Run(c.name, func(b *testing.B) {
			h := httptest.NewServer(c.handler)
			defer h.Close()
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 200}}
			defer client.CloseIdleConnections()
			b.SetParallelism(100)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					body := fmt.Sprintf(`{"jsonrpc":"2.0","id":"1","method":%q,"params":%s}`, c.method, sending{id: fmt.Sprint("b", n.Add(1)), text: "hi"}.params())
					r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, h.URL+"/a2a", strings.NewReader(body))
					if err != nil {
						b.Error(err)
						return
					}
					res, err := client.Do(r)
					if err != nil {
						b.Error(err)
						return
					}
					text, err := io.ReadAll(res.Body)
					_ = res.Body.Close()
					if err != nil || c.method != "" && !strings.Contains(string(text), "Echo: hi") {
						b.Errorf("%v %s", err, text)
						return
					}
				}
			})
		})
	}
}
