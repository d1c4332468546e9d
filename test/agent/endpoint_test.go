package agent

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const tools = `"tools":[{"name":"Bash"}]`

func post(t *testing.T, e *Endpoint, path, body string) string {
	t.Helper()
	req, err := http.NewRequest("POST", fmt.Sprintf("http://127.0.0.1:%d%s", e.Port(), path), strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("X-Api-Key", "k")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	return string(answer)
}

func start(t *testing.T, steps ...Step) *Endpoint {
	t.Helper()
	e, err := Start(steps)
	require.NoError(t, err)
	t.Cleanup(func() { e.Close() })
	return e
}

// The steps follow the results, not the number of requests: a request that is
// sent again, or a side question between, moves nothing on.
func TestEndpointFollowsTheResults(t *testing.T) {
	e := start(t, Step{Name: "a", Calls: []Call{Bash("one"), Read("/two")}}, Step{Name: "b", Say: "bye"})
	first := `{"model":"m",` + tools + `,"messages":[{"role":"user","content":"go"}]}`
	require.Contains(t, post(t, e, "/v1/messages", first), `"toolu_step0000_01"`)
	require.Contains(t, post(t, e, "/v1/messages", first), `"toolu_step0000_01"`)
	require.Contains(t, post(t, e, "/v1/messages", `{"messages":[]}`), `"text":"ok"`)
	require.Equal(t, []Result{{IsError: true}, {IsError: true}}, e.Results("a"))

	second := `{"model":"m",` + tools + `,"messages":[{"role":"user","content":[
		{"type":"tool_result","tool_use_id":"toolu_step0000_00","content":"plain"},
		{"type":"tool_result","tool_use_id":"toolu_step0000_01","is_error":true,"content":[{"type":"text","text":"in a list"}]},
		{"type":"tool_result","tool_use_id":"somebody else's","content":"x"}]}]}`
	answer := post(t, e, "/v1/messages?beta=true", second)
	require.Contains(t, answer, `"bye"`)
	require.Contains(t, answer, `"end_turn"`)
	require.Equal(t, []Result{{Text: "plain"}, {Text: "in a list", IsError: true}}, e.Results("a"))
	require.Equal(t, []string{"k"}, e.Keys())
	require.Nil(t, e.Results("no such step"))
}

// The pieces of a streamed tool input are the input.
func TestEndpointStreams(t *testing.T) {
	e := start(t, Step{Say: "I look.", Calls: []Call{Write("/f", "a \"quoted\"\nline")}})
	stream := post(t, e, "/v1/messages", `{"stream":true,`+tools+`}`)
	var input, kinds string
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(line, "data: ")
		if !ok {
			continue
		}
		var event struct {
			Type  string
			Delta struct {
				PartialJSON string `json:"partial_json"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(data), &event))
		kinds += event.Type + " "
		input += event.Delta.PartialJSON
	}
	require.JSONEq(t, `{"file_path":"/f","content":"a \"quoted\"\nline"}`, input)
	require.Equal(t, "message_start content_block_start content_block_delta content_block_stop "+
		"content_block_start content_block_delta content_block_delta content_block_stop message_delta message_stop ", kinds)
}

func TestEndpointRemembersWhatItDoesNotServe(t *testing.T) {
	e := start(t)
	require.Contains(t, post(t, e, "/v1/messages/count_tokens", `{}`), "input_tokens")
	require.Contains(t, post(t, e, "/api/hello", `{}`), "not_found_error")
	require.Equal(t, []string{"POST /api/hello"}, e.OtherRequests())
	require.Contains(t, post(t, e, "/v1/messages", `{`), "EOF")
}
