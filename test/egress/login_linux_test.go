package egress

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/internal/await"
	"github.com/pccrun/pccrun/test/internal/verdicts"
)

// signIn starts a program that logs in and reads what it says up to the page that
// the user is to open. Wait sends it a signal, and returns all that it said when it
// has ended.
func (b *bench) signIn(cmd *exec.Cmd, begins string) (page *url.URL, wait func(os.Signal) string) {
	b.t.Helper()
	r, w, err := os.Pipe()
	require.NoError(b.t, err)
	cmd.Stdout, cmd.Stderr = w, w
	start(b.t, cmd)
	w.Close()
	stop := time.AfterFunc(await.Patience, func() { cmd.Process.Kill() })
	out := bufio.NewScanner(r)
	var all strings.Builder
	for page == nil && out.Scan() {
		all.WriteString(out.Text() + "\n")
		if text := strings.TrimSpace(out.Text()); strings.HasPrefix(text, begins) {
			page, err = url.Parse(text)
			require.NoError(b.t, err)
		}
	}
	require.NotNil(b.t, page, "the URL is shown: %s", &all)
	return page, func(sig os.Signal) string {
		cmd.Process.Signal(sig)
		for out.Scan() {
			all.WriteString(out.Text() + "\n")
		}
		cmd.Wait()
		stop.Stop()
		r.Close()
		return all.String()
	}
}

// come is a browser outside whose user has agreed: it goes where the provider sends
// him back to, and not on from there to the provider's own pages.
func come(page *url.URL) error {
	back, err := url.Parse(page.Query().Get("redirect_uri"))
	if err != nil {
		return err
	}
	back.RawQuery = url.Values{"code": {"code-of-the-test"}, "state": {page.Query().Get("state")}}.Encode()
	c := &http.Client{
		Timeout: await.Patience, Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(r *http.Request, _ []*http.Request) error {
			if r.URL.Host != back.Host {
				return http.ErrUseLastResponse
			}
			return nil
		},
	}
	resp, err := c.Get(back.String())
	if err == nil {
		resp.Body.Close()
	}
	return err
}

// google is what of Google logs an account in and has a model for it, which has one
// answer. What requests are made as goes into tokens, what is taken for a log-in into
// codes.
func google(tokens, codes *seen) http.Handler {
	const scopes = "https://www.googleapis.com/auth/cloud-platform https://www.googleapis.com/auth/userinfo.email openid"
	answer := `{"response":{"candidates":[{"content":{"role":"model","parts":[{"text":"The job is done."}]},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":1,"candidatesTokenCount":1,"totalTokenCount":2}}}`
	mux := http.NewServeMux()
	reply := func(w http.ResponseWriter, body any) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}
	mux.HandleFunc("POST oauth2.googleapis.com/token", func(w http.ResponseWriter, r *http.Request) {
		codes.add(r.FormValue("grant_type") + " " + r.FormValue("code"))
		reply(w, map[string]any{
			"access_token": "ya29.of-the-test", "refresh_token": "1//refresh-of-the-test", "id_token": token, "token_type": "Bearer", "expires_in": 3599, "scope": scopes,
		})
	})
	mux.HandleFunc("oauth2.googleapis.com/tokeninfo", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"email": "dev@example.com", "scope": scopes, "expires_in": "3599"})
	})
	mux.HandleFunc("www.googleapis.com/oauth2/v2/userinfo", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"email": "dev@example.com"})
	})
	mux.HandleFunc("cloudcode-pa.googleapis.com/", func(w http.ResponseWriter, r *http.Request) {
		tokens.add(r.Header.Get("Authorization"))
		_, _ = io.Copy(io.Discard, r.Body)
		switch {
		case strings.HasSuffix(r.URL.Path, ":loadCodeAssist"):
			reply(w, map[string]any{"currentTier": map[string]any{"id": "standard-tier", "name": "of the test"}, "cloudaicompanionProject": "project"})
		case strings.HasSuffix(r.URL.Path, ":streamGenerateContent"):
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: %s\n\n", answer)
		case strings.HasSuffix(r.URL.Path, ":generateContent"):
			fmt.Fprint(w, answer)
		default:
			reply(w, map[string]any{})
		}
	})
	return mux
}

// geminiProgram is Gemini CLI, with a node on PATH that can run it: Debian 12's cannot.
func geminiProgram(t *testing.T) string {
	t.Helper()
	if modules == "" {
		t.Skip("needs packages of npm's: PCCRUN_TEST_CLIENTS names them, or its client brings them")
	}
	nodes, err := filepath.Glob(filepath.Join(modules, "node-*", "bin"))
	require.NoError(t, err)
	require.Len(t, nodes, 1)
	t.Setenv("PATH", nodes[0]+":"+os.Getenv("PATH"))
	return filepath.Join(modules, ".bin", "gemini")
}

// keeps wants a file of an agent's in the home of the workspace, and none in the user's.
func (b *bench) keeps(name string) {
	b.t.Helper()
	list, err := filepath.Glob(filepath.Join(b.home, ".local/state/pccrun/homes/*/home", name))
	require.NoError(b.t, err)
	require.Len(b.t, list, 1)
	require.NoFileExists(b.t, filepath.Join(b.home, name))
}

// A question is what a program puts on the screen, by some of its text without spaces,
// and what is typed then. Page is the URL that it shows, if it shows one.
type question struct {
	name, screen string
	answer       func(page *url.URL) (keys string)
}

