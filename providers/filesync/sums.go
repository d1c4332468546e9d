package filesync

import (
	"bufio"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
)

// Sums prints the SHA-256 of the files that it reads the names of, a NUL behind each, as sha256sum -z does.
func Sums(to io.Writer, from io.Reader) error {
	in, out := bufio.NewReader(from), bufio.NewWriter(to)
	for {
		name, err := in.ReadString(0)
		switch {
		case err == io.EOF && name == "":
			return out.Flush()
		case err == io.EOF:
			return io.ErrUnexpectedEOF // half a name is another
		case err != nil:
			return err
		}
		f, err := os.Open(name[:len(name)-1])
		if err != nil {
			return err
		}
		sum := sha256.New()
		_, err = io.Copy(sum, f)
		f.Close()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%x  %s", sum.Sum(nil), name) // an error stays until Flush
	}
}
