package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"agentenv/fault"
	"agentenv/sandbox/helper"
)

// Where the helper is in containers that this package makes, and the labels of what holds it.
const (
	helperDir    = "/.agentenv"
	helperName   = "helper"
	helperPath   = helperDir + "/" + helperName
	LabelManaged = "agentenv.managed"
	LabelHelper  = "agentenv.helper"
)

var helperTime = time.Unix(1_700_000_000, 0)

type helperState struct {
	mu       sync.Mutex
	program  []byte
	digest   string
	verified bool
}

// binary returns the helper for this engine.
func (e *Engine) binary() ([]byte, string, error) {
	h := &e.helper
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.program == nil {
		p, d, err := helper.Binary(e.arch)
		if err != nil {
			return nil, "", err
		}
		h.program, h.digest = p, d
	}
	return h.program, h.digest, nil
}

// HelperVolume returns the name of the volume that holds this version of the helper on this engine.
func (e *Engine) HelperVolume() (string, error) {
	_, digest, err := e.binary()
	if err != nil {
		return "", err
	}
	return "agentenv-helper-" + digest[:12], nil
}

func (e *Engine) helperMount(readOnly bool) (mount.Mount, error) {
	name, err := e.HelperVolume()
	return mount.Mount{Type: mount.TypeVolume, Source: name, Target: helperDir, ReadOnly: readOnly, VolumeOptions: &mount.VolumeOptions{
		NoCopy: true, Labels: map[string]string{LabelManaged: "true", LabelHelper: "true"},
	}}, err
}

// checkHelper makes sure that the helper volume mounted into the created container id is filled. The first caller on an engine
// fills it; the engine-wide unique name of the filling container is the lock between processes.
func (e *Engine) checkHelper(ctx context.Context, id, image string) error {
	program, _, err := e.binary()
	if err != nil {
		return err
	}
	e.helper.mu.Lock()
	done := e.helper.verified
	e.helper.mu.Unlock()
	if done || e.helperThere(ctx, id, len(program)) {
		e.markHelper(true)
		return nil
	}
	if err := e.fillHelper(ctx, id, image, program); err != nil {
		return err
	}
	e.markHelper(true)
	return nil
}

func (e *Engine) markHelper(ok bool) {
	e.helper.mu.Lock()
	e.helper.verified = ok
	e.helper.mu.Unlock()
}

// helperThere compares size, mode and time, which the engine sets only after a whole write.
func (e *Engine) helperThere(ctx context.Context, id string, size int) bool {
	return e.helperAt(ctx, id, helperPath, size)
}

func (e *Engine) helperAt(ctx context.Context, id, at string, size int) bool {
	r, err := e.cli.ContainerStatPath(ctx, id, client.ContainerStatPathOptions{Path: at})
	return err == nil && r.Stat.Size == int64(size) && r.Stat.Mode.Perm() == 0o755 && r.Stat.Mtime.Equal(helperTime)
}

const fillPatience = 30 * time.Second

func (e *Engine) fillHelper(ctx context.Context, id, image string, program []byte) error {
	volume, err := e.HelperVolume()
	if err != nil {
		return err
	}
	m, err := e.helperMount(false)
	if err != nil {
		return err
	}
	name := volume + "-filling"
	var filler string
	for start := time.Now(); ; {
		r, err := e.cli.ContainerCreate(ctx, client.ContainerCreateOptions{Name: name,
			Config:     &container.Config{Image: image, Entrypoint: []string{helperPath}, Labels: map[string]string{LabelManaged: "true", LabelHelper: "true"}},
			HostConfig: &container.HostConfig{Mounts: []mount.Mount{m}, NetworkMode: "none"}})
		if err == nil {
			filler = r.ID
			break
		}
		if !errdefs.IsConflict(err) {
			return wrap(ctx, err, "make the container that fills the volume %s", volume)
		}
		if e.helperThere(ctx, id, len(program)) {
			return nil
		}
		if time.Since(start) > fillPatience { // its maker died
			if err := e.Remove(ctx, name); err != nil {
				return err
			}
			start = time.Now()
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return fault.At(err, "wait for the volume %s to be filled", volume)
		}
	}
	defer func() {
		clean, stop := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer stop()
		if err := e.Remove(clean, filler); err != nil {
			e.log.Warn("a container is left behind", "container", name, "error", err)
		}
	}()
	if e.helperThere(ctx, filler, len(program)) {
		return nil
	}
	if err := e.putHelper(ctx, filler, helperDir, helperName, program); err != nil {
		return err
	}
	return e.verifyHelper(ctx, filler, helperPath, program)
}

func (e *Engine) putHelper(ctx context.Context, id, dir, name string, program []byte) error {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	err := tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o755, Size: int64(len(program)), ModTime: helperTime})
	if err == nil {
		_, err = tw.Write(program)
	}
	if err == nil {
		err = tw.Close()
	}
	if err != nil {
		return err
	}
	_, err = e.cli.CopyToContainer(ctx, id, client.CopyToContainerOptions{DestinationPath: dir, Content: &b})
	return wrap(ctx, err, "bring the helper into container %s", id[:min(12, len(id))])
}

func (e *Engine) verifyHelper(ctx context.Context, id, at string, program []byte) error {
	r, err := e.cli.CopyFromContainer(ctx, id, client.CopyFromContainerOptions{SourcePath: at})
	if err != nil {
		return wrap(ctx, err, "read the helper back from container %s", id)
	}
	defer r.Content.Close()
	tr := tar.NewReader(r.Content)
	h := sha256.New()
	if _, err = tr.Next(); err == nil {
		_, err = io.Copy(h, tr)
	}
	want := sha256.Sum256(program)
	if err == nil && hex.EncodeToString(h.Sum(nil)) != hex.EncodeToString(want[:]) {
		err = fault.New(fault.Unavailable, "its bytes differ from what was written; is the engine's disk full?")
	}
	return wrap(ctx, err, "read the helper back from container %s", id)
}
