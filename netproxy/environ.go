package netproxy

import (
	"net/url"
	"strings"
)

// Environ returns the variables, NAME=VALUE, that make programs use the HTTP
// proxy at proxyURL, e.g. "http://127.0.0.1:3128", for everything but the
// loopback and the hosts in noProxy.
//
// Most programs read the first four. ALL_PROXY is left out on purpose: with a
// socks URL in it, Python's httpx and all that is built on it refuse to start.
// Java reads no variable but JAVA_TOOL_OPTIONS, which makes every JVM print a
// line on stderr, and ssh reads none: docs/network.md says what to do there.
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
	}
	if u, err := url.Parse(proxyURL); err == nil && u.Port() != "" {
		env = append(env,
			"CLOUDSDK_PROXY_TYPE=http",
			"CLOUDSDK_PROXY_ADDRESS="+u.Hostname(),
			"CLOUDSDK_PROXY_PORT="+u.Port(),
			"RSYNC_PROXY="+u.Host)
	}
	return env
}
