//go:build unix

package spending

import (
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestUSD(t *testing.T) {
	for text, want := range map[string]USD{"2": 2e6, "$2": 2e6, "0.5": 5e5, ".05": 5e4, "0.000001": 1, "1000000000": 1e15} {
		got, err := ParseUSD(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
	}
	for _, text := range []string{"", "$", "0", "0.0000001", "-1", "1e3", "NaN", "Inf", "2 USD", "1.2.3", "0x10", "1000000001", "99999999999999999999999"} {
		_, err := ParseUSD(text)
		require.Error(t, err, text)
	}
	for amount, want := range map[USD]string{0: "$0.00", 3: "$0.000003", 3200: "$0.0032", 1_040_000: "$1.04", 2e6: "$2.00", 12_345_678: "$12.35"} {
		require.Equal(t, want, amount.String())
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spending")
	s, err := Create(path, 2e6)
	require.NoError(t, err)
	defer s.Close()
	_, err = Create(path, 1)
	require.ErrorIs(t, err, fs.ErrExist)
	before, now, err := s.Add(1_500_000)
	require.NoError(t, err)
	require.Equal(t, [2]State{{Limit: 2e6}, {Limit: 2e6, Spent: 1_500_000}}, [2]State{before, now})
	require.False(t, now.Over())
	_, now, err = s.Add(-7)
	require.NoError(t, err)
	require.EqualValues(t, 1_500_000, now.Spent, "nobody takes anything back")

	again, err := Open(path)
	require.NoError(t, err)
	defer again.Close()
	_, now, err = again.Add(500_000)
	require.NoError(t, err)
	require.True(t, now.Over())
	now, err = s.Extend(1e6)
	require.NoError(t, err)
	require.Equal(t, State{Limit: 3e6, Spent: 2e6}, now)

	free, err := Create(path+".free", 0)
	require.NoError(t, err)
	defer free.Close()
	_, now, err = free.Add(1e12)
	require.NoError(t, err)
	require.False(t, now.Over(), "without a limit")

	_, now, err = s.Add(math.MaxInt64)
	require.NoError(t, err)
	require.EqualValues(t, math.MaxInt64, now.Spent, "no sum turns into a small one")
	require.True(t, now.Over())
	_, err = s.f.WriteAt(State{Limit: 1, Spent: -1}.bytes(), 0)
	require.NoError(t, err)
	_, err = s.Read()
	require.ErrorIs(t, err, errForm)
}

func TestHold(t *testing.T) {
	s, err := Create(filepath.Join(t.TempDir(), "spending"), 0)
	require.NoError(t, err)
	defer s.Close()
	start := time.Now()
	require.NoError(t, s.Hold(start.Add(time.Minute)))
	require.NoError(t, s.Hold(start.Add(time.Second)))
	state, err := s.Read()
	require.NoError(t, err)
	require.Equal(t, start.Add(time.Minute).UnixMilli(), state.Until.UnixMilli(), "the longest stays")
	require.Zero(t, state.Left(start.Add(time.Hour)))
	require.NoError(t, s.Hold(start.Add(100*time.Hour)))
	state, err = s.Read()
	require.NoError(t, err)
	require.LessOrEqual(t, state.Left(time.Now()), MaxHold)

	_, err = s.f.WriteAt(State{Until: start.Add(100 * time.Hour)}.bytes(), 0) // the clock was set back
	require.NoError(t, err)
	state, err = s.Read()
	require.NoError(t, err)
	require.Zero(t, state.Left(start))
	require.NoError(t, s.Hold(start.Add(time.Minute)))
	state, err = s.Read()
	require.NoError(t, err)
	require.Equal(t, time.Minute, state.Left(start).Round(time.Second))
}

// Whatever is no such file is refused, and stays as it is.
func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	require.NoError(t, os.WriteFile(text, []byte("a file of 32 bytes of another kind"), 0o600))
	short := filepath.Join(dir, "short")
	require.NoError(t, os.WriteFile(short, []byte(mark), 0o600))
	s, err := Create(filepath.Join(dir, "real"), 1)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	link := filepath.Join(dir, "link")
	require.NoError(t, os.Symlink("real", link))
	for _, path := range []string{text, short, link, dir, filepath.Join(dir, "none")} {
		_, err := Open(path)
		require.Error(t, err, path)
	}
	s, err = Open(filepath.Join(dir, "real"))
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

// Each addition counts once, by goroutines of one file and by files of one path.
func TestAddTogether(t *testing.T) {
	path := filepath.Join(t.TempDir(), "spending")
	first, err := Create(path, 400)
	require.NoError(t, err)
	defer first.Close()
	second, err := Open(path)
	require.NoError(t, err)
	defer second.Close()
	var group sync.WaitGroup
	crossed := make(chan State, 800)
	for _, s := range []*File{first, first, second, second} {
		group.Go(func() {
			for range 200 {
				before, now, err := s.Add(1)
				if err == nil && !before.Over() && now.Over() {
					crossed <- now
				}
			}
		})
	}
	group.Wait()
	state, err := first.Read()
	require.NoError(t, err)
	require.EqualValues(t, 800, state.Spent)
	require.Len(t, crossed, 1, "one says that it is over")
}

func TestJudge(t *testing.T) {
	for path, want := range map[string]API{
		"/v1/messages": Anthropic, "/anthropic/v1/messages/": Anthropic, "/V1/Messages": Anthropic, "/v1/%6dessages": Anthropic,
		"/v1/projects/p/locations/l/publishers/anthropic/models/claude-opus-4-8@20260101:streamRawPredict": Anthropic,
		"/v1/responses": OpenAI, "/backend-api/codex/responses": OpenAI, "/v1/responses/compact": OpenAI, "/v1/chat/completions": OpenAI, "/openai/deployments/d/chat/completions": OpenAI, "/v1/embeddings": OpenAI,
		"/v1beta/models/gemini-3-pro:generateContent": Google, "/v1beta/models/gemini-3-pro%3AstreamGenerateContent": Google, "/v1internal:streamGenerateContent": Google,
		"/v1/messages/count_tokens": None, "/v1beta/models/x:countTokens": None, "/v1internal:loadCodeAssist": None, "/api/event_logging/batch": None, "/backend-api/wham/usage": None, "/": None,
	} {
		api, why := Judge("POST", path)
		require.Equal(t, want, api, path)
		require.Empty(t, why, path)
	}
	for _, path := range []string{
		"/v1/messages/batches", "/v1/batches", "/v1/images/generations", "/v1/audio/speech", "/v1beta/models/x:batchGenerateContent", "/v1beta/models/x:predict", "/model/anthropic.claude/invoke-with-response-stream",
		"/v1//messages", "/v1/./messages", "/v1/x/../messages", "/v1/%2e/messages", "/v1/%256dessages", "/v1/messages;x", "/v1/messages%3fx", "/%zz", "/v1/fine_tuning/jobs", "/v1/realtime/calls",
		"/api/paas/v4/images/generations", "/google.ai.generativelanguage.v1beta.GenerativeService/GenerateContent", "/$rpc/google.x/Y", "/xai_api.Chat/GetCompletion", "/batch", "/batch/",
	} {
		for _, method := range []string{"POST", "PUT", "PATCH", "post", "QUERY"} {
			_, why := Judge(method, path)
			require.NotEmpty(t, why, path)
		}
	}
	for _, method := range []string{"GET", "HEAD", "OPTIONS", "DELETE"} {
		api, why := Judge(method, "/v1/messages/batches")
		require.Equal(t, None, api)
		require.Empty(t, why)
	}
}

func TestMetered(t *testing.T) {
	for _, host := range []string{"api.anthropic.com", "api.openai.com", "eu.api.openai.com", "chatgpt.com", "us-east5-aiplatform.googleapis.com", "x.openai.azure.com", "bedrock-runtime.us-east-1.amazonaws.com", "openrouter.ai"} {
		require.True(t, Metered(host), host)
	}
	for _, host := range []string{"github.com", "storage.googleapis.com", "oauth2.googleapis.com", "auth.openai.com", "s3.amazonaws.com", "xapi.anthropic.com", "claude.ai", ""} {
		require.False(t, Metered(host), host)
	}
	for _, host := range []string{"api.anthropic.com", "console.anthropic.com", "anthropic.com", "www.googleapis.com", "auth.openai.com", "x.openai.azure.com"} {
		require.True(t, Reaches(host), host)
	}
	for _, host := range []string{"github.com", "xanthropic.com", "s3.amazonaws.com", "com", "ai", ""} {
		require.False(t, Reaches(host), host)
	}
}
