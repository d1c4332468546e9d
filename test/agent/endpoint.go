// Package agent plays the other side of a coding agent: a Messages API
// endpoint on the host's loopback whose model follows a script, so that the
// real Claude Code does what a test wants, tool by tool, with nothing faked
// on the sandbox's side of the wire.
//
// It promises to answer what Claude Code asks for when it starts and works:
// messages, streamed or whole, and the count of tokens. Everything else gets
// 404 and is remembered.
package agent

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
)

// A Call is one use of a tool by the model.
type Call struct {
	Tool  string         // Bash, Read, Write, Edit: Claude Code's own names
	Input map[string]any // as the tool's schema has it
}

// Bash is a call of the shell tool.
func Bash(command string) Call {
	return Call{"Bash", map[string]any{"command": command, "description": "a step of the test"}}
}

// Read is a call that reads a file.
func Read(path string) Call { return Call{"Read", map[string]any{"file_path": path}} }

// Write is a call that writes a whole file.
func Write(path, content string) Call {
	return Call{"Write", map[string]any{"file_path": path, "content": content}}
}

// Edit is a call that replaces a text in a file that was read before.
func Edit(path, from, to string) Call {
	return Call{"Edit", map[string]any{"file_path": path, "old_string": from, "new_string": to}}
}

// A Step is one turn of the model: what it says, then the tools that it uses.
// A step without calls ends the conversation.
type Step struct {
	Name  string
	Say   string
	Calls []Call
}

// A Result is what a tool gave back.
type Result struct {
	Text    string
	IsError bool
}

// An Endpoint serves the Messages API. Its model takes the steps in order,
// one a request, whoever asks and how often: the number of the next step is
// one more than the last that the request brings results for, so that a
// request that is sent again gets the same answer.
type Endpoint struct {
	steps    []Step
	listener net.Listener
	server   *http.Server

	mu      sync.Mutex
	before  map[string]func()
	results map[string]Result
	keys    map[string]bool
	other   []string
	busy    int    // how many requests are still answered with 529
	told    string // the texts of the last request
}

// Start serves the steps at a free port of 127.0.0.1.
func Start(steps []Step) (*Endpoint, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	e := &Endpoint{steps: steps, listener: listener, before: map[string]func(){}, results: map[string]Result{}, keys: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/messages", e.messages)
	mux.HandleFunc("POST /v1/messages/count_tokens", e.countTokens)
	mux.HandleFunc("/", e.notFound)
	e.server = &http.Server{Handler: mux}
	go e.server.Serve(listener)
	return e, nil
}

// Close ends the service and its connections.
func (e *Endpoint) Close() error { return e.server.Close() }

// Port is where it listens on 127.0.0.1.
func (e *Endpoint) Port() int { return e.listener.Addr().(*net.TCPAddr).Port }

// Before has f called on the host before the named step is answered.
func (e *Endpoint) Before(step string, f func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.before[step] = f
}

// Overload has the next requests to the model answered as by an API that has too much to do: with status 529.
func (e *Endpoint) Overload(requests int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.busy = requests
}

// Then has the model go on with other steps, in the place of the last: it is for what comes after that was said.
func (e *Endpoint) Then(steps ...Step) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.steps = append(e.steps[:len(e.steps)-1:len(e.steps)-1], steps...)
}

// Told returns what the model was told by the user's side in the last request that had tools, but for results.
func (e *Endpoint) Told() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.told
}

// Results returns what the calls of the named step gave back, in their order;
// a call that brought nothing back has an empty result that is an error.
func (e *Endpoint) Results(step string) []Result {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, s := range e.steps {
		if s.Name != step {
			continue
		}
		var results []Result
		for j := range s.Calls {
			r, ok := e.results[callID(i, j)]
			if !ok {
				r = Result{IsError: true}
			}
			results = append(results, r)
		}
		return results
	}
	return nil
}

// Keys returns the API keys that requests carried.
func (e *Endpoint) Keys() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var keys []string
	for k := range e.keys {
		keys = append(keys, k)
	}
	return keys
}

// OtherRequests returns the requests, as "METHOD path", that it does not serve.
func (e *Endpoint) OtherRequests() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]string(nil), e.other...)
}

func (e *Endpoint) notFound(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	e.other = append(e.other, r.Method+" "+r.URL.Path)
	e.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	fmt.Fprint(w, `{"type":"error","error":{"type":"not_found_error","message":"not served"}}`)
}

func (e *Endpoint) countTokens(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, `{"input_tokens":100}`)
}

// A request is the part of a Messages API request that matters here.
type request struct {
	Model    string
	Stream   bool
	Tools    []struct{ Name string }
	Messages []struct {
		Role    string
		Content json.RawMessage // a string, or a list of blocks
	}
}

