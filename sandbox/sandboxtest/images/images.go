// Package images makes the container images that tests run on, from nothing: no registry is asked. Each is made once and kept
// on the engine under its tag; parallel test programs wait for one another.
package images

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"agentenv/examples"
	"agentenv/fault"
	"agentenv/sandbox/engine"
)

// The tags of the images.
const (
	DebianTag  = "agentenv-test/debian:bookworm-2"
	BusyBoxTag = "agentenv-test/busybox:1"
	ScratchTag = "agentenv-test/scratch:1"
	VolumeTag  = "agentenv-test/volume:1"
)

// Debian ensures a Debian image with bash and a full python3, USER nobody and a folder /secret of root with mode 700, and
// returns its tag. It needs root and debootstrap on this machine. What debootstrap made is kept as a tarball in the folder
// that AGENT_ENV_TEST_CACHE names (default: agent-env-test in the user's cache folder), so that a removed image is back soon.
func Debian(ctx context.Context, e *engine.Engine) (string, error) {
	return ensure(ctx, e, DebianTag, []string{"USER nobody", `CMD ["sleep","infinity"]`}, func(dir string) (io.ReadCloser, error) {
		return debian(ctx, dir)
	})
}

// PythonSlim ensures that the engine holds an image named examples.BaseImage, and returns that name. One that is there is
// left as it is; else it is Debian's content with python3 as its command, as root.
func PythonSlim(ctx context.Context, e *engine.Engine) (string, error) {
	if _, err := e.Image(ctx, examples.BaseImage); err == nil || !fault.Is(err, fault.NotFound) {
		return examples.BaseImage, err
	}
	from, err := Debian(ctx, e)
	if err != nil {
		return "", err
	}
	unlock, err := lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	c, err := e.Client().ContainerCreate(ctx, client.ContainerCreateOptions{Config: &container.Config{Image: from}})
	if err != nil {
		return "", fmt.Errorf("make the test image %s: %w", examples.BaseImage, err)
	}
	defer e.Remove(context.WithoutCancel(ctx), c.ID)
	_, err = e.Client().ContainerCommit(ctx, c.ID, client.ContainerCommitOptions{Reference: examples.BaseImage, Changes: []string{"USER root", `CMD ["python3"]`}})
	if err != nil {
		return "", fmt.Errorf("make the test image %s: %w", examples.BaseImage, err)
	}
	return examples.BaseImage, nil
}

// BusyBox ensures an image with BusyBox alone and its usual names in /bin, USER nobody and /secret like Debian's. It needs
// a static busybox on this machine.
func BusyBox(ctx context.Context, e *engine.Engine) (string, error) {
	return ensure(ctx, e, BusyBoxTag, []string{"USER nobody", "ENV PATH=/bin", `CMD ["sleep","100000"]`}, func(string) (io.ReadCloser, error) {
		return busybox()
	})
}

// Volume ensures BusyBox's image with VOLUME /data, as root.
func Volume(ctx context.Context, e *engine.Engine) (string, error) {
	return ensure(ctx, e, VolumeTag, []string{"VOLUME /data", "ENV PATH=/bin", `CMD ["sleep","100000"]`}, func(string) (io.ReadCloser, error) {
		return busybox()
	})
}

// Scratch ensures an image that holds one static program, /probe (its own subfolder says what it does), and nothing else: no
// shell, no users, no /tmp. It needs the Go toolchain.
func Scratch(ctx context.Context, e *engine.Engine) (string, error) {
	return ensure(ctx, e, ScratchTag, []string{"USER 65534:65534", `CMD ["/probe","sleep"]`}, func(dir string) (io.ReadCloser, error) {
		file := filepath.Join(dir, "probe")
		cmd := exec.CommandContext(ctx, "go", "build", "-o", file, "agentenv/sandbox/sandboxtest/images/probe")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+e.Arch())
		if err := output(cmd); err != nil {
			return nil, err
		}
		b, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		return archive([]entry{{name: "probe", mode: 0o755, body: b}, {name: "secret/", mode: 0o700}})
	})
}

func busybox() (io.ReadCloser, error) {
	at, err := exec.LookPath("busybox")
	if err != nil {
		return nil, fault.Wrap(fault.NotFound, err, "test images need a static busybox; install busybox-static")
	}
	b, err := os.ReadFile(at)
	if err != nil {
		return nil, err
	}
	list := []entry{{name: "bin/", mode: 0o755}, {name: "bin/busybox", mode: 0o755, body: b}, {name: "tmp/", mode: 0o1777},
		{name: "secret/", mode: 0o700}, {name: "etc/", mode: 0o755}, {name: "etc/passwd", mode: 0o644, body: []byte("root:x:0:0::/:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")},
		{name: "etc/group", mode: 0o644, body: []byte("root:x:0:\nnogroup:x:65534:\n")}, {name: "data/", mode: 0o755}}
	for _, n := range []string{"sh", "ls", "cat", "sleep", "id", "dd", "echo", "stat", "wc", "setsid", "kill", "ps", "touch", "env", "head", "true", "rm", "mkdir", "ln", "chmod", "printf", "sha256sum", "test", "nohup", "mkfifo", "mv", "tail", "cp"} {
		list = append(list, entry{name: "bin/" + n, link: "busybox"})
	}
	return archive(list)
}

type entry struct {
	name, link string
	mode       int64
	body       []byte
}

func archive(list []entry) (io.ReadCloser, error) {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for _, e := range list {
		h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(e.body)), Typeflag: tar.TypeReg}
		if e.name[len(e.name)-1] == '/' {
			h.Typeflag = tar.TypeDir
		} else if e.link != "" {
			h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, e.link, 0o777
		}
		if err := tw.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := tw.Write(e.body); err != nil {
			return nil, err
		}
	}
	return io.NopCloser(&b), tw.Close()
}

// ensure imports what content gives under tag unless the engine holds the tag.
func ensure(ctx context.Context, e *engine.Engine, tag string, changes []string, content func(dir string) (io.ReadCloser, error)) (string, error) {
	unlock, err := lock()
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := e.Image(ctx, tag); err == nil || !fault.Is(err, fault.NotFound) {
		return tag, err
	}
	dir, err := os.MkdirTemp("", "agentenv-image-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	r, err := content(dir)
	if err != nil {
		return "", fmt.Errorf("make the test image %s: %w", tag, err)
	}
	defer r.Close()
	resp, err := e.Client().ImageImport(ctx, client.ImageImportSource{Source: r, SourceName: "-"}, tag, client.ImageImportOptions{Changes: changes})
	if err != nil {
		return "", fmt.Errorf("import the test image %s: %w", tag, err)
	}
	defer resp.Close()
	if _, err := io.Copy(io.Discard, resp); err != nil {
		return "", err
	}
	_, err = e.Image(ctx, tag)
	return tag, err
}

// lock keeps other test programs on this machine from making the same image meanwhile.
func lock() (unlock func() error, err error) {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "agentenv-test-images.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return f.Close, nil
}

func run(ctx context.Context, argv ...string) error {
	return output(exec.CommandContext(ctx, argv[0], argv[1:]...))
}

func output(cmd *exec.Cmd) error {
	out, err := cmd.CombinedOutput()
	if err != nil {
		tail := out[max(0, len(out)-500):]
		return fmt.Errorf("%s: %w: %s", cmd.Args[0], err, tail)
	}
	return nil
}
