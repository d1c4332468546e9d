package meter

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pccrun/pccrun/internal/spending"
)

// Answers as the APIs give them, and what they have used.
const (
	messages = `{"id":"msg_1","type":"message","role":"assistant","model":"claude-sonnet-4-5-20250929","content":[{"type":"text","text":"say \"usage\": {\"input_tokens\": 9}"},{"type":"tool_use","id":"t","name":"Bash","input":{"usage":{"input_tokens":7777,"output_tokens":7777}}}],"stop_reason":"end_turn","usage":{"input_tokens":10,"cache_creation_input_tokens":300,"cache_creation":{"ephemeral_5m_input_tokens":100,"ephemeral_1h_input_tokens":200},"cache_read_input_tokens":4000,"output_tokens":50,"server_tool_use":{"web_search_requests":2}}}`

	messagesStream = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"model\":\"claude-opus-4-8\",\"content\":[],\"usage\":{\"input_tokens\":25,\"cache_read_input_tokens\":1000,\"cache_creation_input_tokens\":0,\"output_tokens\":1}}}\n\n" +
		"event: ping\ndata: {\"type\": \"ping\"}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello data: {}\\n\"}}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\n\n" +
		"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"

	responses = `{"id":"resp_1","object":"response","status":"completed","background":false,"model":"gpt-5.2-2025-12-11","output":[],"service_tier":"default","usage":{"input_tokens":1000,"input_tokens_details":{"cached_tokens":600},"output_tokens":70,"output_tokens_details":{"reasoning_tokens":20},"total_tokens":1070}}`

	responsesStream = "event: response.created\r\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"status\":\"in_progress\",\"model\":\"gpt-5.2\",\"usage\":null}}\r\n\r\n" +
		"event: response.output_text.delta\r\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"hello\"}\r\n\r\n" +
		"event: response.completed\r\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"status\":\"completed\",\"model\":\"gpt-5.2\",\"usage\":{\"input_tokens\":100,\"input_tokens_details\":{\"cached_tokens\":40},\"output_tokens\":7}}}\r\n\r\n"

	chatStream = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"model\":\"gpt-4o\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hi\"}}],\"usage\":null}\n\n" +
		"data: {\"id\":\"c\",\"model\":\"gpt-4o\",\"choices\":[],\"usage\":{\"prompt_tokens\":19,\"completion_tokens\":10,\"prompt_tokens_details\":{\"cached_tokens\":9}}}\n\ndata: [DONE]\n\n"

	generate = `[{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":500,"totalTokenCount":500},"modelVersion":"gemini-3-pro"}
,{"candidates":[],"usageMetadata":{"promptTokenCount":500,"candidatesTokenCount":20,"thoughtsTokenCount":100,"cachedContentTokenCount":200,"toolUsePromptTokenCount":3},"modelVersion":"gemini-3-pro"}]`

	generateStream = "data: {\"response\":{\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"a\"}]}}],\"usageMetadata\":{\"promptTokenCount\":500},\"modelVersion\":\"gemini-2.5-flash\"}}\r\n\r\n" +
		"data: {\"response\":{\"usageMetadata\":{\"promptTokenCount\":500,\"candidatesTokenCount\":20},\"modelVersion\":\"gemini-2.5-flash\"}}\r\n\r\n"
)

const whole, streamed = "application/json", "text/event-stream; charset=utf-8"

var shapes = []struct {
	name        string
	api         spending.API
	contentType string
	text        string
	want        Usage
	usd         spending.USD
}{
	{"messages", spending.Anthropic, whole, messages, Usage{Model: "claude-sonnet-4-5-20250929", Input: 10, CacheRead: 4000, CacheWrite: 300, Hour: 200, Output: 50, Searches: 2}, 30 + 1200 + 375 + 1200 + 750 + 20000},
	{"messages stream", spending.Anthropic, streamed, messagesStream, Usage{Model: "claude-opus-4-8", Input: 25, CacheRead: 1000, Output: 15}, 125 + 500 + 375},
	{"responses", spending.OpenAI, whole, responses, Usage{Model: "gpt-5.2-2025-12-11", Input: 400, CacheRead: 600, Output: 70}, 700 + 105 + 980},
	{"responses stream", spending.OpenAI, streamed, responsesStream, Usage{Model: "gpt-5.2", Input: 60, CacheRead: 40, Output: 7}, 105 + 7 + 98},
	{"chat stream", spending.OpenAI, streamed, chatStream, Usage{Model: "gpt-4o", Input: 10, CacheRead: 9, Output: 10}, 25 + 12 + 100},
	{"generateContent", spending.Google, whole, generate, Usage{Model: "gemini-3-pro", Input: 303, CacheRead: 200, Output: 120}, 1212 + 80 + 2160},
	{"generateContent stream", spending.Google, streamed, generateStream, Usage{Model: "gemini-2.5-flash", Input: 500, Output: 20}, 550},
}

