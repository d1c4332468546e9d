package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/pccrun/pccrun/providers/inside"
)

// Place is the verb by which pccrun's own program works in a sandbox, for the engine. Each of its words does no harm
// if it is executed twice. What a word reads stands in a file that was sent before, for not every provider gives a
// program standard input: an [input] stands before the word's own arguments.
const Place = "place"

// The words of [Place].
const (
	prepareWord    = "prepare"    // NAME OWN HOME: reads pccrun's program, makes the directories, and prints a [prepared]
	installWord    = "install"    // DIR NAME UPLOADED: gives the program a directory that is root's, where that can be had, and prints it
	adoptWord      = "adopt"      // DIR NAME: gives the program of an earlier run to this one, and prints where it is
	listWord       = "list"       // DIR [sums|busy]: prints a [listing]
	packWord       = "pack"       // DIR TO MOST [busy]: reads names, makes an archive of them in a directory, and prints a [packed]
	toolsWord      = "tools"      // COPY KEY [done]: makes a directory for what KEY says, and prints a [toolsDir]; done: that is there
	extractWord    = "extract"    // DIR: reads an archive, and makes what it holds
	removeWord     = "remove"     // DIR: reads names, and removes them
	usageWord      = "usage"      // DIR: prints a [providers.Result]
	repositoryWord = "repository" // DIR BRANCH: makes a git repository with one commit
)

// ofUser are the words that the sandbox's user executes; all others do as root, where that can be had.
var ofUser = []string{prepareWord, extractWord, repositoryWord, usageWord}

// The exit statuses by which a word says what is wrong.
const (
	statusGarbled = 65 // what came differs from what was sent: it is sent again
	statusRefused = 73
)

// prepared is what [prepareWord] prints.
type prepared struct{ Home, Path, User inside.Text }

// packed is what [packWord] prints.
type packed struct {
	Sum   string
	Size  int64
	Parts int
}

// toolsDir is what [toolsWord] prints.
type toolsDir struct {
	Dir    inside.Text
	Stands bool // what is wanted is in it
}

// An input is a file that a word reads: it came in so many parts, which are gone when the word is done; 0 for none.
type input struct {
	file, sum string
	parts     int
}

// partName is what a part of a file is called. One that came whole has its own name.
func partName(file string, i, parts int) string {
	if parts == 1 {
		return file
	}
	return fmt.Sprintf("%s.%04d", file, i)
}

// downName is what a part of an archive is called in a directory.
func downName(dir string, i int) string { return fmt.Sprintf("%s/%04d", dir, i) }

// errSum says that what came differs from what was sent.
var errSum = errors.New("the checksum differs")

// errNoWord says that a word has other arguments: the program there and the engine are of one version.
var errNoWord = fmt.Errorf("BUG: unknown word of %s", Place)

// InPlace is the verb [Place]. It returns an exit status.
func InPlace(args []string, out, say io.Writer) int {
	args = append(slices.Clone(args), make([]string, 8)...)
	parts, _ := strconv.Atoi(args[3])
	answer, err := inPlace(args[0], input{args[1], args[2], parts}, args[4:])
	if err == nil && answer != nil {
		err = json.NewEncoder(out).Encode(answer)
	}
	switch err {
	case nil:
		return 0
	case errSum:
		return statusGarbled
	}
	fmt.Fprintf(say, "%s %s: %s\n", Place, args[0], strings.ReplaceAll(err.Error(), "\n", " "))
	return statusRefused
}

// namesOf are names as a word reads them, a NUL behind each.
func namesOf(names []string) []byte { return []byte(strings.Join(names, "\x00") + "\x00") }
