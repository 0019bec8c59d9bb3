package deploy

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"agentenv/artifact"
	"agentenv/fault"
	"agentenv/protocol/card"
	"agentenv/sandbox"
	"agentenv/sandbox/place"
)

// CardLabel is the label of an image that holds the card of its agent as JSON, so that the agent can be installed without being run first.
const CardLabel = "agentenv.a2a.card"

const (
	cardTime = 120 * time.Second
	maxCard  = 4 << 20
)

// readCard prints the card that an image's server module declares. What else the module prints goes elsewhere.
const readCard = `import json, sys
out, sys.stdout = sys.stdout, sys.stderr
sys.path.insert(0, "/app")
from a2a_server import AGENT_CARD as c
dump = getattr(c, "model_dump", None)
json.dump(dump(mode="json", by_alias=True, exclude_none=True) if dump else c, out)
`

// imageCard returns the card of the agent in an image: the one on its label, else the one that its server module declares, for which the image
// is run once on the host of m.
func imageCard(ctx context.Context, m sandbox.Machine, img Image) (*card.Card, error) {
	if text := img.Labels[CardLabel]; text != "" {
		c, err := card.Parse([]byte(text))
		return c, fault.At(err, "the label %s of the image %s", CardLabel, img.Name)
	}
	name := m.ScopedName("agent-card-" + artifact.RandomHex(4)) // several agents may be installed at once
	remove := func(ctx context.Context) error {
		_, err := m.Host().Exec(ctx, place.Cmd{Argv: []string{"docker", "rm", "-f", name}, Timeout: cardTime})
		return err
	}
	r, err := m.Host().Exec(ctx, place.Cmd{Argv: []string{"docker", "run", "--rm", "--name", name, "--label", sandbox.LabelManaged + "=true", "--label", sandbox.LabelSandbox + "=" + m.Info().ID,
		"--network", "none", "--entrypoint", "python3", img.Name, "-c", readCard}, Timeout: cardTime, Keep: maxCard})
	if err != nil {
		clean, stop := context.WithTimeout(context.WithoutCancel(ctx), cardTime)
		defer stop()
		if left := remove(clean); left != nil {
			err = fault.At(err, "the container %s could not be removed (%v)", name, left)
		}
		return nil, fault.At(err, "read the card of the agent in %s", img.Name)
	}
	if r.Code != 0 {
		return nil, fault.New(fault.Unsupported, "the agent in %s cannot be installed: the image has no label %s, and its python3 gives no AGENT_CARD of a module a2a_server (exit code %d): %s",
			img.Name, CardLabel, r.Code, place.Last(strings.TrimSpace(place.Text(r.Stderr)), outputShown))
	}
	c, err := card.Parse(r.Stdout)
	return c, fault.At(err, "AGENT_CARD in the image %s", img.Name)
}

// recipe is how an agent says it is installed.
type recipe struct {
	commands []string
	required []string
	port     int
}

// recipeOf reads the install extension of a card, for a container or for a host.
func recipeOf(c *card.Card, host bool) (*recipe, error) {
	e := c.Extension(card.Install)
	if e == nil {
		return nil, fault.New(fault.Unsupported, "its card offers no %s, so it cannot be installed; deploy it with deploy_agent", card.Install)
	}
	suffix := ""
	if host {
		suffix = "_host"
	}
	r := &recipe{}
	var err error
	if r.commands, err = textsOf(e.Params, "install_commands"+suffix); err != nil {
		return nil, err
	}
	if len(r.commands) == 0 {
		return nil, fault.New(fault.Invalid, "install_commands%s of its card is empty", suffix)
	}
	if r.required, err = textsOf(e.Params, "required_params"+suffix); err != nil {
		return nil, err
	}
	n, _ := e.Params["a2a_port"].(json.Number)
	if r.port, err = strconv.Atoi(n.String()); err != nil || r.port < 1 || r.port > 65535 {
		return nil, fault.New(fault.Invalid, "a2a_port of its card must be a port, 1 to 65535")
	}
	return r, nil
}

func textsOf(params map[string]any, key string) ([]string, error) {
	list, ok := params[key].([]any)
	if !ok {
		return nil, fault.New(fault.Invalid, "%s of its card must be a list of texts", key)
	}
	out := make([]string, len(list))
	for i, v := range list {
		if out[i], ok = v.(string); !ok {
			return nil, fault.New(fault.Invalid, "%s[%d] of its card must be a text", key, i)
		}
	}
	return out, nil
}
