package engine

import (
	"context"
	"errors"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// Sweep removes the networks and images that carry the label ("key=value"), and returns what could not be removed; one in
// use is left. Doing it twice is no error.
func (e *Engine) Sweep(ctx context.Context, label string) error {
	want := make(client.Filters).Add("label", label)
	var errs []error
	networks, err := e.cli.NetworkList(ctx, client.NetworkListOptions{Filters: want})
	errs = append(errs, wrap(ctx, err, "list networks"))
	for _, n := range networks.Items {
		if !hasLabels(n.Labels, []string{label}) {
			continue
		}
		if _, err := e.cli.NetworkRemove(ctx, n.ID, client.NetworkRemoveOptions{}); !errdefs.IsNotFound(err) {
			errs = append(errs, wrap(ctx, err, "remove network %s", n.Name))
		}
	}
	images, err := e.cli.ImageList(ctx, client.ImageListOptions{Filters: want})
	errs = append(errs, wrap(ctx, err, "list images"))
	for _, i := range images.Items {
		if !hasLabels(i.Labels, []string{label}) {
			continue
		}
		if _, err := e.cli.ImageRemove(ctx, i.ID, client.ImageRemoveOptions{Force: true, PruneChildren: true}); !errdefs.IsNotFound(err) {
			errs = append(errs, wrap(ctx, err, "remove image %s", i.ID))
		}
	}
	return errors.Join(errs...)
}
