package verify

import (
	"crypto/rand"
	"encoding/hex"

	"agentenv/sandbox"
	"agentenv/store/doc"
	"agentenv/task"
)

// Deps is what these steps act with.
type Deps struct {
	Sandboxes *sandbox.Manager
}

// Types returns the step types of this package.
func Types(d Deps) []*task.StepType {
	return []*task.StepType{sandboxType(d), aggregateType(), responseType()}
}

func verifierField() task.Field {
	return task.Field{Name: "verifier_id", Kind: task.String, Doc: "key of the verdict in metadata.verifications; random when not given"}
}

// withVerifierID returns the stored form with a verifier id, made up when the author gave none.
func withVerifierID(f *doc.Object) (*doc.Object, string) {
	id := f.Str("verifier_id")
	if id == "" {
		var b [16]byte
		rand.Read(b[:])
		id = hex.EncodeToString(b[:])
	}
	return f.Clone().Set("verifier_id", id), id
}
