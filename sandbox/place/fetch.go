package place

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"time"

	"agentenv/fault"
)

const (
	fetchRetries = 5
	fetchPause   = time.Second
	maxRedirects = 50
)

// Fetch downloads address with this process and puts it at the absolute path target in p, so that the place needs neither a
// network nor a tool. A failed attempt, an answer of 400 or more included, is repeated 5 times, 1 s apart. client nil is
// http.DefaultClient; progress (nil = none) is told the bytes downloaded in the attempt under way. The content is held in a
// temporary file meanwhile. Errors never show the query of the address, which may be signed.
func Fetch(ctx context.Context, p Place, address, target string, client *http.Client, progress func(int64)) (Placed, error) {
	if err := CheckPath(target); err != nil {
		return Placed{}, err
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return Placed{}, fault.New(fault.Invalid, "the address of the file for %s is no http or https URL", target)
	}
	if client == nil {
		client = http.DefaultClient
	}
	shown := (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
	f, err := os.CreateTemp("", "agentenv-fetch-")
	if err != nil {
		return Placed{}, fault.Wrap(fault.Unavailable, err, "hold %s", shown)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var n int64
	for try := 0; ; try++ {
		n, err = download(ctx, client, u, f, progress)
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			return Placed{}, fault.At(context.Cause(ctx), "download %s", shown)
		}
		if try == fetchRetries {
			return Placed{}, fault.Wrap(fault.Unavailable, err, "download %s: given up after %d attempts", shown, try+1)
		}
		t := time.NewTimer(fetchPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
		}
	}
	src := Source{Name: path.Base(target), Size: n, Body: func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(f, 0, n)), nil
	}}
	placed, err := Put(ctx, p, path.Dir(path.Clean(target)), []Source{src}, nil)
	if err != nil {
		return Placed{}, err
	}
	return placed[0], nil
}

func download(ctx context.Context, client *http.Client, u *url.URL, f *os.File, progress func(int64)) (int64, error) {
	if err := f.Truncate(0); err != nil {
		return 0, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return 0, bare(err)
	}
	// The bytes are kept as the server holds them; the transport would otherwise ask for gzip and undo it.
	req.Header.Set("Accept-Encoding", "identity")
	follow := *client
	if follow.CheckRedirect == nil {
		follow.CheckRedirect = func(_ *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("more than %d redirects", maxRedirects)
			}
			return nil
		}
	}
	resp, err := follow.Do(req)
	if err != nil {
		return 0, bare(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode >= 400 {
		return 0, fmt.Errorf("the server answers %s", resp.Status)
	}
	return io.Copy(f, &counted{r: resp.Body, told: progress})
}

// bare takes the address, whose query may be a secret, off an error of net/http.
func bare(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}

type counted struct {
	r    io.Reader
	n    int64
	told func(int64)
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.told != nil && n > 0 {
		c.told(c.n)
	}
	return n, err
}
