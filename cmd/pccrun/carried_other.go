//go:build !carries && !launcher

package main

// carriedForPlaces is nothing: this program goes up itself.
const carriedForPlaces = ""
