package workspace

import "github.com/pccrun/pccrun/workspace/quarantine"

// A Finding is [quarantine.Finding].
type Finding = quarantine.Finding

// A FindingKind is [quarantine.FindingKind].
type FindingKind = quarantine.FindingKind

// The kinds.
const (
	Stashed = quarantine.Stashed
	Inert   = quarantine.Inert
	Review  = quarantine.Review
	Address = quarantine.Address
	Setting = quarantine.Setting
)

// Why a finding is one that no pattern names.
const (
	TooMuch = quarantine.TooMuch
	Removed = quarantine.Removed
)