func table(t *testing.T, own string) *Table {
	t.Helper()
	prices, err := Load(own)
	require.NoError(t, err)
	return prices
}

func TestShapes(t *testing.T) {
	prices := table(t, "")
	for _, shape := range shapes {
		for _, size := range []int{1, 2, 7, len(shape.text)} {
			c := NewCounter(shape.api, shape.contentType)
			for rest := shape.text; rest != ""; rest = rest[min(size, len(rest)):] {
				n, err := c.Write([]byte(rest[:min(size, len(rest))]))
				require.NoError(t, err)
				require.Equal(t, min(size, len(rest)), n)
			}
			got, estimated := c.End(1 << 20)
			require.Equal(t, shape.want, got, "%s by %d bytes", shape.name, size)
			require.Empty(t, estimated, shape.name)
			if shape.contentType == whole {
				require.True(t, c.Done(), shape.name)
			}
			usd, note := prices.Price(shape.api, got)
			require.Equal(t, shape.usd, usd, shape.name)
			require.Empty(t, note, shape.name)
		}
	}
}

// An answer that was cut anywhere costs no less than what was said of it, and not more than an estimate of what passed.
func TestCutAnywhere(t *testing.T) {
	for _, shape := range shapes {
		for cut := range len(shape.text) {
			c := NewCounter(shape.api, shape.contentType)
			_, _ = c.Write([]byte(shape.text[:cut]))
			got, estimated := c.End(4000)
			require.LessOrEqual(t, got.Output, max(shape.want.Output, int64(cut)/bytesPerToken, mostOutput))
			if got != shape.want && shape.api == spending.Anthropic && got.Output < shape.want.Output {
				require.NotEmpty(t, estimated, "%s cut at %d: %+v", shape.name, cut, got)
			}
			if got.Input == 0 {
				require.NotZero(t, got.CacheRead, "%s cut at %d", shape.name, cut)
			}
		}
	}
}

