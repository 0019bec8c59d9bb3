package deploy

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"agentenv/fault"
)

const keySize = 32

// Tokens derives the bearer token of each agent from one key, so that a later process finds it again and no document holds it.
// It is safe for concurrent use, also by several processes.
type Tokens struct {
	file string
}

// NewTokens returns the tokens of the key in a file, which is made when a token is first asked for, readable by its owner alone.
func NewTokens(file string) Tokens { return Tokens{file} }

// For returns the token of the agent in a sandbox: the same one at every call, as hexadecimal digits. A key file that is too short to be
// one is Invalid, one that cannot be read or made Unavailable.
func (t Tokens) For(sandboxID string) (string, error) {
	key, err := t.key()
	if err != nil {
		return "", err
	}
	m := hmac.New(sha256.New, key)
	m.Write([]byte(sandboxID))
	return hex.EncodeToString(m.Sum(nil)), nil
}

func (t Tokens) key() ([]byte, error) {
	key, err := os.ReadFile(t.file)
	if errors.Is(err, fs.ErrNotExist) {
		if err = t.make(); err == nil {
			key, err = os.ReadFile(t.file)
		}
	}
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the key of agents' tokens, %s: %v", t.file, fault.Reason(err))
	}
	if len(key) < keySize {
		return nil, fault.New(fault.Invalid, "the key of agents' tokens, %s, is broken; remove it, and deploy the agents that need a token again", t.file)
	}
	return key, nil
}

// make writes a new key, unless another process is first: a link never replaces what is there, and the file is whole once it has its name.
func (t Tokens) make() error {
	if err := os.MkdirAll(filepath.Dir(t.file), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(t.file), ".agent-tokens-*") // of mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	key := make([]byte, keySize)
	rand.Read(key)
	_, err = f.Write(key)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), t.file); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}
