package native

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPortOf(t *testing.T) {
	for words, port := range map[string]uint16{
		"ssh -o SendEnv=GIT_PROTOCOL git@a.example git-upload-pack": 22,
		"/usr/bin/ssh -p 2222 git@a.example":                        2222,
		"ssh -p2222 a.example":                                      2222,
		"psql -h a.example":                                         5432,
		"psql postgres://u@a.example/db":                            5432,
		"psql postgres://u@a.example:5433/db":                       5433,
		"mysql -p1234 -h a.example":                                 3306,
		"mongosh --port=27018 a.example":                            27018,
		"nc a.example 25":                                           25,
		"java -jar x.jar http://a.example:8081/y":                   8081,
		"make -p 4 test":                                            0,
		"ping a.example":                                            0,
		"nc a.example 99999":                                        0,
	} {
		require.Equal(t, port, portOf(strings.Fields(words), "a.example"), words)
	}
}
