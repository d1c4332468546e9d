package events

import "strings"

// blank stands where a secret stood.
const blank = "…"

// Redact returns pccrun's own arguments fit to be kept: of `--env NAME=VALUE`
// and `--env=NAME=VALUE` the value is blanked. What follows `--` is the
// command's, whose flags mean what it says, and stays.
func Redact(argv []string) []string {
	out := append([]string(nil), argv...)
	for i := 0; i < len(out) && out[i] != "--"; i++ {
		flag, value, joined := strings.Cut(strings.TrimPrefix(out[i], "-"), "=")
		if flag != "-env" && flag != "env" || !strings.HasPrefix(out[i], "-") {
			continue
		}
		if !joined && i+1 < len(out) {
			i++
			value = out[i]
		}
		if name, _, ok := strings.Cut(value, "="); ok {
			out[i] = strings.TrimSuffix(out[i], value) + name + "=" + blank
		}
	}
	return out
}
