package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// unset is the version that files of the source have, which a release replaces.
const unset = "0.0.0"

// packChart writes the Helm chart, with the version of the release.
func (r *release) packChart() error {
	root := filepath.Join(r.source, "internal", "packaging", "chart")
	var files []file
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		body, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		// A chart's files lie in a folder of its name, with slashes on every system.
		inside, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		// The versions of the chart and of the program stand there alone.
		if inside == "Chart.yaml" {
			body = bytes.ReplaceAll(body, []byte(unset), []byte(r.version))
		}
		files = append(files, file{path: "gatehouse/" + filepath.ToSlash(inside), body: body})
		return nil
	})
	if err != nil {
		return err
	}
	body, err := compressedTar(files, r.time, false)
	if err != nil {
		return err
	}
	return r.write("gatehouse-chart-"+r.version+".tgz", body)
}

// packCompose writes the files for Compose into one folder, with the dashboard and the alerts.
func (r *release) packCompose() error {
	files, err := readFolder(filepath.Join(r.source, "internal", "packaging", "compose"))
	if err != nil {
		return err
	}
	watching, err := readFolder(filepath.Join(r.source, "docs", "monitoring"))
	if err != nil {
		return err
	}
	files = append(files, watching...)
	name := "gatehouse-compose-" + r.version
	// In the source the dashboard lies in docs, for which an unpacked archive has no place.
	replace := strings.NewReplacer(unset, r.version, "../../../docs/monitoring/", "./")
	for i, f := range files {
		if f.path == "compose.yaml" {
			files[i].body = []byte(replace.Replace(string(f.body)))
		}
		files[i].path = name + "/" + f.path
	}
	body, err := compressedTar(files, r.time, false)
	if err != nil {
		return err
	}
	return r.write(name+".tar.gz", body)
}

// A component is a part of a program in CycloneDX's form.
type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
	Ref     string `json:"bom-ref,omitempty"`
}

// writeSBOM writes what a binary is made of, in CycloneDX's JSON: what the linker has noted in the binary itself.
func (r *release) writeSBOM(t target, binary string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	// The standard library is no module of the list, and has faults that scanners look for, too.
	parts := []component{{
		Type: "library", Name: "std", Version: strings.TrimPrefix(info.GoVersion, "go"),
		PURL: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
	}}
	for _, module := range info.Deps {
		// What was compiled is the replacement.
		if module.Replace != nil {
			module = module.Replace
		}
		parts = append(parts, component{
			Type: "library", Name: module.Path, Version: module.Version,
			PURL: "pkg:golang/" + module.Path + "@" + module.Version,
		})
	}
	for i := range parts {
		// References must differ from one another, which package URLs do.
		parts[i].Ref = parts[i].PURL
	}
	name := r.archiveName(t)
	body, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": map[string]any{
			"timestamp": r.time.Format(time.RFC3339),
			"component": component{
				Type: "application", Name: "gatehouse", Version: r.version,
				PURL: "pkg:golang/" + info.Main.Path + "@v" + r.version, Ref: name,
			},
		},
		"components": parts,
	}, "", "  ")
	if err != nil {
		return err
	}
	return r.write(name+".cdx.json", append(body, '\n'))
}