// What does not say its usage is not free, and what says it in words of its own neither counts nor breaks anything.
func TestUnread(t *testing.T) {
	for _, text := range []string{
		"", "x", "<html>busy</html>", `{"usage":"much"}`, `{"usage":{"input_tokens":-5,"output_tokens":1e9}}`, `{"usage":{"input_tokens":99999999999999999999}}`,
		"[[[[[[[[[[[[{}]]]", `}}}}]]]{"a":`, `{"usage":{"input_tokens":"12"}}`, strings.Repeat(`{"usage":`, 100), "\x00\xff\"\\",
	} {
		for _, api := range []spending.API{spending.Anthropic, spending.OpenAI, spending.Google} {
			for _, kind := range []string{whole, streamed, ""} {
				c := NewCounter(api, kind)
				_, _ = c.Write([]byte(text))
				got, estimated := c.End(4000)
				require.NotEmpty(t, estimated, "%q", text)
				require.EqualValues(t, 1000, got.Input, "%q", text)
			}
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		text := []byte(shapes[random.IntN(len(shapes))].text)
		for range 1 + random.IntN(20) {
			text[random.IntN(len(text))] = byte(random.Uint32())
		}
		c := NewCounter(spending.Anthropic, streamed)
		_, _ = c.Write(text)
		got, _ := c.End(0)
		require.GreaterOrEqual(t, got.Output, int64(0))
	}
}

// A line of any length takes no room, and what stands behind it counts.
func TestLongLine(t *testing.T) {
	c := NewCounter(spending.Anthropic, streamed)
	_, _ = c.Write([]byte(`data: {"type":"content_block_delta","delta":{"text":"`))
	part := bytes.Repeat([]byte("x"), 1<<20)
	require.Less(t, testing.AllocsPerRun(10, func() { _, _ = c.Write(part) }), 1.0)
	for range 90 {
		_, _ = c.Write(part)
	}
	_, _ = c.Write([]byte("\"}}\n\n" + messagesStream))
	got, estimated := c.End(0)
	require.Equal(t, Usage{Model: "claude-opus-4-8", Input: 25, CacheRead: 1000, Output: 15}, got)
	require.Empty(t, estimated)
}

// Work that goes on in the background is not free, nor is a stream without its end.
func TestPending(t *testing.T) {
	c := NewCounter(spending.OpenAI, whole)
	_, _ = c.Write([]byte(`{"id":"r","status":"queued","background":true,"model":"gpt-5.2","usage":null}`))
	got, estimated := c.End(400)
	require.EqualValues(t, mostOutput, got.Output)
	require.Contains(t, estimated, "goes on")

	c = NewCounter(spending.OpenAI, streamed)
	_, _ = c.Write([]byte(responsesStream[:250]))
	got, estimated = c.End(400)
	require.Less(t, got.Output, int64(100))
	require.NotEmpty(t, estimated)
}

func TestPrices(t *testing.T) {
	prices := table(t, "")
	million := Usage{Input: 1e6}
	for model, want := range map[string]spending.USD{
		"claude-opus-4-20250514": 15e6, "claude-opus-4-8": 5e6, "claude-opus-4-8-20260101": 5e6, "anthropic/claude-opus-4.8": 5e6, "claude-sonnet-4-5@20250929": 3e6,
		"claude-haiku-4-5": 1e6, "claude-sonnet-4-6[1m]": 3e6,
	} {
		million.Model = model
		usd, note := prices.Price(spending.Anthropic, million)
		require.Equal(t, want, usd, model)
		require.Empty(t, note, model)
	}
	for model, api := range map[string]spending.API{"claude-opus-9": spending.Anthropic, "claude-opus-4-9": spending.OpenAI, "gpt-5.9-ultra": spending.OpenAI, "": spending.Google, "gemini-9": spending.Google} {
		million.Model = model
		usd, note := prices.Price(api, million)
		require.NotZero(t, usd, model)
		require.Contains(t, note, "the dearest of", model)
	}
	million.Model = "claude-opus-9"
	usd, _ := prices.Price(spending.Anthropic, million)
	require.EqualValues(t, 15e6, usd)
	million.Model, million.Fast = "claude-opus-4-8", true
	usd, _ = prices.Price(spending.Anthropic, million)
	require.EqualValues(t, 12.5e6, usd)
}

// The user's own table stands over that of the program, model by model.
func TestOwnPrices(t *testing.T) {
	prices := table(t, `{"dated": "2027-01-01", "openai": {"corp-model": {"input": 1, "output": 2}}, "anthropic": {"claude-opus-4-8": {"input": 1, "output": 1}}}`)
	usd, note := prices.Price(spending.OpenAI, Usage{Model: "corp-model", Input: 1e6, Output: 1e6})
	require.EqualValues(t, 3e6, usd)
	require.Empty(t, note)
	usd, _ = prices.Price(spending.Anthropic, Usage{Model: "claude-opus-4-8", CacheRead: 1e6})
	require.EqualValues(t, 1e6, usd, "what is left out costs what input does")
	usd, _ = prices.Price(spending.Anthropic, Usage{Model: "claude-opus-4-5", Input: 1e6})
	require.EqualValues(t, 5e6, usd, "the others stay")
	for text, why := range map[string]string{
		"{": "unexpected end", "[]": "cannot unmarshal", "{}": "no prices", `{"openai": {"x": {"input": 1}}}`: "want input and output",
		`{"openai": {"x": {"input": -1, "output": 1}}}`: "from 0", `{"openai": {"x": {"inputs": 1, "output": 1}}}`: "unknown field", `{"openai": 3}`: "openai",
	} {
		_, err := Load(text)
		require.ErrorContains(t, err, why, text)
	}
}
