package config

import (
	"slices"
	"strings"
)

// Backend is one backend main can build: the `impl` pointers that name it and the keys its `config` table takes.
type Backend struct {
	Seam string // "document", "object", "image", "secret", "runner", or "credentials" for the logins of an image store
	Name string // what main knows it by
	// Pointers are the accepted `impl` values. The first is the one reports show.
	Pointers []string
	Keys     []Key
}

// Key is one key of a backend's config table.
type Key struct {
	Name     string
	Required bool
	Default  any // a document value put in when the key is absent; nil for none
}

// Backends hands in the backends that exist in this program. A second call replaces the first.
func (c *Config) Backends(list []Backend) { c.backends = slices.Clone(list) }

const storePackage = "agent_env.store"

// pointers writes out the spellings of a class: one under each of the modules, shortest first.
func pointers(class string, modules ...string) []string {
	var out []string
	for _, m := range modules {
		if m == "" {
			out = append(out, storePackage+":"+class)
		} else {
			out = append(out, storePackage+"."+m+":"+class)
		}
	}
	return out
}

// referenceBackends are the backends the reference has. A pointer that is here and not among those main handed in is known,
// and refused as not supported yet when it is used.
func referenceBackends() []Backend {
	return []Backend{
		{Seam: "document", Pointers: pointers("LocalSqliteDocumentStore", "", "document_store", "document_store.sqlite_document_store")},
		{Seam: "document", Pointers: pointers("MongoDocumentStore", "", "document_store", "document_store.mongo_document_store")},
		{Seam: "document", Pointers: pointers("FirestoreMongoDocumentStore", "document_store.firestore_mongo_document_store")},
		{Seam: "document", Pointers: pointers("DynamoDbDocumentStore", "", "document_store", "document_store.dynamodb_document_store")},
		{Seam: "object", Pointers: pointers("LocalFilesystemObjectStore", "", "object_store", "object_store.local", "object_store.local.store")},
		{Seam: "object", Pointers: pointers("S3ObjectStore", "", "object_store", "object_store.s3_object_store")},
		{Seam: "object", Pointers: pointers("GcsObjectStore", "object_store.gcs_object_store")},
		{Seam: "image", Pointers: pointers("LocalRegistryImageStore", "", "image_store", "image_store.local_registry_image_store")},
		{Seam: "image", Pointers: pointers("OciRegistryImageStore", "", "image_store", "image_store.image_store")},
		{Seam: "image", Pointers: pointers("EcrImageStore", "", "image_store", "image_store.ecr_image_store")},
		{Seam: "secret", Pointers: pointers("LocalSecretStore", "", "secret_store", "secret_store.local_secret_store")},
		{Seam: "secret", Pointers: pointers("AwsSecretsManagerSecretStore", "", "secret_store", "secret_store.aws_secrets_manager_secret_store")},
		{Seam: "secret", Pointers: pointers("GcpSecretManagerSecretStore", "secret_store.gcp_secret_manager_secret_store")},
		{Seam: "runner", Pointers: []string{"agent_env.runner.local_runner:LocalRunner"}},
		{Seam: "credentials", Pointers: pointers("SecretStoreCredentials", "", "image_store", "image_store.oci_registry_credentials")},
		{Seam: "credentials", Pointers: pointers("EcrCredentials", "", "image_store", "image_store.ecr_image_store")},
		{Seam: "credentials", Pointers: pointers("GoogleAccessTokenCredentials", "image_store.google_credentials")},
	}
}

// ReferencePointers returns every `impl` spelling the reference accepts for one of its store, credentials or runner classes,
// nil for a class it does not have. They are what a Backend that reads the same settings is handed in with.
func ReferencePointers(class string) []string {
	for _, b := range referenceBackends() {
		if strings.HasSuffix(b.Pointers[0], ":"+class) {
			return b.Pointers
		}
	}
	return nil
}

// find returns the backend a pointer names among list.
func find(list []Backend, pointer string) (Backend, bool) {
	i := slices.IndexFunc(list, func(b Backend) bool { return slices.Contains(b.Pointers, pointer) })
	if i < 0 {
		return Backend{}, false
	}
	return list[i], true
}
