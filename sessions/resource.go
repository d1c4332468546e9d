package sessions

// A Resource names what a provider made for a session.
type Resource struct {
	Provider string            `json:"provider"`
	ID       string            `json:"id,omitempty"` // the provider's name for it; "" until it is known
	Region   string            `json:"region,omitempty"`
	Labels   map[string]string `json:"labels,omitempty"` // what it bears, from before it was made
}
