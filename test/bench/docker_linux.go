package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/pccrun/pccrun/test/internal/dockerd"
)

// docker measures a container until it prints, ÷ `docker run` with the same flags, and what
// comes through it, ÷ the same without a sandbox.
func (b *bench) docker(ctx context.Context) ([]figure, error) {
	const first, bulk = "until the first output, docker with ", "bulk down one connection, docker with "
	runsc, err := dockerd.Runsc()
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(runsc); err != nil {
		runsc = ""
	}
	why := ""
	if _, err := os.Stat(dockerd.Program); err != nil {
		why = "no docker.io"
	} else if b.user == nil {
		why = "only root starts an engine"
	}
	var figures []figure
	var engine *dockerd.Engine
	if why == "" {
		if engine, err = dockerd.Start(int(b.user.GID), runsc); err != nil {
			return nil, err
		}
		defer engine.Stop()
	}
	for _, runtime := range []string{"runc", "runsc"} {
		missing := why
		if missing == "" && runtime == "runsc" && runsc == "" {
			missing = "no runsc: make test-long builds it"
		}
		if missing != "" {
			figures = append(figures, figure{name: first + runtime, unit: "× docker run", goal: 1.2, why: missing},
				figure{name: bulk + runtime + ", time", unit: "× direct", goal: bulkGoals[runtime], why: missing})
			continue
		}
		list, err := b.container(ctx, engine.Host, runtime)
		if err != nil {
			return nil, err
		}
		list[0].name, list[1].name = first+runtime, bulk+runtime+", time"
		figures = append(figures, list...)
	}
	return figures, nil
}

// bulkGoals are what a stream may take that an engine copies from process to process: with all processors
// busy it is 190 MB a second with runc, and 80 with gVisor.
var bulkGoals = map[string]float64{"runc": 10, "runsc": 25}

func (b *bench) container(ctx context.Context, host, runtime string) ([]figure, error) {
	rounds := max(3, b.rounds/30)
	environ := []string{"DOCKER_HOST=" + host}
	own := b.pccrun("--provider", "docker", "--runtime", runtime)
	if _, err := b.untilOutput(ctx, environ, append(own, "echo")); err != nil { // the image is there from now on
		return nil, err
	}
	peer, err := b.dockerRun(ctx, environ, runtime)
	if err != nil {
		return nil, err
	}
	var times [2][]time.Duration
	for range rounds {
		for i, argv := range [2][]string{append(peer, "echo"), append(own, "echo")} {
			took, err := b.untilOutput(ctx, environ, argv)
			if err != nil {
				return nil, err
			}
			times[i] = append(times[i], took)
		}
	}
	in, out := median(times[1]), median(times[0])
	figures := []figure{{value: ratios(times[1], times[0]), unit: "× docker run", goal: 1.2, detail: fmt.Sprintf("%s to %s", ms(in), ms(out))}}

	port, stop, err := workServer()
	if err != nil {
		return nil, err
	}
	defer stop()
	size := bulkBytes / 4
	if b.rounds < 100 { // a little of it
		size = bulkBytes / 64
	}
	routes := [2]route{
		{prefix: []string{b.worker, "work", "net"}, address: net.JoinHostPort("127.0.0.1", port)},
		{prefix: append(b.pccrun("--provider", "docker", "--runtime", runtime, "--local", port), b.worker, "work", "net"), address: net.JoinHostPort("host.pccrun.internal", port), env: environ},
	}
	times = [2][]time.Duration{}
	for range max(3, rounds/3) {
		for i, r := range routes {
			took, err := b.travel(ctx, r, []string{"down", strconv.Itoa(size)})
			if err != nil {
				return nil, err
			}
			times[i] = append(times[i], took)
		}
	}
	in, out = median(times[1]), median(times[0])
	return append(figures, figure{value: ratios(times[1], times[0]), unit: "× direct", goal: bulkGoals[runtime], detail: fmt.Sprintf("%s to %s", ms(in), ms(out))}), nil
}

// untilOutput is the time from the start of a command to the first byte that it prints.
func (b *bench) untilOutput(ctx context.Context, environ, argv []string) (time.Duration, error) {
	cmd := b.command(ctx, b.empty, argv...)
	cmd.Env = append(cmd.Env, environ...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	_, err = bufio.NewReader(stdout).ReadByte()
	took := time.Since(begun)
	if end := cmd.Wait(); end != nil || err != nil {
		return 0, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), end, bytes.TrimSpace(stderr.Bytes()))
	}
	return took, nil
}

// dockerRun is the command line of docker's own client for what pccrun asks the engine for,
// less the files that a run makes.
func (b *bench) dockerRun(ctx context.Context, environ []string, runtime string) ([]string, error) {
	client, err := exec.LookPath("docker")
	if err != nil {
		return nil, err
	}
	cmd := b.command(ctx, b.empty, b.program, "-q", "--provider", "docker", "--runtime", runtime, "--dry-run", "--json", "--", "true")
	cmd.Env = append(cmd.Env, environ...)
	text, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var dry struct {
		Plan struct {
			Image  string
			Config struct{ User string }
			Host   struct {
				Mounts []struct {
					Source, Target string
					ReadOnly       bool
				}
				Tmpfs     map[string]string
				Memory    int64
				PidsLimit int64
			}
		}
	}
	if err := json.Unmarshal(text, &dry); err != nil {
		return nil, err
	}
	h := &dry.Plan.Host
	argv := []string{client, "run", "--rm", "-i", "--runtime", runtime, "--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges", "--security-opt", "seccomp=unconfined",
		"--log-driver", "none", "--user", dry.Plan.Config.User, "--memory", strconv.FormatInt(h.Memory, 10), "--pids-limit", strconv.FormatInt(h.PidsLimit, 10)}
	for _, m := range h.Mounts {
		if _, err := os.Lstat(m.Source); err != nil {
			continue // made for a run
		}
		mount := "type=bind,src=" + m.Source + ",dst=" + m.Target
		if m.ReadOnly {
			mount += ",readonly"
		}
		argv = append(argv, "--mount", mount)
	}
	for target, options := range h.Tmpfs {
		argv = append(argv, "--tmpfs", target+":"+options)
	}
	return append(argv, dry.Plan.Image), nil
}
