package profiles

// DefaultProtect returns the rules of the built-in default profile for names that a host tool would
// execute: what holds where there is no run whose policy could be asked.
func DefaultProtect() (list []ProtectRule) {
	v, err := parseBuiltin("default")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	for _, section := range v.members {
		if section.key != "protect" {
			continue
		}
		for _, kind := range section.value.members {
			for _, item := range kind.value.items {
				list = append(list, ProtectRule{Pattern: item.text, Review: kind.key == "review", Home: kind.key == "home", Origin: Origin{Source: "default"}})
			}
		}
	}
	return list
}

// ParseSize reads a number of bytes as limits have them: 512m, 4g.
func ParseSize(s string) (int64, error) { return parseSize(s) }
