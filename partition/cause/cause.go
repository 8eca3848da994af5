// Package cause puts together failures that differ in nothing but ids, numbers and times.
package cause

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// Max is the longest cause, in bytes.
	Max = 200
	// read is how much of a text counts.
	read = 2 * Max
)

// varies is what differs from one failure to the next: UUIDs, and words with a digit, where letters and digits make a word,
// and points and commas between digits are part of it.
var varies = regexp.MustCompile(`(?i)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\pL*\pN[\pL\pN]*(?:[.,]\pN[\pL\pN]*)*`)

// hidden reports whether a character cannot be seen, so that nobody could type the cause.
func hidden(r rune) bool { return r == ' ' || !unicode.IsPrint(r) }

// Fold is the cause of a failure: of the first 400 bytes of what was said, with # for each UUID and each word that has a digit,
// such as a number, a duration, a time or a hash, and a space for white space and what cannot be printed, the first 200. It is its
// own Fold.
func Fold(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), read)], "")
	text = strings.Join(strings.FieldsFunc(varies.ReplaceAllString(text, "#"), hidden), " ")
	n := min(len(text), Max)
	for n < len(text) && !utf8.RuneStart(text[n]) {
		n--
	}
	return strings.TrimRight(text[:n], " ")
}
