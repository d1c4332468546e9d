//go:build carries

package main

import _ "embed"

// carriedForPlaces is this program as it goes up to clouds (place_linux.go), by gzip: make build makes it.
//
//go:embed place.gz
var carriedForPlaces string
