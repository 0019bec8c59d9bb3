package modelagent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"agentenv/fault"
)

const (
	maxAnswer = 64 << 20
	attempts  = 3
)

// dialect is the wire of a model endpoint.
type dialect interface {
	path() string
	headers(key string) map[string]string
	user([]piece) object
	outcomes([]outcome) []object
	body(name, system string, history []object, tools []tool) object
	read(object) (answer, error)
}

// answer is what the model said.
type answer struct {
	raw     object // the message, for the history
	text    string
	calls   []call
	in, out int64 // tokens
	stop    string
}

type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string {
	return fmt.Sprintf("the model endpoint answered %d: %s", e.status, e.text)
}

// ask asks the model once; what may pass by itself is tried again.
func (t *talk) ask(ctx context.Context, history []object) (answer, error) {
	body := t.talk.body(t.name, t.system(), history, t.tools)
	for k, v := range t.config.ModelParams {
		if !slices.Contains([]string{"model", "messages", "system", "tools", "stream"}, k) {
			body[k] = v
		}
	}
	text, err := json.Marshal(body)
	if err != nil {
		return answer{}, fault.Wrap(fault.Invalid, err, "the request to the model")
	}
	for i := 1; ; i++ {
		a, err := t.once(ctx, text)
		if err == nil || i == attempts || !passing(err) {
			return a, err
		}
		select {
		case <-ctx.Done():
			return answer{}, err
		case <-time.After(time.Duration(i*i) * 500 * time.Millisecond):
		}
	}
}

func passing(err error) bool {
	var status *statusError
	if errors.As(err, &status) {
		return status.status == 408 || status.status == 429 || status.status >= 500
	}
	return fault.Is(err, fault.Unavailable)
}

func (t *talk) once(ctx context.Context, body []byte) (answer, error) {
	base := strings.TrimRight(t.o.BaseURL, "/")
	if !strings.HasSuffix(base, "/v1") {
		base += "/v1"
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+t.talk.path(), bytes.NewReader(body))
	if err != nil {
		return answer{}, fault.New(fault.Invalid, "the model endpoint's URL cannot be used")
	}
	r.Header.Set("Content-Type", "application/json")
	for k, v := range t.o.Headers {
		r.Header.Set(k, v)
	}
	for k, v := range t.talk.headers(t.o.APIKey) {
		r.Header.Set(k, v)
	}
	resp, err := t.o.HTTP.Do(r) //nolint:gosec // the endpoint is what the agent was started with
	if err != nil {
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err
		}
		return answer{}, fault.Wrap(fault.Unavailable, err, "the model endpoint could not be reached")
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return answer{}, fault.Wrap(fault.Unavailable, err, "the model endpoint broke off its answer")
	case len(text) > maxAnswer:
		return answer{}, fault.New(fault.Invalid, "the model endpoint answered more than %d MiB", maxAnswer>>20)
	case resp.StatusCode != http.StatusOK:
		return answer{}, &statusError{resp.StatusCode, t.clean(string(text[:min(len(text), 600)]))}
	}
	var o object
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&o); err != nil {
		return answer{}, fault.New(fault.Unavailable, "the model endpoint answered no JSON object")
	}
	return t.talk.read(o)
}

// clean takes the key and the header values out of what the endpoint said.
func (t *talk) clean(s string) string {
	hide := []string{}
	for _, v := range append(slices.Collect(maps.Values(t.o.Headers)), t.o.APIKey) {
		if len(v) > 5 {
			hide = append(hide, v, "***")
		}
	}
	return strings.ToValidUTF8(strings.NewReplacer(hide...).Replace(s), "")
}

func number(v any) int64 {
	n, _ := v.(json.Number)
	i, _ := n.Int64()
	return i
}

func inner(o object, key string) object {
	v, _ := o[key].(object)
	return v
}
