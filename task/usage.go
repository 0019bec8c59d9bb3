package task

import (
	"math"

	"agentenv/store/doc"
)

// Usage is what agents said that they used. 0 means none, or not reported.
type Usage struct {
	ToolCalls    int64   `json:"tool_calls,omitempty"`
	InputTokens  int64   `json:"input_tokens,omitempty"`
	OutputTokens int64   `json:"output_tokens,omitempty"`
	TotalTokens  int64   `json:"total_tokens,omitempty"`
	CostUSD      float64 `json:"cost_usd,omitempty"`
}

// UsageOf sums what the agents of a run reported: `tool_call_count` of every prompt response, and of its `usage` object, where there is one,
// `input_tokens`, `output_tokens`, `total_tokens` (input and output together when absent) and `cost_usd`. A run that prompted nobody is read
// from such an object under `metadata.usage`. What is absent, negative or of another type counts as not reported.
func UsageOf(context *doc.Object) Usage {
	var sum Usage
	for _, r := range objects(context, "prompt_responses") {
		u := usageFrom(r.Obj("usage"))
		if n := amount(r, "tool_call_count"); n > 0 {
			u.ToolCalls = n
		}
		sum = sum.plus(u)
	}
	if sum == (Usage{}) {
		return usageFrom(context.Obj("metadata").Obj("usage"))
	}
	return sum
}

func usageFrom(o *doc.Object) Usage {
	u := Usage{ToolCalls: amount(o, "tool_call_count"), InputTokens: amount(o, "input_tokens"), OutputTokens: amount(o, "output_tokens"), TotalTokens: amount(o, "total_tokens")}
	if u.TotalTokens == 0 {
		u.TotalTokens = saturated(u.InputTokens, u.OutputTokens)
	}
	if n, ok := o.Value("cost_usd").(doc.Number); ok {
		u.CostUSD = max(finite(n.Float64()), 0)
	}
	return u
}

func amount(o *doc.Object, key string) int64 {
	if n, ok := o.Value(key).(doc.Number); ok {
		if i, ok := n.Int64(); ok {
			return max(i, 0)
		}
	}
	return 0
}

func (u Usage) plus(v Usage) Usage {
	return Usage{saturated(u.ToolCalls, v.ToolCalls), saturated(u.InputTokens, v.InputTokens), saturated(u.OutputTokens, v.OutputTokens),
		saturated(u.TotalTokens, v.TotalTokens), min(u.CostUSD+v.CostUSD, math.MaxFloat64)}
}

// saturated adds what is not negative; agents may report anything, and a sum must not turn negative.
func saturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
