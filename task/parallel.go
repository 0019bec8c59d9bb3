package task

import "runtime"

// DefaultParallel returns how many runs go on at once when nobody says: four for each core that this process may use, since runs mostly
// wait, and never fewer than four. Every command that starts several runs takes it as its default.
func DefaultParallel() int { return max(4, 4*runtime.GOMAXPROCS(0)) }
