package main

import (
	"context"
	"os"

	"agentenv/config"
	"agentenv/store/doc"
	"agentenv/store/secret/envfile"
)

// Names of the backends, as Choice.Backend gives them.
const (
	sqliteBackend   = "sqlite"
	localfsBackend  = "localfs"
	registryBackend = "registry"
	ociBackend      = "oci"
	envfileBackend  = "envfile"
	runnerBackend   = "local"
	secretLogins    = "secret-logins"
)

// spell writes out the `impl` values by which configuration files name a class.
func spell(class string, modules ...string) []string {
	var out []string
	for _, m := range modules {
		out = append(out, m+":"+class)
	}
	return out
}

// backends are the backends this program has, for config to check tables against.
func backends() []config.Backend {
	const s = "agent_env.store"
	registry := []config.Key{{Name: "registry_host", Default: "localhost:5000"}, {Name: "repository_prefix", Default: ""}, {Name: "credentials"}}
	oci := []config.Key{{Name: "registry_host", Required: true}, {Name: "repository_prefix", Default: ""}, {Name: "credentials"}}
	return []config.Backend{
		{Seam: "document", Name: sqliteBackend, Pointers: spell("LocalSqliteDocumentStore", s+".document_store", s, s+".document_store.sqlite_document_store"),
			Keys: []config.Key{{Name: "path", Required: true}}},
		{Seam: "object", Name: localfsBackend, Pointers: spell("LocalFilesystemObjectStore", s+".object_store", s, s+".object_store.local", s+".object_store.local.store"),
			Keys: []config.Key{{Name: "root"}, {Name: "grants", Default: "auto"}, {Name: "grant_bind_host"}, {Name: "grant_advertise_host"},
				{Name: "grant_lifetime_seconds", Default: doc.Int(43200)}}},
		{Seam: "image", Name: registryBackend, Pointers: spell("LocalRegistryImageStore", s+".image_store", s, s+".image_store.local_registry_image_store"), Keys: registry},
		{Seam: "image", Name: ociBackend, Pointers: spell("OciRegistryImageStore", s+".image_store", s, s+".image_store.image_store"), Keys: oci},
		{Seam: "credentials", Name: secretLogins, Pointers: spell("SecretStoreCredentials", s+".image_store", s, s+".image_store.oci_registry_credentials"),
			Keys: []config.Key{{Name: "secret_key", Default: "registry_auths"}}},
		{Seam: "secret", Name: envfileBackend, Pointers: spell("LocalSecretStore", s+".secret_store", s, s+".secret_store.local_secret_store"),
			Keys: []config.Key{{Name: "values"}, {Name: "file_path"}, {Name: "use_env", Default: true}}},
		{Seam: "runner", Name: runnerBackend, Pointers: spell("LocalRunner", "agent_env.runner.local_runner"), Keys: []config.Key{{Name: "workers", Default: doc.Int(2)}}},
	}
}

// secrets opens the configured secret store at the first reference to a secret.
func secrets(c *config.Config) func(name string) (string, bool, error) {
	var store *envfile.Store
	return func(name string) (string, bool, error) {
		if store == nil {
			choice, err := c.Seam("secret")
			if err != nil {
				return "", false, err
			}
			o := envfile.Options{Path: choice.Config.Str("file_path")}
			if choice.Config.Value("use_env") != false {
				o.Env = os.LookupEnv
			}
			if v := choice.Config.Obj("values"); v != nil {
				o.Values = map[string]any{}
				for _, k := range v.Keys() {
					o.Values[k] = goValue(v.Value(k))
				}
			}
			if store, err = envfile.New(o); err != nil {
				return "", false, err
			}
		}
		return store.Get(context.Background(), name)
	}
}

// goValue turns a configured value into what the store takes.
func goValue(v any) any {
	if n, ok := v.(doc.Number); ok {
		if i, ok := n.Int64(); ok {
			return i
		}
		return n.Float64()
	}
	return v
}
