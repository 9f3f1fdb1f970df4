// Command packaging assembles a container image from static binaries, without a container engine.
//
// It writes an OCI image layout as one tar file. The image has no base: it holds the binary and
// nothing else. The same binaries give the same bytes, because the image has no times of its own.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// user is the account of the process: no root, and a number, so that a kubelet can check it.
const user = "65532:65532"

// pairs collects the values of a flag that may be repeated: KEY=VALUE.
type pairs [][2]string

func (p *pairs) String() string { return fmt.Sprint([][2]string(*p)) }

func (p *pairs) Set(text string) error {
	key, value, found := strings.Cut(text, "=")
	if !found || key == "" || value == "" {
		return fmt.Errorf("%q is not KEY=VALUE", text)
	}
	*p = append(*p, [2]string{key, value})
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "packaging:", err)
		os.Exit(1)
	}
}

func run() error {
	var binaries, labels pairs
	flag.Var(&binaries, "binary", "`ARCH=FILE`: the static binary for an architecture (amd64, arm64); repeatable")
	flag.Var(&labels, "label", "`KEY=VALUE`: a label of the image; repeatable")
	name := flag.String("name", "", "the image's name with its tag")
	program := flag.String("program", "muster", "the name of the binary in the image")
	out := flag.String("out", "", "the tar file to write")
	flag.Parse()
	if len(binaries) == 0 || *name == "" || *out == "" || flag.NArg() > 0 {
		flag.Usage()
		return errors.New("--binary, --name and --out are required, and nothing else")
	}
	if !strings.Contains(*name, ":") {
		return fmt.Errorf("--name %q has no tag", *name)
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, binary := range binaries {
		image, platform, err := imageOf(binary[0], binary[1], *program, labels)
		if err != nil {
			return fmt.Errorf("%s: %w", binary[0], err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: platform},
		})
	}
	return write(index, *name, *out)
}

// imageOf returns the image of one architecture.
func imageOf(arch, path, program string, labels pairs) (v1.Image, *v1.Platform, error) {
	layer, err := layerOf(path, program)
	if err != nil {
		return nil, nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{
		Layer:     layer,
		MediaType: types.OCILayer,
		History:   v1.History{CreatedBy: "COPY " + program + " /" + program},
	})
	if err != nil {
		return nil, nil, err
	}
	found, err := image.ConfigFile()
	if err != nil {
		return nil, nil, err
	}
	config := found.DeepCopy()
	config.OS, config.Architecture = "linux", arch
	config.Config.User = user
	config.Config.Entrypoint = []string{"/" + program}
	config.Config.WorkingDir = "/"
	config.Config.Labels = map[string]string{}
	for _, label := range labels {
		config.Config.Labels[label[0]] = label[1]
	}
	image, err = mutate.ConfigFile(image, config)
	return image, &v1.Platform{OS: "linux", Architecture: arch}, err
}

// layerOf returns a layer with the binary as /PROGRAM, which belongs to root and may be run by all.
func layerOf(path, program string) (v1.Layer, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var buffer bytes.Buffer
	writer := tar.NewWriter(&buffer)
	if err := add(writer, program, 0o555, content); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
}

// write writes the index as an OCI image layout in one tar file.
func write(index v1.ImageIndex, name, out string) error {
	dir, err := os.MkdirTemp("", "muster-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	_, tag, _ := strings.Cut(name[strings.LastIndex(name, "/")+1:], ":")
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	// The first annotation is OCI's, which is the tag; the second is containerd's, which is all of it.
	annotations := map[string]string{"org.opencontainers.image.ref.name": tag, "io.containerd.image.name": name}
	if err := path.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer file.Close()
	writer := tar.NewWriter(file)
	// WalkDir goes in lexical order.
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return add(writer, inside, 0o444, content)
	})
	if err != nil {
		return err
	}
	if err := writer.Close(); err != nil {
		return err
	}
	return file.Close()
}

func add(writer *tar.Writer, name string, mode int64, content []byte) error {
	header := tar.Header{Name: name, Mode: mode, Size: int64(len(content)), ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg}
	if err := writer.WriteHeader(&header); err != nil {
		return err
	}
	_, err := writer.Write(content)
	return err
}
