package netproxy

import (
	"net/url"
	"slices"
	"strings"
)

// AddEnviron returns env with the variables of [Environ] put in. They win over
// what env has of the same name, but for the settings that it has for git.
func AddEnviron(env []string, proxyURL string, noProxy ...string) []string {
	out := slices.Clone(env)
	find := func(name string) int {
		return slices.IndexFunc(out, func(e string) bool { return strings.HasPrefix(e, name+"=") })
	}
	ownGit := find("GIT_CONFIG_COUNT") >= 0
	for _, e := range Environ(proxyURL, noProxy...) {
		name, _, _ := strings.Cut(e, "=")
		i := find(name)
		switch {
		case strings.HasPrefix(name, "GIT_CONFIG_") && ownGit:
		case i < 0:
			out = append(out, e)
		default:
			out[i] = e
		}
	}
	return out
}

// AddEnvironWithout returns env with what programs need where there is no network at all.
func AddEnvironWithout(env []string) []string {
	if slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "GIT_CONFIG_COUNT=") }) {
		return env
	}
	return append(env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0="+noDetach, "GIT_CONFIG_VALUE_0=false")
}

// noDetach has git collect garbage before it ends: a process that a fetch or commit leaves in the background is
// ended with the command, halfway, in each run anew.
const noDetach = "gc.autoDetach"

// AddUncaptured returns env, in which [AddEnviron] has put its variables, with what
// programs need beside them that read none of those, where their connections are
// not captured. For Java that is the HTTP client's proxy, and a SOCKS proxy for plain
// sockets, which then asks for a name that nobody inside can resolve. It prints a
// line on stderr at each start for it. Its own loopback is left out by default.
func AddUncaptured(env []string, proxyURL string) []string {
	u, err := url.Parse(proxyURL)
	if err != nil || u.Port() == "" {
		return env
	}
	const name = "JAVA_TOOL_OPTIONS="
	var options []string
	for _, scheme := range [...]string{"http.proxy", "https.proxy", "socksProxy"} {
		options = append(options, "-D"+scheme+"Host="+u.Hostname(), "-D"+scheme+"Port="+u.Port())
	}
	if password, ok := u.User.Password(); ok { // its HTTP client takes none from a property
		options = append(options, "-Djava.net.socks.username="+u.User.Username(), "-Djava.net.socks.password="+password)
	}
	ours := strings.Join(options, " ")
	out := slices.Clone(env)
	if i := slices.IndexFunc(out, func(e string) bool { return strings.HasPrefix(e, name) }); i >= 0 {
		out[i] = name + ours + " " + strings.TrimPrefix(out[i], name) // of two settings of a property the last holds: the user's
		return out
	}
	return append(out, name+ours)
}

// Environ returns the variables, NAME=VALUE, that make programs use the HTTP
// proxy at proxyURL, e.g. "http://127.0.0.1:3128", for everything but the
// loopback and the hosts in noProxy.
//
// Most programs read the first four. ALL_PROXY is left out on purpose: with a
// socks URL in it, Python's httpx and all that is built on it refuse to start.
// Java reads no variable but JAVA_TOOL_OPTIONS, and prints a line on stderr at
// each start when it does ([AddUncaptured]); ssh reads none: connections are captured of both.
func Environ(proxyURL string, noProxy ...string) []string {
	direct := strings.Join(append([]string{"localhost", "127.0.0.1", "::1"}, noProxy...), ",")
	env := []string{
		"http_proxy=" + proxyURL, // curl reads this one in lower case alone
		"https_proxy=" + proxyURL,
		"HTTP_PROXY=" + proxyURL,
		"HTTPS_PROXY=" + proxyURL,
		"no_proxy=" + direct,
		"NO_PROXY=" + direct,
		"NODE_USE_ENV_PROXY=1",         // node's own fetch and http, from 22.21 and 24.5 on
		"npm_config_proxy=" + proxyURL, // over the proxy of an .npmrc
		"npm_config_https_proxy=" + proxyURL,
		"npm_config_noproxy=" + direct,
		"YARN_HTTP_PROXY=" + proxyURL,
		"YARN_HTTPS_PROXY=" + proxyURL,
		"CARGO_HTTP_PROXY=" + proxyURL, // over the http.proxy of a .gitconfig
		"GLOBAL_AGENT_HTTP_PROXY=" + proxyURL,
		"GLOBAL_AGENT_NO_PROXY=" + direct,
		"ELECTRON_GET_USE_PROXY=1",
		"HEX_HTTP_PROXY=" + proxyURL, // Elixir's
		"HEX_HTTPS_PROXY=" + proxyURL,
		"GIT_CONFIG_COUNT=2", // over the http.proxy of a .gitconfig, which would win over all of these
		"GIT_CONFIG_KEY_0=http.proxy",
		"GIT_CONFIG_VALUE_0=" + proxyURL,
		"GIT_CONFIG_KEY_1=" + noDetach,
		"GIT_CONFIG_VALUE_1=false",
	}
	if u, err := url.Parse(proxyURL); err == nil && u.Port() != "" {
		env = append(env,
			"CLOUDSDK_PROXY_TYPE=http",
			"CLOUDSDK_PROXY_ADDRESS="+u.Hostname(),
			"CLOUDSDK_PROXY_PORT="+u.Port(),
			"RSYNC_PROXY="+strings.TrimPrefix(u.User.String()+"@"+u.Host, "@"))
		if password, ok := u.User.Password(); ok {
			env = append(env, "CLOUDSDK_PROXY_USERNAME="+u.User.Username(), "CLOUDSDK_PROXY_PASSWORD="+password)
		}
	}
	return env
}
