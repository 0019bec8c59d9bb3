package trajectory

// Grow makes a log think that it holds so many bytes more.
func Grow(l *Log, bytes int) { l.size += bytes }
