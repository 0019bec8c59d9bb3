package files

import (
	"context"
	"strings"

	"agentenv/sandbox/place"
)

// recheck asks for the sizes of collected files again: one that grew or shrank since was not collected as it is. It runs
// beside the storing of the last bytes and of the documents.
type recheck struct {
	place place.Place
	items []item
	sizes map[string]int64 // path in the place → size as read; complete before start

	cancel  context.CancelFunc
	done    chan struct{}
	changed []changedFile
	err     error
}

// changedFile is a file that is no longer what was read.
type changedFile struct{ at, reason string }

// start begins to look, once; the sizes must not change any more.
func (c *recheck) start(ctx context.Context) {
	if c.done != nil {
		return
	}
	ctx, c.cancel = context.WithCancel(ctx)
	c.done = make(chan struct{})
	go func() {
		defer close(c.done)
		c.err = c.look(ctx)
	}()
}

// wait returns what has changed.
func (c *recheck) wait() ([]changedFile, error) {
	if c.done == nil {
		return nil, nil
	}
	<-c.done
	return c.changed, c.err
}

// stop ends the look and waits for it; after wait it is a no-op.
func (c *recheck) stop() {
	if c.done != nil {
		c.cancel()
		<-c.done
	}
}

func (c *recheck) look(ctx context.Context) error {
	for _, it := range c.items {
		if _, isFile := c.sizes[it.source]; isFile {
			if err := c.one(ctx, it.source); err != nil {
				return err
			}
			continue
		}
		under := strings.TrimRight(it.source, "/") + "/"
		switch below := c.below(under); len(below) {
		case 0:
		case 1:
			// Where the place cannot list without reading everything, this spares a second pass over a large file.
			if err := c.one(ctx, below[0]); err != nil {
				return err
			}
		default:
			for e, err := range c.place.Walk(ctx, it.source, false) {
				if err != nil {
					return err
				}
				c.compare(under+e.Name, e, e.Err)
			}
		}
	}
	return nil
}

func (c *recheck) one(ctx context.Context, at string) error {
	e, err := c.place.Stat(ctx, at, true)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c.compare(at, e, err)
	return nil
}

func (c *recheck) compare(at string, now place.Entry, err error) {
	was, read := c.sizes[at]
	switch {
	case !read:
	case err != nil:
		c.changed = append(c.changed, changedFile{at, "it was gone after it was read: " + err.Error()})
	case now.Size != was:
		c.changed = append(c.changed, changedFile{at, sizeChanged(was, now.Size)})
	}
}

// below returns up to two of the files that were read below a folder.
func (c *recheck) below(under string) (some []string) {
	for at := range c.sizes {
		if strings.HasPrefix(at, under) {
			if some = append(some, at); len(some) == 2 {
				break
			}
		}
	}
	return some
}
