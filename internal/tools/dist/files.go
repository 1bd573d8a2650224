package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A file is one of an archive. Without a mode it is one that all may read; a path that ends with a slash is a folder.
type file struct {
	path   string
	body   []byte
	mode   int64
	owner  int
	config bool // what an administrator edits, and an update leaves alone
}

// readFolder reads the files right in a folder.
func readFolder(folder string) (files []file, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		body, err := os.ReadFile(filepath.Join(folder, entry.Name()))
		if err != nil {
			return nil, err
		}
		files = append(files, file{path: entry.Name(), body: body})
	}
	return files, nil
}

// sourceFile reads a file of the repository.
func (r *release) sourceFile(path string) ([]byte, error) {
	return os.ReadFile(filepath.Join(r.source, filepath.FromSlash(path)))
}

// tarFiles writes a tar of files, sorted by path, with a folder before what is in it if folders are wanted.
func tarFiles(files []file, at time.Time, folders bool) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	// The caller's files go into other packages, too, in their own order.
	files = slices.Clone(files)
	if folders {
		files = append(files, foldersOf(files)...)
	}
	// One commit makes the same archive each time; and a folder sorts before what is in it.
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.path, b.path) })
	for _, f := range files {
		head := &tar.Header{
			Name: f.path, Size: int64(len(f.body)), Mode: modeOf(f), Uid: f.owner, Gid: f.owner, ModTime: at,
			Typeflag: tar.TypeReg, Format: tar.FormatGNU,
		}
		if strings.HasSuffix(f.path, "/") {
			head.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(head); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.body); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// modeOf is the mode of a file, or the usual one.
func modeOf(f file) int64 {
	switch {
	case f.mode != 0:
		return f.mode
	case strings.HasSuffix(f.path, "/"):
		return 0o755
	}
	return 0o644
}

// foldersOf are the folders above files that are not among them.
func foldersOf(files []file) (folders []file) {
	known := make(map[string]bool)
	for _, f := range files {
		known[f.path] = true
	}
	for _, f := range files {
		for i, c := range f.path {
			folder := f.path[:i+1]
			if c == '/' && !known[folder] {
				known[folder] = true
				folders = append(folders, file{path: folder})
			}
		}
	}
	return folders
}

// compress is gzip, without a time and a name.
func compress(body []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(body); err != nil {
		return nil, err
	}
	err = w.Close()
	return out.Bytes(), err
}

// compressedTar is tarFiles and compress.
func compressedTar(files []file, at time.Time, folders bool) ([]byte, error) {
	body, err := tarFiles(files, at, folders)
	if err != nil {
		return nil, err
	}
	return compress(body)
}

// archiveName is the name of what is made for one target, without an ending.
func (r *release) archiveName(t target) string {
	return "gatehouse-" + r.version + "-" + t.system + "-" + t.processor
}

// packArchive writes the program with its license, completion scripts and man pages: a zip for Windows, tar.gz for
// all others.
func (r *release) packArchive(t target, binary []byte) error {
	license, err := r.sourceFile("LICENSE")
	if err != nil {
		return err
	}
	name := r.archiveName(t)
	program := "gatehouse"
	if t.system == "windows" {
		program += ".exe"
	}
	files := []file{{path: program, body: binary, mode: 0o755}, {path: "LICENSE", body: license}}
	for _, f := range r.manual {
		folder := "completion/"
		if strings.HasSuffix(f.path, ".1") {
			folder = "man/"
		}
		files = append(files, file{path: folder + f.path, body: f.body})
	}
	// All of it lies in one folder, so that unpacking puts nothing beside other files.
	for i := range files {
		files[i].path = name + "/" + files[i].path
	}
	if t.system == "windows" {
		body, err := zipFiles(files, r.time)
		if err != nil {
			return err
		}
		return r.write(name+".zip", body)
	}
	body, err := compressedTar(files, r.time, false)
	if err != nil {
		return err
	}
	return r.write(name+".tar.gz", body)
}

// zipFiles writes a zip.
func zipFiles(files []file, at time.Time) ([]byte, error) {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, f := range files {
		head := &zip.FileHeader{Name: f.path, Method: zip.Deflate, Modified: at}
		// Zip keeps the mode of Unix as well, for those who unpack it there.
		head.SetMode(os.FileMode(modeOf(f)))
		part, err := w.CreateHeader(head)
		if err != nil {
			return nil, err
		}
		if _, err := part.Write(f.body); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
