package workspace

// A GitQuestion is what git is asked of a repository.
type GitQuestion struct {
	Dir        string   // the git directory
	Read       []string // directories outside of it that git reads
	Args, Else []string // Else is asked if the first fails
	Input      string
	Shallow    string // where history ends, as in the file "shallow", which is not read
}

// A GitAnswer is what git has printed, and why that may not be all.
type GitAnswer struct {
	Text []byte
	Err  error
}

// AskGit has git answer some questions where nothing that a repository says can do anything, within some time. The
// answers are nil where there is no git: nobody checks anything out.
type AskGit func([]GitQuestion) []GitAnswer
