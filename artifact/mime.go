package artifact

import (
	"path"
	"strings"
)

const octetStream = "application/octet-stream"

// ContentType returns the MIME type a stored file gets by its name, application/octet-stream when the extension is not known.
// The table is built in, so the answer is the same on every machine. A compressed file has the type of what it holds.
func ContentType(name string) string {
	name = base(name)
	stem, ext := splitExt(name)
	if ext == ".tgz" || ext == ".taz" || ext == ".tz" {
		ext = ".tar"
	}
	switch strings.ToLower(ext) {
	case ".gz", ".bz2", ".xz", ".br":
		_, ext = splitExt(stem)
	}
	if ext == ".Z" {
		_, ext = splitExt(stem)
	}
	if t, ok := byExtension[strings.ToLower(ext)]; ok {
		return t
	}
	return octetStream
}

// splitExt cuts the last extension off; leading dots begin none.
func splitExt(name string) (stem, ext string) {
	trimmed := strings.TrimLeft(name, ".")
	ext = path.Ext(trimmed)
	return strings.TrimSuffix(name, ext), ext
}

// CollectedContentType returns the MIME type of a collected file: a shorter table, whose extensions must be in lower case.
func CollectedContentType(name string) string {
	if t, ok := collectedTypes[path.Ext(name)]; ok {
		return t
	}
	return octetStream
}

var collectedTypes = map[string]string{
	".json": "application/json", ".md": "text/markdown", ".sh": "text/x-shellscript", ".patch": "text/x-diff", ".diff": "text/x-diff",
	".txt": "text/plain", ".csv": "text/csv", ".pdf": "application/pdf", ".png": "image/png", ".jpg": "image/jpeg",
	".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".bmp": "image/bmp", ".mp3": "audio/mpeg", ".wav": "audio/wav",
	".m4a": "audio/mp4", ".ogg": "audio/ogg", ".aac": "audio/aac", ".flac": "audio/flac", ".mp4": "video/mp4", ".webm": "video/webm",
	".mov":  "video/quicktime",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", ".xls": "application/vnd.ms-excel",
	".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document", ".doc": "application/msword",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation", ".ppt": "application/vnd.ms-powerpoint",
	".ics": "text/calendar", ".eml": "message/rfc822",
}

var byExtension = map[string]string{
	".7z": "application/x-7z-compressed", ".aac": "audio/aac", ".aif": "audio/x-aiff", ".aiff": "audio/x-aiff", ".apk": "application/vnd.android.package-archive",
	".avi": "video/x-msvideo", ".avif": "image/avif", ".bat": "application/x-msdos-program", ".bib": "text/x-bibtex", ".bin": octetStream,
	".bmp": "image/bmp", ".c": "text/x-csrc", ".cc": "text/x-c++src", ".class": "application/java-vm", ".cpp": "text/x-c++src",
	".css": "text/css", ".csv": "text/csv", ".cxx": "text/x-c++src", ".deb": "application/vnd.debian.binary-package", ".diff": "text/x-diff",
	".doc": "application/msword", ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
	".dtd": "application/xml-dtd", ".eml": "message/rfc822", ".eps": "application/postscript", ".epub": "application/epub+zip",
	".exe": "application/x-msdos-program", ".flac": "audio/flac", ".gif": "image/gif", ".h": "text/x-chdr", ".hpp": "text/x-c++hdr",
	".hs": "text/x-haskell", ".htm": "text/html", ".html": "text/html", ".ico": "image/vnd.microsoft.icon", ".ics": "text/calendar",
	".jar": "application/java-archive", ".java": "text/x-java", ".jpeg": "image/jpeg", ".jpg": "image/jpeg", ".js": "text/javascript",
	".json": "application/json", ".m3u8": "application/vnd.apple.mpegurl", ".m4a": "audio/mp4", ".md": "text/markdown",
	".mid": "audio/midi", ".mjs": "text/javascript", ".mkv": "video/x-matroska", ".mov": "video/quicktime", ".mp3": "audio/mpeg",
	".mp4": "video/mp4", ".mpeg": "video/mpeg", ".mpg": "video/mpeg", ".odp": "application/vnd.oasis.opendocument.presentation",
	".ods": "application/vnd.oasis.opendocument.spreadsheet", ".odt": "application/vnd.oasis.opendocument.text", ".ogg": "audio/ogg",
	".otf": "font/otf", ".patch": "text/x-diff", ".pdf": "application/pdf", ".pl": "text/x-perl", ".pm": "text/x-perl",
	".png": "image/png", ".ppt": "application/vnd.ms-powerpoint",
	".pptx": "application/vnd.openxmlformats-officedocument.presentationml.presentation", ".ps": "application/postscript",
	".py": "text/x-python", ".pyc": "application/x-python-code", ".rar": "application/vnd.rar", ".rst": "text/prs.fallenstein.rst",
	".rtf": "application/rtf", ".scala": "text/x-scala", ".sh": "text/x-sh", ".sql": "application/sql", ".sqlite": "application/vnd.sqlite3",
	".svg": "image/svg+xml", ".tar": "application/x-tar", ".tcl": "text/x-tcl", ".tex": "text/x-tex", ".text": "text/plain",
	".tif": "image/tiff", ".tiff": "image/tiff", ".tsv": "text/tab-separated-values", ".ttf": "font/ttf", ".txt": "text/plain",
	".wasm": "application/wasm", ".wav": "audio/x-wav", ".webm": "video/webm", ".webp": "image/webp", ".woff": "font/woff",
	".woff2": "font/woff2", ".xhtml": "application/xhtml+xml", ".xls": "application/vnd.ms-excel",
	".xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", ".xml": "application/xml", ".xsl": "application/xslt+xml",
	".zip": "application/zip",
}
