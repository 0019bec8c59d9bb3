package engine

import (
	"context"
	"maps"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"agentenv/fault"
)

// MakeNetwork makes a network of containers that find each other by name; a name that is taken is an Exists error.
func (e *Engine) MakeNetwork(ctx context.Context, name string, labels map[string]string) error {
	taken := fault.New(fault.Exists, "network name %s is taken", name)
	// Engines before API 1.44 make two networks of one name.
	if _, err := e.cli.NetworkInspect(ctx, name, client.NetworkInspectOptions{}); err == nil {
		return taken
	} else if !errdefs.IsNotFound(err) {
		return wrap(ctx, err, "look for network %s", name)
	}
	all := map[string]string{LabelManaged: "true"}
	maps.Copy(all, labels)
	_, err := e.cli.NetworkCreate(ctx, name, client.NetworkCreateOptions{Driver: "bridge", Labels: all})
	if err != nil && (errdefs.IsConflict(err) || strings.Contains(err.Error(), "already exists")) {
		return taken
	}
	return wrap(ctx, err, "create network %s", name)
}

// RemoveNetwork removes a network, by id or name; one that is gone is done, one in use a Conflict error.
func (e *Engine) RemoveNetwork(ctx context.Context, ref string) error {
	_, err := e.cli.NetworkRemove(ctx, ref, client.NetworkRemoveOptions{})
	if err == nil || errdefs.IsNotFound(err) {
		return nil
	}
	return wrap(ctx, err, "remove network %s", ref)
}

// Networks returns the networks that carry every given label.
func (e *Engine) Networks(ctx context.Context, labels ...string) ([]Summary, error) {
	r, err := e.cli.NetworkList(ctx, client.NetworkListOptions{Filters: make(client.Filters).Add("label", labels...)})
	if err != nil {
		return nil, wrap(ctx, err, "list networks")
	}
	var out []Summary
	for _, n := range r.Items {
		if hasLabels(n.Labels, labels) {
			out = append(out, Summary{ID: n.ID, Name: n.Name, Labels: n.Labels, State: "present", CreatedAt: n.Created})
		}
	}
	return out, nil
}
