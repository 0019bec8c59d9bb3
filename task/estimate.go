package task

import "math"

// PassAtK returns, at index k-1 for k = 1..n, the probability that at least one of k runs drawn without repetition from n runs, of which
// c passed, is a pass: 1 - C(n-c,k)/C(n,k), the unbiased estimator of Chen et al., "Evaluating Large Language Models Trained on Code"
// (2021), section 2.1. The quotient is built up factor by factor, each at most 1, so that nothing overflows and the values never
// fall as k grows. It is empty when n is 0 or less; c is taken as lying between 0 and n.
func PassAtK(n, c int) []float64 {
	if n <= 0 {
		return nil
	}
	c = min(max(c, 0), n)
	out, none := make([]float64, n), 1.0
	for k := 1; k <= n; k++ {
		none *= float64(max(n-c-k+1, 0)) / float64(n-k+1)
		out[k-1] = 1 - none
	}
	return out
}

// z95 is the 97.5 % quantile of the standard normal distribution.
const z95 = 1.959963984540054

// wilson returns the 95 % score interval of passes/n (Wilson, "Probable Inference, the Law of Succession, and Statistical Inference", 1927),
// which holds up for few runs and for rates at 0 and 1. n must be at least 1.
func wilson(passes, n int) (low, high float64) {
	p, m := float64(passes)/float64(n), float64(n)
	mid := p + z95*z95/(2*m)
	half := z95 * math.Sqrt(p*(1-p)/m+z95*z95/(4*m*m))
	scale := 1 + z95*z95/m
	low, high = max((mid-half)/scale, 0), min((mid+half)/scale, 1)
	if passes == 0 {
		low = 0
	}
	if passes == n {
		high = 1
	}
	return low, high
}

// meanOver returns the mean of values, one a task, with the 95 % interval mean ± t·s/√n of Student's t with n-1 degrees of freedom: tasks are
// the unit that was sampled, and the runs of one task depend on each other, so that an interval over single runs would be too narrow
// (Miller, "Adding Error Bars to Evals", 2024, sections 2.1 and 2.2). One task, or tasks that are all alike, tell nothing about the spread:
// then there is no interval. Where all values lie between 0 and 1 so do the bounds. values must not be empty.
func meanOver(values []float64) *Estimate {
	e := &Estimate{Value: mean(values)}
	squares, n, unit := 0.0, len(values), true
	for _, v := range values {
		unit = unit && v >= 0 && v <= 1
		squares += (v - e.Value) * (v - e.Value)
	}
	if n < 2 || !(squares > 0) {
		return e
	}
	half := student95(n-1) * math.Sqrt(squares/float64(n-1)/float64(n))
	low, high := e.Value-half, e.Value+half
	if unit {
		low, high = max(low, 0), min(high, 1)
	}
	if finite(low) == low && finite(high) == high {
		e.Low, e.High = &low, &high
	}
	return e
}

// student95 returns the 97.5 % quantile of Student's t: from the table for few degrees of freedom, else by the expansion of
// Abramowitz and Stegun 26.7.5, which is then good to four digits.
func student95(df int) float64 {
	table := [...]float64{12.706205, 4.302653, 3.182446, 2.776445, 2.570582, 2.446912, 2.364624, 2.306004, 2.262157, 2.228139}
	if df <= len(table) {
		return table[df-1]
	}
	z, v := z95, float64(df)
	z3 := z * z * z
	z5 := z3 * z * z
	z7 := z5 * z * z
	z9 := z7 * z * z
	return z + (z3+z)/(4*v) + (5*z5+16*z3+3*z)/(96*v*v) + (3*z7+19*z5+17*z3-15*z)/(384*v*v*v) +
		(79*z9+776*z7+1482*z5-1920*z3-945*z)/(92160*v*v*v*v)
}

// meanCurve returns the mean of curves, as far as the shortest goes.
func meanCurve(curves [][]float64) []float64 {
	if len(curves) == 0 {
		return nil
	}
	n := len(curves[0])
	for _, c := range curves {
		n = min(n, len(c))
	}
	out := make([]float64, n)
	for _, c := range curves {
		for k := range out {
			out[k] += c[k] / float64(len(curves))
		}
	}
	for k := range out {
		out[k] = min(out[k], 1)
	}
	return out
}
