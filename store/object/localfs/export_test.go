package localfs

// LockName is lockName for tests.
var LockName = lockName
