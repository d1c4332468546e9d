package namespaces

func stdioRole([]string) error   { return nil }
func pumpRole([]string) error    { return nil }
func shedRole([]string) error    { return nil }
func aliasesRole([]string) error { return nil }
