package spending

import (
	"encoding/json"
	"net/url"
	"slices"
	"strings"
)

// An API is a way in which answers say what they have used.
type API string

// The APIs whose answers are counted. Others are not asked under a budget.
const (
	None      API = ""          // a request that costs nothing
	Anthropic API = "anthropic" // Messages
	OpenAI    API = "openai"    // Responses, Chat Completions, and what copies them
	Google    API = "google"    // generateContent
)

// hosts are those of APIs that cost money, and below a dot all that lie below it.
var hosts = [...]string{
	"api.anthropic.com", "api.openai.com", "chatgpt.com", "generativelanguage.googleapis.com", "cloudcode-pa.googleapis.com", "aiplatform.googleapis.com",
	"openrouter.ai", "opencode.ai", "ampcode.com", "portal.qwen.ai", "api.deepseek.com", "api.mistral.ai", "api.x.ai", "api.groq.com", "api.z.ai", "api.moonshot.ai",
	".openai.com", ".openai.azure.com", ".services.ai.azure.com", ".githubcopilot.com", ".aliyuncs.com", ".amazonaws.com", ".googleapis.com",
}

// Hosts returns the hosts of APIs that are known by name; those below a name begin with a dot.
func Hosts() []string { return slices.Clone(hosts[:]) }

// Metered reports whether a host is that of an API, by its canonical name. Of those that offer much else, it goes by the name
// that they give their models' servers.
func Metered(host string) bool {
	switch {
	case strings.HasSuffix(host, ".googleapis.com"):
		return slices.Contains(hosts[:], host) || strings.HasSuffix(host, "aiplatform.googleapis.com") || strings.HasSuffix(host, "cloudcode-pa.googleapis.com")
	case strings.HasSuffix(host, ".amazonaws.com"):
		return strings.HasPrefix(host, "bedrock")
	case strings.HasSuffix(host, ".aliyuncs.com"):
		return strings.HasPrefix(host, "dashscope")
	case strings.HasSuffix(host, ".openai.com"):
		return !strings.HasPrefix(host, "auth.")
	}
	return slices.ContainsFunc(hosts[:], func(h string) bool { return h == host || h[0] == '.' && strings.HasSuffix(host, h) })
}

// Reaches reports whether the servers of a host may be those of an API: of [Metered] hosts, and of others below the same
// registered name, many answer whoever names the API within a connection to them.
func Reaches(host string) bool {
	return Metered(host) || slices.ContainsFunc(hosts[:], func(h string) bool {
		labels := strings.Split(h, ".")
		registered := strings.Join(labels[len(labels)-2:], ".")
		return h[0] != '.' && (host == registered || strings.HasSuffix(host, "."+registered))
	})
}

// costs reports whether requests with a segment in their path cost money until the opposite is known: below a version or the
// name of an API, and those of gRPC (/package.Service/Method), which some APIs take too.
func costs(segment string) bool {
	name, _, _ := strings.Cut(segment, ":")
	version := len(name) > 1 && name[0] == 'v' && name[1] >= '0' && name[1] <= '9'
	return version || strings.ContainsAny(name, ".$") || slices.Contains([]string{"openai", "model", "models"}, name)
}

// free are the ends of paths of requests that cost nothing.
var free = [...]string{
	"/messages/count_tokens", ":counttokens", "/responses/input_tokens", "/oauth/token", "/files", "/uploads",
	":loadcodeassist", ":onboarduser", ":recordcodeassistmetrics", ":recordsmartchoicesfeedback", ":fetchadmincontrols", ":retrieveuserquota", ":listexperiments", ":setcodeassistglobalusersetting",
}

// counted are the ends of paths of requests whose answers are counted.
var counted = [...]struct {
	end string
	api API
}{
	{"/messages", Anthropic}, {":rawpredict", Anthropic}, {":streamrawpredict", Anthropic},
	{"/responses", OpenAI}, {"/responses/compact", OpenAI}, {"/chat/completions", OpenAI}, {"/completions", OpenAI}, {"/embeddings", OpenAI},
	{":generatecontent", Google}, {":streamgeneratecontent", Google},
}

// Shaped reports whether a path that [Judge] counts is a model's whatever host it is asked of.
func Shaped(path string) bool {
	plain := strings.TrimSuffix(strings.ToLower(path), "/")
	return slices.ContainsFunc([]string{"/v1/messages", "/v1/responses", "/chat/completions", ":generatecontent", ":streamgeneratecontent"},
		func(end string) bool { return strings.HasSuffix(plain, end) })
}

// Error is a refusal in the form in which the clients of an API print what it says; of no API in one that most understand.
func (a API) Error(status int, message string) []byte {
	kind := map[int][3]string{
		402: {"billing_error", "insufficient_quota", "FAILED_PRECONDITION"},
		429: {"rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED"},
	}[status]
	if kind[0] == "" {
		kind = [3]string{"permission_error", "invalid_request_error", "PERMISSION_DENIED"}
	}
	body := map[string]any{"type": "error", "error": map[string]any{"type": kind[0], "message": message}}
	switch a {
	case OpenAI:
		body = map[string]any{"error": map[string]any{"message": message, "type": kind[1], "param": nil, "code": kind[1]}}
	case Google:
		body = map[string]any{"error": map[string]any{"code": status, "message": message, "status": kind[2]}}
	}
	text, _ := json.Marshal(body) // of texts and numbers: it cannot fail
	return text
}

// Judge says how the answer to a request to an API's host is counted, by the request's method and path as it was sent. Where
// why is not empty, nobody can say what the request would cost.
func Judge(method, path string) (api API, why string) {
	switch method {
	case "GET", "HEAD", "OPTIONS", "DELETE":
		return None, ""
	}
	plain, err := url.PathUnescape(path)
	if err != nil || strings.ContainsAny(plain, "%\\;?# ") || strings.Contains(plain, "//") || strings.Contains(plain, "/.") {
		return None, "servers may read its path in different ways"
	}
	plain = strings.TrimSuffix(strings.ToLower(plain), "/")
	ends := func(end string) bool { return strings.HasSuffix(plain, end) }
	if slices.ContainsFunc(free[:], ends) {
		return None, ""
	}
	for _, c := range counted {
		if ends(c.end) {
			return c.api, ""
		}
	}
	if slices.ContainsFunc(strings.Split(plain, "/"), costs) || strings.HasPrefix(plain+"/", "/batch/") { // Google's, which holds other requests
		return None, "its answer does not say what it costs"
	}
	return None, ""
}
