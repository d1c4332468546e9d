//go:build linux

package agent

import (
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
)

// A responder plays OpenAI's Responses API, streamed: its model calls one tool a turn, and then ends. A call whose input is a
// text is one of a custom tool.
type responder struct {
	calls   []Call
	last    string // what it says at the end
	mu      sync.Mutex
	results []string // what the last request brought back
}

func (m *responder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Input []struct {
			Type   string
			Output json.RawMessage
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || r.URL.Path != "/v1/responses" {
		http.NotFound(w, r)
		return
	}
	var results []string
	for _, item := range request.Input {
		if item.Type == "function_call_output" || item.Type == "custom_tool_call_output" {
			results = append(results, string(item.Output))
		}
	}
	m.mu.Lock()
	m.results = results
	m.mu.Unlock()
	n := len(results)
	item := object{"type": "message", "role": "assistant", "id": fmt.Sprint("m", n), "content": []object{{"type": "output_text", "text": m.last}}}
	if n < len(m.calls) {
		c := m.calls[n]
		item = object{"type": "function_call", "id": fmt.Sprint("f", n), "call_id": fmt.Sprint("c", n), "name": c.Tool}
		if text, custom := c.Input["input"].(string); custom {
			item["type"], item["input"] = "custom_tool_call", text
		} else {
			input, _ := json.Marshal(c.Input)
			item["arguments"] = string(input)
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range []object{
		{"type": "response.created", "response": object{"id": fmt.Sprint("r", n)}},
		{"type": "response.output_item.done", "item": item},
		{"type": "response.completed", "response": object{"id": fmt.Sprint("r", n), "model": "gpt-5.2-codex", "usage": object{"input_tokens": 10, "input_tokens_details": nil, "output_tokens": 10, "output_tokens_details": nil, "total_tokens": 20}}},
	} {
		body, _ := json.Marshal(e)
		fmt.Fprintf(w, "data: %s\n\n", body)
		_ = http.NewResponseController(w).Flush()
	}
}
