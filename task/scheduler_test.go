package task

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// graph draws a task of implicit and explicit steps; edges go back only.
func graph(t *rapid.T) *Task {
	n := rapid.IntRange(1, 12).Draw(t, "steps")
	task := &Task{MaxParallelSteps: rapid.IntRange(0, 3).Draw(t, "limit"), FailFast: rapid.Bool().Draw(t, "failfast")}
	for i := range n {
		s := &Step{ID: fmt.Sprint("s", i), Implicit: rapid.Bool().Draw(t, "implicit")}
		if !s.Implicit && i > 0 {
			for _, j := range rapid.SliceOfNDistinct(rapid.IntRange(0, i-1), 0, min(i, 3), rapid.ID).Draw(t, "edges") {
				s.DependsOn = append(s.DependsOn, task.Steps[j].ID)
			}
		}
		task.Steps = append(task.Steps, s)
	}
	return task
}

// needs returns the positions a step waits for, by the words of the rules.
func needs(task *Task, i int) (out []int) {
	for j := range i {
		if task.Steps[i].Implicit || slices.Contains(task.Steps[i].DependsOn, task.Steps[j].ID) {
			out = append(out, j)
		}
	}
	return out
}

func TestSchedulerKeepsTheRulesOnEveryGraph(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		task := graph(t)
		n := len(task.Steps)
		start := rapid.IntRange(0, n-1).Draw(t, "start")
		end := rapid.IntRange(start+1, n).Draw(t, "end")
		s := NewScheduler(task, start, end)
		st := s.Initial()
		done := map[int]bool{}
		for i := range start {
			done[i] = true
		}
		var running []int
		started := map[int]bool{}
		halted, ended := false, false
		signal := Signal{Kind: SignalBegin}
		for !ended {
			before, _ := json.Marshal(st)
			next, commands := s.Next(st, signal)
			if again, cs := s.Next(st, signal); !reflect.DeepEqual(next, again) || !reflect.DeepEqual(commands, cs) {
				t.Fatal("the same state and signal give something else")
			}
			if after, _ := json.Marshal(st); string(after) != string(before) {
				t.Fatal("Next changed the state it was given")
			}
			st = next
			for _, c := range commands {
				switch c.Kind {
				case CommandStart:
					if halted || started[c.Step] || c.Step < start || c.Step >= end {
						t.Fatalf("step %d started: halted %v, before %v, range [%d,%d)", c.Step, halted, started[c.Step], start, end)
					}
					for _, d := range needs(task, c.Step) {
						if !done[d] {
							t.Fatalf("step %d started before %d was done", c.Step, d)
						}
					}
					started[c.Step] = true
					running = append(running, c.Step)
				case CommandEnd:
					ended = true
				}
			}
			if task.MaxParallelSteps > 0 && len(running) > task.MaxParallelSteps {
				t.Fatalf("%d steps run", len(running))
			}
			if ended {
				break
			}
			if !halted && (task.MaxParallelSteps == 0 || len(running) < task.MaxParallelSteps) {
				for i := start; i < end; i++ {
					if !started[i] && !slices.ContainsFunc(needs(task, i), func(d int) bool { return !done[d] }) {
						t.Fatalf("step %d could run and does not", i)
					}
				}
			}
			if rapid.IntRange(0, 15).Draw(t, "cancel") == 0 {
				signal, halted = Signal{Kind: SignalCancelled}, true
				continue
			}
			if len(running) == 0 {
				t.Fatal("nothing runs and the run is not over")
			}
			k := rapid.IntRange(0, len(running)-1).Draw(t, "which")
			i := running[k]
			running = slices.Delete(running, k, k+1)
			signal = Signal{Kind: SignalCompleted, Step: i}
			if rapid.IntRange(0, 9).Draw(t, "fate") == 0 {
				signal.Kind, halted = SignalFatal, true
			} else {
				done[i] = true
			}
		}
		if len(running) > 0 {
			t.Fatalf("the run is over and %v run", running)
		}
		if !halted && len(done) != end {
			t.Fatalf("the run is over with %d of %d done", len(done), end)
		}
	})
}

func TestSchedulerStartsInTaskOrder(t *testing.T) {
	task := &Task{Steps: []*Step{{ID: "a", Implicit: true}, {ID: "b"}, {ID: "c", Implicit: true}, {ID: "d", DependsOn: []string{"a"}}}}
	s := NewScheduler(task, 0, 4)
	st, commands := s.Next(s.Initial(), Signal{Kind: SignalBegin})
	if want := []Command{{CommandStart, 0}, {CommandStart, 1}}; !reflect.DeepEqual(commands, want) {
		t.Errorf("at the beginning: %v", commands)
	}
	st, commands = s.Next(st, Signal{Kind: SignalCompleted, Step: 1})
	if len(commands) != 0 {
		t.Errorf("after b: %v", commands)
	}
	st, commands = s.Next(st, Signal{Kind: SignalCompleted, Step: 0})
	if want := []Command{{CommandStart, 2}, {CommandStart, 3}}; !reflect.DeepEqual(commands, want) {
		t.Errorf("after a: %v", commands)
	}
	_, commands = s.Next(st, Signal{Kind: SignalCompleted, Step: 9})
	if commands != nil {
		t.Errorf("after a step that does not run: %v", commands)
	}
}
