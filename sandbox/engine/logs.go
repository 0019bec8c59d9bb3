package engine

import (
	"bytes"
	"context"
	"io"
	"strconv"

	"github.com/moby/moby/api/pkg/stdcopy"
	"github.com/moby/moby/client"
)

// maxLogs bounds what is read of a container's output.
const maxLogs = 4 << 20

// Logs returns the last lines of what the container's command wrote, running or not, by stream; at most 4 MiB of both together.
func (c *Container) Logs(ctx context.Context, lines int) (stdout, stderr []byte, err error) {
	r, err := c.e.cli.ContainerLogs(ctx, c.info.ID, client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Tail: strconv.Itoa(lines)})
	if err != nil {
		return nil, nil, wrap(ctx, err, "read the output of %s", c)
	}
	defer r.Close()
	var out, errs bytes.Buffer
	if c.info.Config != nil && c.info.Config.Tty {
		_, err = io.Copy(&out, io.LimitReader(r, maxLogs))
	} else {
		_, err = stdcopy.StdCopy(&out, &errs, io.LimitReader(r, maxLogs))
	}
	if err != nil && out.Len()+errs.Len() == 0 {
		return nil, nil, wrap(ctx, err, "read the output of %s", c)
	}
	return out.Bytes(), errs.Bytes(), nil
}
