package main

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// authorities is where Debian and the base of the Dockerfile keep the certificates that rediss:// and etcd
// need.
const authorities = "/etc/ssl/certs/ca-certificates.crt"

// nobody is the user and group of the image.
const nobody = 65532

// An imageConfig is how the program of an image is run. The names are those of the OCI image specification,
// and Docker's for the health command, of which the specification knows none.
type imageConfig struct {
	Architecture string    `json:"architecture"`
	OS           string    `json:"os"`
	Created      time.Time `json:"created"`
	Config       struct {
		User         string
		ExposedPorts map[string]struct{}
		Entrypoint   []string
		Cmd          []string
		Healthcheck  struct {
			Test                           []string
			Interval, Timeout, StartPeriod time.Duration
		}
		Labels map[string]string
	} `json:"config"`
	Rootfs struct {
		Type   string   `json:"type"`
		Layers []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// A descriptor refers to a part of an image.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    map[string]string `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// packImage writes an archive that "docker load", podman, skopeo and containerd read: an OCI layout, and
// beside it the list by which older versions of Docker find the same parts.
func (r *release) packImage(t target, binary []byte) error {
	certificates, err := os.ReadFile(authorities)
	if err != nil {
		return fmt.Errorf("certificates for the image: %w; the package ca-certificates has them", err)
	}
	// The image has no system: only the program, what it trusts, and a folder that its user may write to.
	plain, err := tarFiles([]file{
		{path: "gatehouse", body: binary, mode: 0o755},
		{path: "etc/ssl/certs/ca-certificates.crt", body: certificates},
		{path: "var/lib/gatehouse/", mode: 0o700, owner: nobody},
	}, r.time, true)
	if err != nil {
		return err
	}
	layer, err := compress(plain)
	if err != nil {
		return err
	}
	// The configuration names the layer as it is unpacked, the manifest as it is packed.
	config, err := json.Marshal(r.imageConfig(t, digest(plain)))
	if err != nil {
		return err
	}
	const mediaType = "application/vnd.oci.image."
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": mediaType + "manifest.v1+json",
		"config": descriptor{MediaType: mediaType + "config.v1+json", Digest: digest(config), Size: len(config)},
		"layers": []descriptor{
			{MediaType: mediaType + "layer.v1.tar+gzip", Digest: digest(layer), Size: len(layer)},
		},
	})
	if err != nil {
		return err
	}
	name := "gatehouse:" + r.version
	index, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": mediaType + "index.v1+json",
		"manifests": []descriptor{{
			MediaType: mediaType + "manifest.v1+json", Digest: digest(manifest), Size: len(manifest),
			Platform: map[string]string{"os": t.system, "architecture": t.processor},
			Annotations: map[string]string{
				"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": "docker.io/library/" + name,
			},
		}},
	})
	if err != nil {
		return err
	}
	// Older versions of Docker read manifest.json and know nothing of index.json.
	docker, err := json.Marshal([]map[string]any{{
		"Config": blob(config), "RepoTags": []string{name}, "Layers": []string{blob(layer)},
	}})
	if err != nil {
		return err
	}
	archive, err := tarFiles([]file{
		{path: "oci-layout", body: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{path: "index.json", body: index}, {path: "manifest.json", body: docker},
		{path: blob(config), body: config}, {path: blob(layer), body: layer}, {path: blob(manifest), body: manifest},
	}, r.time, true)
	if err != nil {
		return err
	}
	return r.write("gatehouse-"+r.version+"-image-"+t.processor+".tar", archive)
}

// imageConfig is what the last lines of the Dockerfile say; a test compares the two.
func (r *release) imageConfig(t target, layer string) imageConfig {
	var c imageConfig
	c.Architecture, c.OS, c.Created = t.processor, t.system, r.time
	// By number, as the image has no file of users.
	c.Config.User = fmt.Sprintf("%d:%d", nobody, nobody)
	c.Config.ExposedPorts = map[string]struct{}{"5505/tcp": {}, "5506/tcp": {}, "5507/tcp": {}}
	c.Config.Entrypoint = []string{"/gatehouse"}
	c.Config.Cmd = []string{"serve", "--http", ":5505", "--grpc", ":5506", "--resp", ":5507", "--insecure"}
	health := &c.Config.Healthcheck
	health.Test = []string{"CMD", "/gatehouse", "health"}
	health.Interval, health.Timeout, health.StartPeriod = 10*time.Second, 5*time.Second, 5*time.Second
	c.Config.Labels = map[string]string{
		"org.opencontainers.image.title": "gatehouse", "org.opencontainers.image.version": r.version,
		"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": home,
	}
	c.Rootfs.Type, c.Rootfs.Layers = "layers", []string{layer}
	return c
}

// digest names a part by its content.
func digest(body []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(body)) }

// blob is where a part is in an OCI layout.
func blob(body []byte) string { return fmt.Sprintf("blobs/sha256/%x", sha256.Sum256(body)) }
