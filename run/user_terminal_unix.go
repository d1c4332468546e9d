//go:build unix

package run

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/pccrun/pccrun/providers"
)

// userTerminal is what a provider is told of the user's terminal; stop ends it.
func userTerminal(name string) (t *providers.Terminal, stop func()) {
	resized, winch := make(chan struct{}, 1), make(chan os.Signal, 1)
	signal.Notify(winch, unix.SIGWINCH)
	go func() {
		for range winch {
			select {
			case resized <- struct{}{}:
			default:
			}
		}
	}()
	return &providers.Terminal{Name: name, Resized: resized, Size: func() (columns, rows int) {
		size, err := unix.IoctlGetWinsize(int(os.Stdout.Fd()), unix.TIOCGWINSZ)
		if err != nil {
			return 80, 24
		}
		return int(size.Col), int(size.Row)
	}}, func() { signal.Stop(winch) }
}
