package main

import (
	"context"
	"log/slog"
	"net/http"
	"path/filepath"

	"agentenv/config"
	"agentenv/fault"
	"agentenv/store"
	"agentenv/store/document"
	"agentenv/store/document/sqlite"
	"agentenv/store/image"
	"agentenv/store/object"
	"agentenv/store/object/localfs"
)

func openDocuments(c *config.Config, log *slog.Logger) (document.Store, error) {
	folder := filepath.Join(c.StateRoot(), "document_store")
	localPath := filepath.Join(folder, "local.db")
	choice, err := c.Seam("document")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(folder, "documents.db")
	if p := choice.Config.Str("path"); p != "" {
		path = p
	}
	if abs, err := filepath.Abs(path); err == nil && abs == localPath {
		return nil, fault.New(fault.Invalid, "[stores.document] path %s is the file of @local entities; name another", path).WithClass("ConfigError")
	}
	configured, err := sqlite.New(sqlite.Options{Path: path, Log: log})
	if err != nil {
		return nil, err
	}
	own, err := sqlite.New(sqlite.Options{Path: localPath, Log: log, CheckID: store.CheckLocalID})
	if err != nil {
		return nil, err
	}
	return document.NewRouter(configured, own), nil
}

// objectFolder is where the objects of @local entities are kept.
func objectFolder(c *config.Config) string { return filepath.Join(c.StateRoot(), "object_store") }

// openObjects returns the store of objects, and the stores that it is made of; of those that own a URL the first counts.
func openObjects(c *config.Config) (object.Store, []object.Store, error) {
	choice, err := c.Seam("object")
	if err != nil {
		return nil, nil, err
	}
	folder, err := localfs.New(objectFolder(c))
	if err != nil {
		return nil, nil, err
	}
	own := object.Traced(folder)
	other := choice.Config.Str("root")
	if other == "" {
		return own, []object.Store{own}, nil
	}
	if folder, err = localfs.New(other); err != nil {
		return nil, nil, err
	}
	configured := object.Traced(folder)
	same, err1 := configured.URL("x")
	mine, err2 := own.URL("x")
	if err1 == nil && err2 == nil && same == mine {
		return own, []object.Store{own}, nil
	}
	return object.NewRouter(configured, own), []object.Store{configured, own}, nil
}

// pin resolves a tag to the digest its registry serves now.
func pin(ctx context.Context, ref string) (string, error) {
	return image.Pin(ctx, http.DefaultClient, ref, nil)
}