// A block is a content block of a request's message.
type block struct {
	Type      string          `json:"type"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
	Text      string          `json:"text"`
}

func (e *Endpoint) messages(w http.ResponseWriter, r *http.Request) {
	var req request
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	e.mu.Lock()
	e.keys[r.Header.Get("X-Api-Key")] = true
	if e.busy > 0 {
		e.busy--
		e.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(529) // of Anthropic's
		fmt.Fprint(w, `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
		return
	}
	next := e.record(req)
	step := e.step(req, next)
	before := e.before[step.Name]
	e.mu.Unlock()
	if before != nil {
		before()
	}

	content, reason := answer(next, step)
	if req.Stream {
		stream(w, req.Model, content, reason)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(message(req.Model, content, reason))
}

// step is the model's answer to a request: the next of the script, or two
// words for a side question, such as for a title, which brings no tools.
func (e *Endpoint) step(req request, next int) Step {
	switch {
	case len(req.Tools) == 0:
		return Step{Say: "ok"}
	case next < len(e.steps):
		return e.steps[next]
	}
	return Step{Say: "The script is at its end."}
}

// record keeps the results that a request carries and returns the number of
// the step that follows them.
func (e *Endpoint) record(req request) int {
	next := 0
	var told []string
	for _, m := range req.Messages {
		if m.Role == "user" {
			told = append(told, text(m.Content))
		}
		var blocks []block
		if m.Role != "user" || json.Unmarshal(m.Content, &blocks) != nil {
			continue
		}
		for _, b := range blocks {
			var step, call int
			if _, err := fmt.Sscanf(b.ToolUseID, idFormat, &step, &call); b.Type != "tool_result" || err != nil {
				continue
			}
			e.results[b.ToolUseID] = Result{Text: text(b.Content), IsError: b.IsError}
			next = max(next, step+1)
		}
	}
	if len(req.Tools) > 0 {
		e.told = strings.Join(told, "\n")
	}
	return next
}

// text is the text of a tool result, which is a string or a list of blocks.
func text(content json.RawMessage) string {
	var s string
	if json.Unmarshal(content, &s) == nil {
		return s
	}
	var blocks []block
	if json.Unmarshal(content, &blocks) != nil {
		return ""
	}
	var parts []string
	for _, b := range blocks {
		parts = append(parts, b.Text)
	}
	return strings.Join(parts, "\n")
}

const idFormat = "toolu_step%04d_%02d"

func callID(step, call int) string { return fmt.Sprintf(idFormat, step, call) }

type object = map[string]any

// answer is a step as content blocks, with the reason to stop.
func answer(number int, s Step) (content []object, reason string) {
	if s.Say != "" {
		content = append(content, object{"type": "text", "text": s.Say})
	}
	for i, c := range s.Calls {
		content = append(content, object{"type": "tool_use", "id": callID(number, i), "name": c.Tool, "input": c.Input})
	}
	if len(s.Calls) > 0 {
		return content, "tool_use"
	}
	return content, "end_turn"
}

func message(model string, content []object, reason any) object {
	return object{
		"id": "msg_script", "type": "message", "role": "assistant", "model": model,
		"content": content, "stop_reason": reason, "stop_sequence": nil,
		"usage": object{"input_tokens": 10, "output_tokens": 10},
	}
}

// stream sends an answer as server-sent events, tool input in two pieces, as
// the real service cuts it where it likes.
func stream(w http.ResponseWriter, model string, content []object, reason string) {
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(kind string, data object) {
		data["type"] = kind
		body, _ := json.Marshal(data) // of strings, numbers and maps: it cannot fail
		fmt.Fprintf(w, "event: %s\ndata: %s\n\n", kind, body)
		w.(http.Flusher).Flush()
	}
	send("message_start", object{"message": message(model, []object{}, nil)})
	for i, block := range content {
		if block["type"] == "text" {
			send("content_block_start", object{"index": i, "content_block": object{"type": "text", "text": ""}})
			send("content_block_delta", object{"index": i, "delta": object{"type": "text_delta", "text": block["text"]}})
		} else {
			input, _ := json.Marshal(block["input"])
			start := object{"type": "tool_use", "id": block["id"], "name": block["name"], "input": object{}}
			send("content_block_start", object{"index": i, "content_block": start})
			half := len(input) / 2
			for _, piece := range []string{string(input[:half]), string(input[half:])} {
				send("content_block_delta", object{"index": i, "delta": object{"type": "input_json_delta", "partial_json": piece}})
			}
		}
		send("content_block_stop", object{"index": i})
	}
	send("message_delta", object{"delta": object{"stop_reason": reason, "stop_sequence": nil}, "usage": object{"output_tokens": 10}})
	send("message_stop", object{})
}
