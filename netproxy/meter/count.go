// Package meter says what the answers of model APIs cost: it finds their usage in what passes, and multiplies it by a dated
// table of prices. It promises to hold no answer: it keeps a few numbers, however long one is. What it cannot read it estimates
// by the bytes that passed, and says so: no answer that came is free.
package meter

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/internal/spending"
)

// A Usage is what one answer has used.
type Usage struct {
	Model      string
	Input      int64 // tokens, those of the cache aside
	CacheRead  int64
	CacheWrite int64
	Hour       int64 // of CacheWrite, what stays for an hour
	Output     int64
	Searches   int64 // of the web
	Fast       bool  // by a dearer tier
}

// A Counter finds the usage in the content of one answer, which is written to it as it passes.
type Counter struct {
	api    spending.API
	stream bool // of server-sent events
	json   scanner
	line   []byte // the beginning of a line of a stream
	data   bool   // the line is of data
	bytes  int64

	used            Usage
	thoughts, tools int64 // tokens of Google's that count beside the others
	input, output   bool  // the answer has said them, as they are at its end
	pending         bool  // the work is not over, as the answer says last
	background      bool  // it goes on without the answer
	done            bool
}

// NewCounter makes one for an answer of an API, with its Content-Type.
func NewCounter(api spending.API, contentType string) *Counter {
	c := &Counter{api: api, stream: strings.HasPrefix(strings.ToLower(contentType), "text/event-stream")}
	c.json.found = c.found
	return c
}

// Done reports whether the answer has said all: whatever else comes changes nothing that a client waits for.
func (c *Counter) Done() bool { return c.done }

// Write takes a part of the content. It never fails.
func (c *Counter) Write(b []byte) (int, error) {
	c.bytes += int64(len(b))
	if !c.stream {
		c.json.scan(b)
		c.done = c.done || c.json.whole()
		return len(b), nil
	}
	for rest := b; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		c.inLine(part)
		if ended {
			c.endLine()
		}
		rest = after
	}
	return len(b), nil
}

const dataField = "data:"

func (c *Counter) inLine(part []byte) {
	if !c.data {
		n := min(len(part), maxToken-len(c.line))
		c.line = append(c.line, part[:n]...)
		rest, is := bytes.CutPrefix(c.line, []byte(dataField))
		if !is {
			return
		}
		c.data = true
		c.json.reset()
		c.json.scan(rest)
		part = part[n:]
	}
	c.json.scan(part)
}

func (c *Counter) endLine() {
	if c.data && string(bytes.TrimSpace(c.line)) == dataField+" [DONE]" {
		c.done = true
	}
	c.line, c.data = c.line[:0], false
}

// found takes a value of the content. The numbers of an answer only grow as it goes on.
func (c *Counter) found(path []string, value string, quoted bool) {
	first := false // of a stream of Messages, whose beginning has a number of output that is none yet
	for len(path) > 1 && (path[0] == array || path[0] == "response" || path[0] == "message") {
		first = path[0] == "message"
		path = path[1:]
	}
	if len(path) == 0 {
		return
	}
	name := path[0]
	switch {
	case len(path) == 1 && quoted:
		c.foundWord(name, value)
	case len(path) == 1 && name == "background" && value == "true":
		c.background = true
	case len(path) < 2 || name != "usage" && name != "usageMetadata":
	case quoted && path[1] == "speed":
		c.used.Fast = c.used.Fast || value == "fast"
	case !quoted:
		if n, err := strconv.ParseInt(value, 10, 64); err == nil && n >= 0 && n < maxTokens {
			c.foundNumber(strings.Join(path[1:], "."), n, first)
		}
	}
}

// maxTokens bounds a number of tokens: a larger one is none.
const maxTokens = 1 << 40

func (c *Counter) foundWord(name, value string) {
	switch name {
	case "model", "modelVersion":
		if value != "" {
			c.used.Model = value
		}
	case "service_tier":
		c.used.Fast = c.used.Fast || value == "priority"
	case "status":
		c.pending = value == "queued" || value == "in_progress"
	case "type":
		c.done = c.done || c.stream && (value == "message_stop" || value == "response.completed" || value == "response.incomplete" || value == "response.failed")
	}
}

func (c *Counter) foundNumber(name string, n int64, first bool) {
	input, output := false, false
	var to *int64
	switch name {
	case "input_tokens", "prompt_tokens", "promptTokenCount":
		to, input = &c.used.Input, true
	case "output_tokens", "completion_tokens", "candidatesTokenCount":
		to, output = &c.used.Output, true
	case "thoughtsTokenCount":
		to = &c.thoughts
	case "toolUsePromptTokenCount":
		to = &c.tools
	case "cache_read_input_tokens", "input_tokens_details.cached_tokens", "prompt_tokens_details.cached_tokens", "cachedContentTokenCount":
		to = &c.used.CacheRead
	case "cache_creation_input_tokens", "input_tokens_details.cache_write_tokens", "prompt_tokens_details.cache_write_tokens":
		to = &c.used.CacheWrite
	case "cache_creation.ephemeral_1h_input_tokens":
		to = &c.used.Hour
	case "server_tool_use.web_search_requests":
		to = &c.used.Searches
	default:
		return
	}
	*to = max(*to, n)
	c.input = c.input || input
	c.output = c.output || output && !first || input && c.api != spending.Anthropic // the others say all at once, and leave out what is none
}

// What an estimate goes by: bytes of text that are a token, and the most that a model writes at once.
const (
	bytesPerToken = 4
	mostOutput    = 128_000
)

// End returns what the answer has used, to a request of sent bytes. estimated says what of it is a guess, "" for none: it is
// rather too high.
func (c *Counter) End(sent int64) (u Usage, estimated string) {
	u = c.used
	if c.api == spending.Google {
		u.Input, u.Output = u.Input+c.tools, u.Output+c.thoughts
	}
	if c.api != spending.Anthropic { // whose input has those of the cache not in it
		u.Input = max(u.Input-u.CacheRead-u.CacheWrite, 0)
	}
	text := c.json.text
	if !c.json.began { // it is no JSON
		text = c.bytes
	}
	cut := !c.stream && !c.json.whole()
	if !c.input || cut {
		u.Input, estimated = max(u.Input, sent/bytesPerToken), "its usage is not in the answer"
	}
	if !c.output || cut {
		u.Output, estimated = max(u.Output, text/bytesPerToken), "its usage is not in the answer"
	}
	if c.pending && (c.background || !c.stream) {
		u.Output, estimated = max(u.Output, mostOutput), "the work goes on when the answer has ended"
	}
	return u, estimated
}
