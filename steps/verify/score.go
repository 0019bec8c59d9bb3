// Package verify holds the steps that grade: checks of a sandbox, and scores over other verifiers' rows.
package verify

import (
	"math"
	"strconv"
	"strings"

	"agentenv/store/doc"
	"agentenv/task"
)

// The ways to make one score of many rows.
const (
	AllPass         = "all_pass"
	AnyPass         = "any_pass"
	WeightedAverage = "weighted_average"
)

// aggregators lists them for field tables.
var aggregators = []string{AllPass, AnyPass, WeightedAverage}

// Aggregate returns one score between 0 and 1 for rows: all_pass and any_pass look at a row's boolean `result`,
// weighted_average at `score` (else `result`) and `weight` (1 when absent; a negative weight takes away what the row failed by).
// No rows give 0, and so do weights whose sums overflow. A row whose score or weight is no finite number counts as 0 or 1.
func Aggregate(how string, rows []*doc.Object) float64 {
	if len(rows) == 0 {
		return 0
	}
	switch how {
	case AllPass:
		for _, r := range rows {
			if r.Value("result") != true {
				return 0
			}
		}
		return 1
	case AnyPass:
		for _, r := range rows {
			if r.Value("result") == true {
				return 1
			}
		}
		return 0
	}
	var num, den, penalty float64
	for _, r := range rows {
		score := rowScore(r)
		switch w := weight(r); {
		case w > 0:
			num += score * w
			den += w
		case w < 0:
			penalty += (1 - score) * -w
		}
	}
	total := (num - penalty) / den
	if den == 0 || math.IsNaN(total) { // weights so huge that their sums are infinite
		return 0
	}
	return min(max(total, 0), 1)
}

func rowScore(r *doc.Object) float64 {
	if n, ok := number(r.Value("score")); ok {
		return n
	}
	if _, there := r.Get("score"); !there && task.Truthy(r.Value("result")) {
		return 1
	}
	return 0
}

func weight(r *doc.Object) float64 {
	if n, ok := number(r.Value("weight")); ok {
		return n
	}
	return 1
}

func number(v any) (float64, bool) {
	switch v := v.(type) {
	case doc.Number:
		return v.Float64(), v.Finite()
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case string:
		n, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
		return n, err == nil && doc.Float(n).Finite()
	}
	return 0, false
}

func aggregatorField(fallback string) task.Field {
	return task.Field{Name: "score_aggregator", Kind: task.String, Enum: aggregators, Default: fallback, Doc: "how the rows make one score"}
}
