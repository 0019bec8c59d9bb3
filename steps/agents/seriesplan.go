package agents

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"agentenv/fault"
	"agentenv/store/doc"
	"agentenv/task"
)

// seriesPlan says when snapshots are taken while an agent works.
type seriesPlan struct {
	interval time.Duration // from the end of one to the next; 0 = none by the clock
	perTurn  bool
	atEnd    bool
	limit    time.Duration // of one
	most     int64         // of those before the end
}

// planDefaults are the keys of a snapshot_config in the order they are stored, and what stands where one is not given.
func planDefaults() *doc.Object {
	return doc.Of("interval_seconds", nil, "at_end", true, "per_turn", false, "env_id", nil, "timeout_seconds", doc.Int(300), "max_snapshots", doc.Int(24))
}

// parseSeries reads a snapshot_config, and returns what is stored of it; both are nil for one that is empty, as for none. It adapts what a stored
// task may hold and drops keys it does not know; givenSeries has refused those of people.
func parseSeries(v any) (*seriesPlan, *doc.Object, error) {
	given, _ := v.(*doc.Object)
	if !task.Truthy(v) || given == nil {
		return nil, nil, nil
	}
	stored := planDefaults()
	for _, k := range stored.Keys() {
		if v := given.Value(k); v != nil {
			stored.Set(k, v)
		}
	}
	adapt := func(key string, kind task.FieldKind) any {
		v := task.Adapt(stored.Value(key), kind)
		stored.Set(key, v)
		return v
	}
	p := &seriesPlan{interval: seconds(adapt("interval_seconds", task.NumberKind)), limit: seconds(adapt("timeout_seconds", task.NumberKind)),
		perTurn: adapt("per_turn", task.Boolean) == true, atEnd: adapt("at_end", task.Boolean) == true,
		most: int64(math.Ceil(min(positive(adapt("max_snapshots", task.NumberKind)), math.MaxInt32)))}
	switch {
	case p.limit == 0:
		return nil, nil, fault.New(fault.Invalid, "snapshot_config: timeout_seconds must be greater than 0, not %s", task.Brief(stored.Value("timeout_seconds")))
	case p.most < 1:
		return nil, nil, fault.New(fault.Invalid, "snapshot_config: max_snapshots must be at least 1, not %s", task.Brief(stored.Value("max_snapshots")))
	case !p.atEnd && !p.perTurn && p.interval == 0:
		return nil, nil, fault.New(fault.Invalid, "snapshot_config takes no snapshot at all: set at_end or per_turn to true, or interval_seconds to a number greater than 0")
	}
	return p, stored, nil
}

// givenSeries refuses what a person may not write in a snapshot_config.
func givenSeries(o *doc.Object) error {
	keys := planDefaults().Keys()
	for _, k := range o.Keys() {
		v := o.Value(k)
		if !slices.Contains(keys, k) {
			return fault.New(fault.Invalid, "snapshot_config has an unknown key %q; it takes %s", k, strings.Join(keys, ", "))
		}
		if v == nil {
			continue
		}
		var ok bool
		needs := "true or false"
		switch k {
		case "at_end", "per_turn":
			_, ok = v.(bool)
		case "env_id":
			needs, ok = "the id of an env", v != "" && text(v) != ""
		case "max_snapshots":
			needs = "an integer"
			_, ok = o.Int(k)
		default:
			needs = "a number of seconds"
			n, isNumber := v.(doc.Number)
			ok = isNumber && n.Finite()
		}
		if !ok {
			return fault.New(fault.Invalid, "snapshot_config: %s needs %s, not %s", k, needs, task.Brief(v))
		}
	}
	return nil
}

// warnings says what of the step's snapshots is never taken.
func (a *promptAgent) warnings() []string {
	given := a.fields.Obj("snapshot_config")
	var out []string
	say := func(line string) { out = append(out, "snapshot_config: "+line) }
	switch {
	case given == nil:
		return nil
	case a.series == nil:
		say(`it is empty, so no snapshot is taken; write {"at_end": true} for one at the end`)
		return out
	}
	if v := given.Value("interval_seconds"); v != nil && a.series.interval == 0 {
		say(fmt.Sprintf("interval_seconds is %s, so no snapshot is taken by the clock", task.Brief(v)))
	}
	if a.series.perTurn && a.turns == 1 {
		say("per_turn takes snapshots between turns, and max_conversation_turns is 1")
	}
	return out
}
