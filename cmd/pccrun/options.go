package main

import (
	"slices"
	"strings"
)

func flagNames(defs []flagDef) []string {
	var names []string
	for _, d := range defs {
		names = append(names, d.name)
	}
	return names
}

// helpFlags returns the flags that a help describes: in its first lines, and at
// the beginning of a line of its list. Where it says FLAGS those are meant that
// say what the policy is.
func helpFlags(help string) []string {
	var names []string
	add := func(words []string) {
		for _, w := range words {
			w = strings.TrimSuffix(w, ",")
			if strings.Trim(w, "-") != "" && strings.HasPrefix(w, "-") && strings.Trim(w, "abcdefghijklmnopqrstuvwxyz-") == "" && !slices.Contains(names, w) {
				names = append(names, w)
			}
		}
	}
	head, list, _ := strings.Cut(help, "\n\n")
	add(strings.FieldsFunc(head, func(r rune) bool { return strings.ContainsRune(" []|\n", r) }))
	for line := range strings.Lines(list) {
		if line, ok := strings.CutPrefix(line, "  -"); ok {
			flags, _, _ := strings.Cut("-"+line, "  ")
			add(strings.Fields(flags))
		}
	}
	if strings.Contains(head, "FLAGS") {
		add(flagNames(policyFlags()))
	}
	return names
}
