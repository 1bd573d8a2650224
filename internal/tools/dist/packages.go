package main

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"path"
	"strings"

	"github.com/google/rpmpack"
)

const (
	summary     = "limits, locks and signals for many processes"
	description = "A server that limits and coordinates many processes: rate limits, semaphores,\n" +
		"locks, events, watchdogs, counters, barriers, and leases on shares of a quota,\n" +
		"over HTTP, RESP and gRPC."
	home       = "https://github.com/gatehousehq/gatehouse"
	maintainer = "Gatehouse <noreply@gatehouse.example>"
)

// systemFiles are the files of a package. The paths are those on which Debian and Fedora agree; zsh's differs.
func (r *release) systemFiles(binary []byte) ([]file, error) {
	files := []file{{path: "usr/bin/gatehouse", body: binary, mode: 0o755}}
	for _, f := range []struct {
		source string
		file   file
	}{
		{"internal/packaging/linux/gatehouse.service", file{path: "usr/lib/systemd/system/gatehouse.service"}},
		{"internal/packaging/linux/gatehouse.yaml", file{path: "etc/gatehouse/gatehouse.yaml", config: true}},
		{"LICENSE", file{path: "usr/share/doc/gatehouse/copyright"}},
	} {
		body, err := r.sourceFile(f.source)
		if err != nil {
			return nil, err
		}
		f.file.body = body
		files = append(files, f.file)
	}
	for _, f := range r.manual {
		switch path.Ext(f.path) {
		case ".1":
			// Debian wants pages compressed.
			page, err := compress(f.body)
			if err != nil {
				return nil, err
			}
			files = append(files, file{path: "usr/share/man/man1/" + f.path + ".gz", body: page})
		case ".bash":
			files = append(files, file{path: "usr/share/bash-completion/completions/gatehouse", body: f.body})
		case ".fish":
			files = append(files, file{path: "usr/share/fish/vendor_completions.d/gatehouse.fish", body: f.body})
		default:
			files = append(files, file{path: zshFolder + f.path, body: f.body})
		}
	}
	return files, nil
}

// zshFolder is where zsh looks on Debian, zshOfRPM where on Fedora.
const zshFolder, zshOfRPM = "usr/share/zsh/vendor-completions/", "usr/share/zsh/site-functions/"

// packageVersion is the version as packages sort it: with a tilde 0.1.0~dev comes before 0.1.0.
func (r *release) packageVersion() string { return strings.ReplaceAll(r.version, "-", "~") }

// scripts are what a package runs when it is installed and removed.
func (r *release) scripts() (after, before []byte, err error) {
	after, err = r.sourceFile("internal/packaging/linux/postinst")
	if err != nil {
		return nil, nil, err
	}
	before, err = r.sourceFile("internal/packaging/linux/prerm")
	return after, before, err
}

// packDeb writes a deb: an ar of its format, what is said of the package, and its files.
func (r *release) packDeb(t target, files []file) error {
	after, before, err := r.scripts()
	if err != nil {
		return err
	}
	var sums, configs strings.Builder
	size := 0
	inside := make([]file, len(files))
	for i, f := range files {
		size += len(f.body)
		fmt.Fprintf(&sums, "%x  %s\n", md5.Sum(f.body), f.path)
		if f.config {
			fmt.Fprintf(&configs, "/%s\n", f.path)
		}
		// dpkg's own archives begin paths so.
		inside[i] = f
		inside[i].path = "./" + f.path
	}
	// dpkg counts Installed-Size in KiB, and wants lines of a description indented.
	about := fmt.Sprintf("Package: gatehouse\nVersion: %s\nArchitecture: %s\nMaintainer: %s\n"+
		"Installed-Size: %d\nDepends: passwd\nSection: net\nPriority: optional\nHomepage: %s\nDescription: %s\n %s\n",
		r.packageVersion(), t.processor, maintainer, size/1024, home, summary,
		strings.ReplaceAll(description, "\n", "\n "))
	control, err := compressedTar([]file{
		{path: "./control", body: []byte(about)}, {path: "./md5sums", body: []byte(sums.String())},
		{path: "./conffiles", body: []byte(configs.String())},
		{path: "./postinst", body: after, mode: 0o755}, {path: "./prerm", body: before, mode: 0o755},
	}, r.time, true)
	if err != nil {
		return err
	}
	data, err := compressedTar(inside, r.time, true)
	if err != nil {
		return err
	}
	// Members begin at even places.
	deb := bytes.NewBufferString("!<arch>\n")
	for _, member := range []file{
		{path: "debian-binary", body: []byte("2.0\n")}, {path: "control.tar.gz", body: control},
		{path: "data.tar.gz", body: data},
	} {
		fmt.Fprintf(deb, "%-16s%-12d%-6d%-6d%-8s%-10d`\n", member.path, r.time.Unix(), 0, 0, "100644",
			len(member.body))
		deb.Write(member.body)
		if len(member.body)%2 == 1 {
			deb.WriteByte('\n')
		}
	}
	return r.write("gatehouse_"+r.packageVersion()+"_"+t.processor+".deb", deb.Bytes())
}

// packRPM writes an rpm.
func (r *release) packRPM(t target, files []file) error {
	// Fedora has its own names of processors.
	processor := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[t.processor]
	after, before, err := r.scripts()
	if err != nil {
		return err
	}
	about := rpmpack.RPMMetaData{
		Name: "gatehouse", Version: r.packageVersion(), Release: "1", Arch: processor, OS: "linux",
		Summary: summary, Description: description, URL: home, Packager: maintainer,
		Licence: "Apache-2.0", Compressor: "gzip", BuildTime: r.time, BuildHost: "localhost",
	}
	// By its file, which every distribution of rpm has, whatever its package is called.
	if err := about.Requires.Set("/usr/sbin/useradd"); err != nil {
		return err
	}
	p, err := rpmpack.NewRPM(about)
	if err != nil {
		return err
	}
	p.AddPostin(string(after))
	p.AddPreun(string(before))
	for _, f := range files {
		one := rpmpack.RPMFile{
			Name: "/" + strings.Replace(f.path, zshFolder, zshOfRPM, 1), Body: f.body, Mode: uint(modeOf(f)),
			Owner: "root", Group: "root", MTime: uint32(r.time.Unix()),
		}
		// An update keeps what an administrator has changed.
		if f.config {
			one.Type = rpmpack.ConfigFile | rpmpack.NoReplaceFile
		}
		p.AddFile(one)
	}
	var out bytes.Buffer
	if err := p.Write(&out); err != nil {
		return err
	}
	return r.write("gatehouse-"+r.packageVersion()+"-1."+processor+".rpm", out.Bytes())
}
