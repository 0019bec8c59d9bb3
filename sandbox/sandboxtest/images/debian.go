package images

import (
	"context"
	"io"
	"os"
	"path/filepath"
)

const rootTar = "debian-bookworm-python3-1.tar" // in the cache folder; the number goes up with the recipe

// debian returns the tar stream of a Debian root with python3, from the cache or made anew below dir.
func debian(ctx context.Context, dir string) (io.ReadCloser, error) {
	cache, err := cacheDir()
	if err != nil {
		return nil, err
	}
	kept := filepath.Join(cache, rootTar)
	if f, err := os.Open(kept); err == nil {
		return f, nil
	}
	root := filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return nil, err
	}
	// The package manager syncs each file; in memory that costs nothing.
	defer inMemory(root)()
	if err := run(ctx, "debootstrap", "--variant=minbase", "--include=python3", "bookworm", root); err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(root, "secret"), 0o700); err != nil {
		return nil, err
	}
	part := kept + ".part"
	defer os.Remove(part)
	err = run(ctx, "tar", "-C", root, "--exclude=./var/cache/apt/*", "--exclude=./var/lib/apt/lists/*", "--exclude=./usr/share/doc/*",
		"--exclude=./usr/share/man/*", "--exclude=./usr/share/locale/*", "-cf", part, ".")
	if err != nil {
		return nil, err
	}
	if err := os.Rename(part, kept); err != nil {
		return nil, err
	}
	return os.Open(kept)
}

func cacheDir() (string, error) {
	dir := os.Getenv("AGENT_ENV_TEST_CACHE")
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(user, "agent-env-test")
	}
	return dir, os.MkdirAll(dir, 0o755)
}
