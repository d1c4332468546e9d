package run

import (
	"fmt"
	"strings"

	"github.com/pccrun/pccrun/internal/events"
	"github.com/pccrun/pccrun/internal/messages"
)

// DeniedText is the line in which a refusal is printed, at the end of a run and by `pccrun learn`.
func DeniedText(d events.Denial, times int64) string {
	text := d.What
	if !strings.HasPrefix(text, atExit) {
		text = "denied: " + strings.TrimPrefix(text, "connect ")
	}
	if times > 1 {
		text += fmt.Sprintf(", %d times", times)
	}
	return messages.Allow(text, d.Hint)
}

// atExit begins the text of a process that was ended with the command.
const atExit = "ended at exit: background process "

// PrintedApart reports whether a refusal has another line of the run's: with the findings, or by unchanged.
func PrintedApart(d events.Denial) bool {
	return strings.HasPrefix(d.What, "keep ") || strings.HasPrefix(d.What, "change ")
}
