package remote

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/pccrun/pccrun/providers/inside"
)

// Place is the verb by which pccrun's own program works in a sandbox, for the engine. Each of its words does no harm
// if it is executed twice. A word that has many names reads them from a file, a NUL behind each, for not every
// provider gives a program standard input.
const Place = "place"

// The words of [Place].
const (
	prepareWord    = "prepare"    // PROGRAM SUM NAME OWN [stands] [HOME]: makes the directories, and prints a [prepared]
	installWord    = "install"    // DIR NAME: gives pccrun's own program a place that is root's, where that can be had, and prints it
	adoptWord      = "adopt"      // DIR NAME OLD: gives the program of an earlier run to this one, and prints where it is
	listWord       = "list"       // DIR [sums|busy]: prints a [listing]
	packWord       = "pack"       // DIR NAMES SUM FILE [busy]: makes an archive of names, and prints a [packed]
	extractWord    = "extract"    // FILE SUM DIR: extracts an archive, and removes it
	removeWord     = "remove"     // DIR NAMES SUM: removes names in a directory, and the file that says them
	repositoryWord = "repository" // DIR BRANCH: makes a git repository with one commit
)

// The exit statuses by which a word says what is wrong.
const (
	statusGarbled = 65 // what came differs from what was sent: it is sent again
	statusRefused = 73
)

// prepared is what [prepareWord] prints.
type prepared struct {
	Home inside.Text
	Path inside.Text
	User inside.Text
}

// packed is what [packWord] prints.
type packed struct {
	Sum  string
	Size int64
}

// errSum says that what came differs from what was sent.
var errSum = errors.New("the checksum differs")

// errNoWord says that a word has other arguments: the program there and the engine are of one version.
var errNoWord = fmt.Errorf("BUG: unknown word of %s", Place)

// InPlace is the verb [Place]. It returns an exit status.
func InPlace(args []string, out, say io.Writer) int {
	word, rest := "", []string(nil)
	if len(args) > 0 {
		word, rest = args[0], args[1:]
	}
	answer, err := inPlace(word, append(rest, make([]string, 6)...)[:6])
	if err == nil && answer != nil {
		err = json.NewEncoder(out).Encode(answer)
	}
	switch err {
	case nil:
		return 0
	case errSum:
		return statusGarbled
	}
	fmt.Fprintf(say, "%s %s: %s\n", Place, word, strings.ReplaceAll(err.Error(), "\n", " "))
	return statusRefused
}

// readNames reads the names that a file says, whose SHA-256 is given: half a name is another.
func readNames(file, sum string) ([]string, error) {
	text, err := os.ReadFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist): // the word was done, and the answer was lost: once more
		return nil, errSum
	case err != nil:
		return nil, err
	case sumOf(text) != sum:
		return nil, errSum
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00"), nil
}

// namesOf is such a file.
func namesOf(names []string) []byte { return []byte(strings.Join(names, "\x00") + "\x00") }
