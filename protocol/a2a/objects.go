package a2a

import (
	"context"
	"encoding/json"

	"agentenv/fault"
	"agentenv/protocol/trajectory"
	"agentenv/protocol/transfer"
)

// ReadObject is a field of a request that grants reading an object.
type ReadObject struct{ transfer.ReadObject }

// UnmarshalJSON reads the wire form; what is wrong is an Invalid error that holds no URL and no header.
func (o *ReadObject) UnmarshalJSON(text []byte) error {
	v, err := decode(text)
	if err == nil {
		o.ReadObject, err = transfer.ParseReadObject("the object", v)
	}
	return err
}

// WriteObject is a field of a request that grants writing an object.
type WriteObject struct{ transfer.WriteObject }

// UnmarshalJSON reads the wire form; what is wrong is an Invalid error that holds no URL and no header.
func (o *WriteObject) UnmarshalJSON(text []byte) error {
	v, err := decode(text)
	if err == nil {
		o.WriteObject, err = transfer.ParseWriteObject("the object", v)
	}
	return err
}

// Namespace is a field of a request that grants writing objects below a path.
type Namespace struct{ transfer.NamespaceGrant }

// UnmarshalJSON reads the wire form; what is wrong is an Invalid error that holds no URL and no header.
func (n *Namespace) UnmarshalJSON(text []byte) error {
	v, err := decode(text)
	if err == nil {
		n.NamespaceGrant, err = transfer.ParseNamespace("the namespace", v)
	}
	return err
}

// Uploaded is a field of an answer that tells what was written.
type Uploaded struct{ transfer.Uploaded }

// MarshalJSON returns the wire form.
func (u Uploaded) MarshalJSON() ([]byte, error) { return json.Marshal(u.JSON()) }

// trajectoryTarget is where a trajectory is written to.
type trajectoryTarget struct {
	Trajectory WriteObject `json:"trajectory"`
}

// Validate refuses other media types than that of trajectories.
func (t *trajectoryTarget) Validate() error {
	if t.Trajectory.MediaType != "application/json" {
		return fault.New(fault.Invalid, "a trajectory has the media type application/json")
	}
	return nil
}

type taskObjects struct {
	ofTask
	Objects trajectoryTarget `json:"objects"`
}

type contextObjects struct {
	ofContext
	Objects trajectoryTarget `json:"objects"`
}

type trajectoryWritten struct {
	Objects map[string]Uploaded `json:"objects"`
}

func (s *Server) upload(ctx context.Context, r trajectory.Record, err error, to trajectoryTarget) (trajectoryWritten, error) {
	if err != nil {
		return trajectoryWritten{}, err
	}
	u, err := s.transfer.Upload(ctx, to.Trajectory.WriteObject, transfer.Source{Size: r.Size(), Open: r.Open})
	return trajectoryWritten{map[string]Uploaded{"trajectory": {u}}}, err
}