var (
	sequences = regexp.MustCompile(`\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\x1b[()].|\x1b[@-Z=>78]`)
	blank     = regexp.MustCompile(`\s`)
	googleURL = regexp.MustCompile(`https://accounts\.google\.com/o/oauth2/\S+`)
)

// converse answers a program's questions until it is ready, ends it, and returns what
// it has asked.
func (b *bench) converse(argv []string, questions []question, ready string) (asked []string, said string) {
	b.t.Helper()
	s := newScreen(b.t)
	require.NoError(b.t, unix.IoctlSetWinsize(int(s.slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 60, Col: 1000})) // a URL on one line
	cmd := b.on(s, argv...)
	shown := func() string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return sequences.ReplaceAllString(string(s.shown), "")
	}
	length, since, keys := 0, time.Now(), ""
	await.Until(b.t, "it is ready", func() bool {
		time.Sleep(50 * time.Millisecond)
		text := shown()
		bare := blank.ReplaceAllString(text, "")
		if len(text) != length {
			length, since = len(text), time.Now()
		}
		if keys == "\r" && time.Since(since) > 3*time.Second { // it drops keys while it draws
			since = time.Now()
			s.press(keys)
		}
		for _, q := range questions {
			if slices.Contains(asked, q.name) || !strings.Contains(bare, q.screen) {
				continue
			}
			asked = append(asked, q.name)
			page, _ := url.Parse(googleURL.FindString(text))
			keys = q.answer(page)
			s.press(keys)
		}
		return strings.Contains(bare, ready)
	})
	time.Sleep(time.Second) // it writes its state a moment later
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	await.Until(b.t, "it ends", func() bool {
		s.press("\x03") // twice, and not too fast, is its way to say goodbye
		select {
		case <-ended:
			return true
		default:
			return false
		}
	})
	return asked, shown()
}

func press(keys string) func(*url.URL) string { return func(*url.URL) string { return keys } }

// TestGeminiLogin logs in from inside, on a terminal: by a code that the page shows,
// and by a browser outside that comes back to a port which is published. Who has
// logged in once is asked nothing any more.
func TestGeminiLogin(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	program := geminiProgram(t)
	var tokens, codes seen
	theWorld.site(t, agents4+":443", google(&tokens, &codes))
	const ready = "Typeyourmessage"
	choose := question{"log-in", "Howwouldyouliketoauthenticate", press("\r")}
	for name, c := range map[string]struct {
		flags     []string
		questions []question
	}{
		"code": {nil, []question{choose, {"code", "Entertheauthorizationcode:", press("code-of-the-test\r")}}},
		"browser": {[]string{"--env", "DISPLAY=none", "--env", "OAUTH_CALLBACK_PORT=8085", "--publish", "8085"}, []question{
			choose, {"consent", "Doyouwanttocontinue?", press("\r")},
			{"page", "oauth2callback", func(page *url.URL) string { assert.NoError(t, come(page)); return "" }},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			line := func(args ...string) []string { return b.agentCommand(c.flags, program, args...) }
			asked, said := b.converse(line(), c.questions, ready)
			require.Len(t, asked, len(c.questions), said)
			require.Equal(t, []string{"authorization_code code-of-the-test"}, codes.take())
			require.NotContains(t, said, "quarantined")

			asked, said = b.converse(line(), c.questions, ready)
			require.Empty(t, asked, "the second run asks nothing: %s", said)
			require.NotContains(t, said, "quarantined")
			tokens.take()
			out, _ := b.run(b.agentCommand([]string{"--env", "GEMINI_CLI_TRUST_WORKSPACE=true"}, program, "-m", "gemini-2.5-flash", "-p", "go on")...)
			require.Contains(t, out, "The job is done.")
			require.Contains(t, tokens.take(), "Bearer ya29.of-the-test")

			b.keeps(".gemini/oauth_creds.json")
			b.keeps(".gemini/settings.json")
		})
	}
}

// TestGcloudLogin logs gcloud in from inside, by a browser outside.
func TestGcloudLogin(t *testing.T) {
	verdicts.SkipUnlessLong(t)
	gcloud, err := exec.LookPath("gcloud")
	if err != nil {
		t.Skip("needs gcloud")
	}
	var tokens, codes seen
	theWorld.site(t, agents4+":443", google(&tokens, &codes))
	b := newBench(t)
	require.NoError(t, os.MkdirAll(filepath.Join(b.home, ".config/gcloud"), 0o700))
	line := func(flags []string, args ...string) []string {
		argv := []string{program, "--write", "~/.config/gcloud", "--allow", "oauth2.googleapis.com", "--env", "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE=" + caFile, "--read", shared}
		return append(append(append(argv, flags...), "--", gcloud, "auth"), args...)
	}
	// It has to believe that there is a browser: else it asks for a code that is pasted.
	flags := []string{"--env", "DISPLAY=none", "--env", "BROWSER=true"}
	page, wait := b.signIn(b.command(line(flags, "login", "--brief")...), "https://accounts.google.com/o/oauth2/")
	require.Error(t, come(page), "not published: nobody is there")
	wait(os.Interrupt)
	require.Empty(t, codes.take())

	page, wait = b.signIn(b.command(line(append(flags, "--publish", "8085"), "login", "--brief")...), "https://accounts.google.com/o/oauth2/")
	require.NoError(t, come(page))
	out := wait(syscall.Signal(0))
	require.Equal(t, []string{"authorization_code code-of-the-test"}, codes.take(), out)
	require.NotContains(t, out, "quarantined")

	out, _ = b.run(line(nil, "print-access-token")...)
	require.Contains(t, out, "ya29.of-the-test", "the next run is logged in")
}
