// Package process runs programs as children with bounds: each in a process group of its own, of
// which nothing is left when Run returns, for a limited time, and with a bound on what it may
// write.
package process

// A Command is a program to run once, without a shell, in the working directory of this process.
type Command struct {
	Args  []string // an absolute path, and the arguments
	Env   []string // all of its environment, as NAME=value
	Input []byte   // its stdin, which it need not read
	// MaxStdout and MaxStderr are how many bytes of its output are kept. What it writes beyond
	// that is read, so that it goes on, and thrown away.
	MaxStdout, MaxStderr int64
}

// Output is what became of a Command.
type Output struct {
	Started        bool // it ran; without that the error says why it could not
	Stdout, Stderr []byte
}
