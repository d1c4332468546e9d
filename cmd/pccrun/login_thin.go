//go:build thin && linux

package main

import "github.com/pccrun/pccrun/homes"

// login is the whole program's, which speaks TLS.
func (r *homeRequest) login(string, *homes.Entry) int { return runWhole(r.args) }
