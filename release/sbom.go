package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"time"

	cyclonedx "github.com/CycloneDX/cyclonedx-go"
)

// sbom writes the list of what a program is linked from, in CycloneDX 1.6.
func sbom(to, version string, at commit, p built) error {
	info, err := buildinfo.ReadFile(p.whole)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(p.program)
	if err != nil {
		return err
	}
	list := cyclonedx.NewBOM()
	list.Metadata = &cyclonedx.Metadata{
		Timestamp: at.Time.Format(time.RFC3339),
		Component: &cyclonedx.Component{
			BOMRef: "pccrun", Type: cyclonedx.ComponentTypeApplication, Name: "pccrun", Version: version,
			Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(text))}},
		},
	}
	parts := []cyclonedx.Component{{BOMRef: "go", Type: cyclonedx.ComponentTypeLibrary, Name: "std", Version: info.GoVersion, PackageURL: "pkg:golang/std@" + info.GoVersion}}
	for _, m := range info.Deps {
		url := "pkg:golang/" + m.Path + "@" + m.Version
		parts = append(parts, cyclonedx.Component{BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: url})
	}
	list.Components = &parts
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	return cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(list)
}
