// Package e2e holds the tests that run the program itself, as a user does: a process, a home, a state folder, a real engine.
package e2e
