package localfs

import (
	"os"
	"strconv"
	"sync"
)

// typeRecords stages the type records of a batch beside the writing of its objects: making a file costs more than filling one,
// and files of two folders can be made at the same time. A record that cannot be staged is left out: then the type is unknown,
// which is no reason to fail.
type typeRecords struct {
	dir  string
	next chan record
	done chan struct{}
	end  func()
	// The rest belongs to the writing goroutine until done is closed.
	failed map[int]bool
}

func stageRecords(dir string) (*typeRecords, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	t := &typeRecords{dir: dir, next: make(chan record, 64), done: make(chan struct{}), failed: map[int]bool{}}
	t.end = sync.OnceFunc(func() { close(t.next) })
	go func() {
		defer close(t.done)
		i := 0
		for r := range t.next {
			if os.WriteFile(t.file(i), r.text(), fileMode) != nil {
				t.failed[i] = true
			}
			i++
		}
	}()
	return t, nil
}

func (t *typeRecords) file(i int) string { return t.dir + "/" + strconv.Itoa(i) }

// add takes the record of the batch's next object.
func (t *typeRecords) add(r record) { t.next <- r }

// wait ends the writing. A second call does nothing.
func (t *typeRecords) wait() {
	t.end()
	<-t.done
}

// staged is where the record of an object lies, and whether there is one. It may be asked after wait.
func (t *typeRecords) staged(i int) (string, bool) { return t.file(i), !t.failed[i] }
