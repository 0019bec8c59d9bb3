// Package interop holds the tests that run the program and the reference on the same inputs and on the same state folder.
package interop
