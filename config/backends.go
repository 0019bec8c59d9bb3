package config

import (
	"slices"
	"sort"
	"strings"

	"agentenv/store/doc"
)

// Backend is a named kind of store (or runner) that a configuration may choose, and what it takes.
type Backend struct {
	Seam     string   // "document", "object", "image", "secret", "runner", or "credentials"
	Name     string   // the class name, by which messages call it
	Pointers []string // the `impl` values that choose it; the first is shown for the default
	Keys     []Key    // of its `config` table
	Pending  bool     // known and checked, but not built in this version
}

// Key is one key of a backend's config table.
type Key struct {
	Name     string
	Required bool
}

// Backends returns the table of all backends of the reference by their pointers. The caller may change the slice.
func Backends() []Backend {
	at := func(class string, modules ...string) []string {
		out := make([]string, len(modules))
		for i, m := range modules {
			out[i] = "agent_env." + m + ":" + class
		}
		return out
	}
	keys := func(spec string) []Key {
		var out []Key
		for _, k := range strings.Fields(spec) {
			name, required := strings.CutSuffix(k, "!")
			out = append(out, Key{name, required})
		}
		return out
	}
	store := func(seam, class, module, spec string, pending bool) Backend {
		return Backend{Seam: seam, Name: class, Keys: keys(spec), Pending: pending,
			Pointers: at(class, "store."+seam+"_store", "store", "store."+seam+"_store."+module)}
	}
	only := func(seam, class, module, spec string) Backend {
		return Backend{Seam: seam, Name: class, Keys: keys(spec), Pending: true, Pointers: at(class, module)}
	}
	local := store("object", "LocalFilesystemObjectStore", "local", "root grants grant_bind_host grant_advertise_host grant_lifetime_seconds", false)
	local.Pointers = append(local.Pointers, at(local.Name, "store.object_store.local.store")...)
	return []Backend{
		store("document", "LocalSqliteDocumentStore", "sqlite_document_store", "path!", false),
		store("document", "MongoDocumentStore", "mongo_document_store", "uri! database!", true),
		only("document", "FirestoreMongoDocumentStore", "store.document_store.firestore_mongo_document_store", "host! database!"),
		store("document", "DynamoDbDocumentStore", "dynamodb_document_store", "table_prefix region", true),
		local,
		store("object", "S3ObjectStore", "s3_object_store", "bucket! region share_credentials grant_lifetime_seconds", true),
		only("object", "GcsObjectStore", "store.object_store.gcs_object_store", "bucket! project signing_service_account grant_lifetime_seconds"),
		store("image", "LocalRegistryImageStore", "local_registry_image_store", "registry_host repository_prefix credentials", false),
		store("image", "OciRegistryImageStore", "image_store", "registry_host! repository_prefix credentials", false),
		store("image", "EcrImageStore", "ecr_image_store", "registry_host! repository_prefix credentials region", true),
		store("secret", "LocalSecretStore", "local_secret_store", "values file_path use_env", false),
		store("secret", "AwsSecretsManagerSecretStore", "aws_secrets_manager_secret_store", "secret_name! region! ttl_seconds min_refresh_interval", true),
		only("secret", "GcpSecretManagerSecretStore", "store.secret_store.gcp_secret_manager_secret_store", "secret_name! project version ttl_seconds min_refresh_interval"),
		{Seam: "runner", Name: "LocalRunner", Pointers: at("LocalRunner", "runner.local_runner")},
		{Seam: "credentials", Name: "SecretStoreCredentials", Keys: keys("secret_key"),
			Pointers: at("SecretStoreCredentials", "store.image_store", "store", "store.image_store.oci_registry_credentials")},
		{Seam: "credentials", Name: "EcrCredentials", Keys: keys("region! access_key! secret_key!"), Pending: true,
			Pointers: at("EcrCredentials", "store.image_store", "store", "store.image_store.ecr_image_store")},
		only("credentials", "GoogleAccessTokenCredentials", "store.image_store.google_credentials", "service_account!"),
	}
}

// backend finds what a pointer names for a seam.
func (c *Config) backend(seam, pointer string) (Backend, error) {
	module, class, ok := strings.Cut(pointer, ":")
	if !ok || module == "" || class == "" {
		return Backend{}, configError(nil, "impl %q of the %s: the form is module.path:ClassName", pointer, seamLabel(seam))
	}
	for _, b := range c.backends {
		if !slices.Contains(b.Pointers, pointer) {
			continue
		}
		if b.Seam != seam {
			return Backend{}, configError(nil, "impl %q of the %s is a %s, which is no subclass of what the %s needs", pointer, seamLabel(seam), b.Name, seamLabel(seam))
		}
		return b, nil
	}
	var known []string
	for _, b := range c.backends {
		if b.Seam == seam {
			known = append(known, b.Pointers[0])
		}
	}
	return Backend{}, configError(nil, "impl %q of the %s names nothing that is built in, and Python classes cannot be loaded; there are %s", pointer, seamLabel(seam), strings.Join(known, ", "))
}

func seamLabel(seam string) string {
	switch seam {
	case "runner":
		return "runner"
	case "credentials":
		return "registry credentials"
	}
	return seam + " store"
}

// check refuses unknown and missing keys of a backend's config table.
func (b Backend) check(table *doc.Object, but ...string) error {
	var unknown, missing, takes []string
	for _, k := range b.Keys {
		takes = append(takes, k.Name)
		if _, there := table.Get(k.Name); k.Required && !there {
			missing = append(missing, k.Name)
		}
	}
	for _, k := range table.Keys() {
		if !slices.Contains(takes, k) && !slices.Contains(but, k) {
			unknown = append(unknown, k)
		}
	}
	if len(unknown) == 0 && len(missing) == 0 {
		return nil
	}
	sort.Strings(unknown)
	msg := b.Name + ": "
	if len(unknown) > 0 {
		msg += "unknown config keys " + strings.Join(unknown, ", ") + "; "
	}
	if len(missing) > 0 {
		msg += "missing required config keys " + strings.Join(missing, ", ") + "; "
	}
	if len(takes) == 0 {
		return configError(nil, "%sit takes none", msg)
	}
	return configError(nil, "%sit takes %s", msg, strings.Join(takes, ", "))
}
