package egress

import (
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/homes"
	"github.com/pccrun/pccrun/netproxy/rules"
	"github.com/pccrun/pccrun/profiles"
)

// endpoints are the variables by which agents are sent to another server than their
// maker's, by the profiles of the agents that read them.
var endpoints = map[string][]string{
	"ANTHROPIC_BASE_URL":         {"claude", "opencode"},
	"ANTHROPIC_API_BASE":         {"aider"},
	"OPENAI_BASE_URL":            {"codex", "opencode", "qwen"},
	"COPILOT_PROVIDER_BASE_URL":  {"copilot"},
	"AMP_URL":                    {"amp"},
	"OPENAI_API_BASE":            {"aider"},
	"CODEX_OSS_BASE_URL":         {"codex"},
	"OLLAMA_HOST":                {"aider", "opencode"},
	"OLLAMA_API_BASE":            {"aider"},
	"GOOGLE_GEMINI_BASE_URL":     {"gemini"},
	"GOOGLE_VERTEX_BASE_URL":     {"gemini"},
	"CODE_ASSIST_ENDPOINT":       {"gemini"},
	"AZURE_OPENAI_ENDPOINT":      {"opencode"},
	"AZURE_API_BASE":             {"aider"},
	"LM_STUDIO_API_BASE":         {"aider"},
	"ANTHROPIC_BEDROCK_BASE_URL": {"claude"},
	"ANTHROPIC_VERTEX_BASE_URL":  {"claude"},
}

// ollamaPort is the one that OLLAMA_HOST means where it names none.
const ollamaPort = 11434

// warnOfEndpoints says which of these variables the command gets, or would have to get, whose
// server the policy does not let it reach: an agent tries for a minute before it says so.
func (p *Plan) warnOfEndpoints(host *Host, set *rules.Set) {
	for _, name := range slices.Sorted(maps.Keys(endpoints)) {
		d := p.policy.DecideEnv(name)
		value, flag := host.Getenv(name), ""
		switch {
		case d.Action == profiles.EnvSetTo:
			value = d.Value
		case value == "":
			continue
		case d.Action == profiles.EnvScrubbed:
			if !slices.ContainsFunc(endpoints[name], func(agent string) bool {
				return slices.Contains(p.policy.Layers, "built-in "+agent)
			}) {
				continue
			}
			flag = "--env " + name + " "
		}
		if server, port, ok := serverOf(name, value); ok {
			p.warnOf(name, server, port, flag, set)
		}
	}
	for _, s := range homes.Servers(p.policy) { // what is elsewhere may be one of many that the agent knows, and is said when it is tried
		if server, port, ok := serverOf("", s.URL); ok && loopback(server) {
			p.warnOf(s.File, server, port, "", set)
		}
	}
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// warnOf says why the command does not reach a server that something names, if it does not; the flag passes a variable.
func (p *Plan) warnOf(name, server string, port uint16, flag string, set *rules.Set) {
	v := set.Decide(server, port)
	text := name + " names " + net.JoinHostPort(server, strconv.Itoa(int(port)))
	switch {
	case v.Action != rules.Deny && flag == "":
		return
	case v.Action != rules.Deny:
		text += ", and is not passed: " + strings.TrimSpace(flag) + " passes it"
	case v.AllowWith == "":
		text += ", which " + v.Rule + " denies"
	default:
		text += ", not allowed: " + flag + v.AllowWith + " opens it"
	}
	if !slices.Contains(p.Warnings, text) {
		p.Warnings = append(p.Warnings, text)
	}
}

// serverOf returns the host and port that the value of such a variable names.
func serverOf(name, value string) (host string, port uint16, ok bool) {
	ollama := strings.HasPrefix(name, "OLLAMA_")
	if ollama && !strings.Contains(value, "://") {
		value = "http://" + value
	}
	u, err := url.Parse(value)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" {
		return "", 0, false
	}
	host = u.Hostname()
	if ollama && (host == "" || host == "0.0.0.0" || host == "::") {
		host = "127.0.0.1" // what a client makes of the address at which the server listens
	}
	switch n, err := strconv.ParseUint(u.Port(), 10, 16); {
	case err == nil:
		port = uint16(n)
	case ollama && u.Scheme == "http":
		port = ollamaPort
	case u.Scheme == "http":
		port = 80
	default:
		port = 443
	}
	return host, port, host != ""
}
