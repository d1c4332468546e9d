//go:build unix

package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"

	"github.com/moby/moby/client"
)

// hostImage is the name of the images that have nothing but the links of this machine's root, and
// the directories on the way to the engine's own files; their tag is a hash of those.
const hostImage = "pccrun-host"

// rootfs returns the image's one layer, and its name. Other directories are not in it: the
// runtime makes those that something is mounted on.
func rootfs(f *Facts) (layer []byte, name string, err error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	// A directory of its own, so that the image is not empty without a link.
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: insideDir[1:] + "/", Mode: 0o755}); err != nil {
		return nil, "", err
	}
	for _, e := range f.Root {
		h := &tar.Header{Typeflag: tar.TypeSymlink, Name: e.Path[1:], Linkname: e.Link, Mode: 0o777}
		if e.Dir && f.holdsEngine(e.Path) {
			h = &tar.Header{Typeflag: tar.TypeDir, Name: e.Path[1:] + "/", Mode: 0o755}
		} else if e.Link == "" {
			continue
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, "", err
		}
	}
	if err := w.Close(); err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(b.Bytes())
	return b.Bytes(), hostImage + ":" + hex.EncodeToString(sum[:6]), nil
}

// image makes sure that the image of a plan is there. What the user names is not
// fetched: the engine's own client does that, and asks for a login where one is needed.
func (p *Provider) image(ctx context.Context, name string, layer []byte) error {
	found, err := p.client.ImageInspect(ctx, name)
	switch {
	case err == nil && found.Config != nil && len(found.Config.Volumes) > 0:
		return &EngineError{
			Text:   "the image " + name + " declares volumes, which the engine would make writable",
			Advice: "use an image without VOLUME",
		}
	case err == nil:
		return nil
	case !notFound(err):
		return &EngineError{Text: "inspect the image " + name, Err: plain(err)}
	case layer == nil:
		return &EngineError{Text: "the image " + name + " is not there", Advice: "docker pull " + name}
	}
	answer, err := p.client.ImageImport(
		ctx,
		client.ImageImportSource{Source: bytes.NewReader(layer), SourceName: "-"},
		name,
		client.ImageImportOptions{Message: "the links of this machine's root, by pccrun"},
	)
	if err == nil {
		_, err = io.Copy(io.Discard, answer)
		answer.Close()
	}
	if err != nil {
		return &EngineError{Text: "make the image " + name, Err: plain(err)}
	}
	return nil
}
