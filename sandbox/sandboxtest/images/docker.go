package images

import (
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"agentenv/sandbox/engine"
)

// What the stand-in of a Docker Engine does.
const (
	Serves = "serve" // it answers
	Deaf   = "deaf"  // it runs and answers nobody
	Ends   = "ends"  // it ends at once
)

// Docker ensures an image that stands in for docker:dind-rootless, whose engine does one of Serves, Deaf and Ends, and returns its tag. Its
// docker command knows version alone. It needs the Go toolchain.
func Docker(ctx context.Context, e *engine.Engine, does string) (string, error) {
	changes := []string{"USER 1000", "VOLUME /home/rootless", "ENV PATH=/bin", `ENTRYPOINT ["/bin/docker"]`, `CMD ["` + does + `"]`}
	return ensure(ctx, e, "agentenv-test/docker-"+does+":1", changes, func(dir string) (io.ReadCloser, error) {
		file := filepath.Join(dir, "standin")
		cmd := exec.CommandContext(ctx, "go", "build", "-o", file, "agentenv/sandbox/sandboxtest/images/standin")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+e.Arch())
		if err := output(cmd); err != nil {
			return nil, err
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		return archive([]entry{{name: "bin/docker", mode: 0o755, body: b}})
	})
}
