package file

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// open makes s.f the file at the path, ending with a whole line. An s.f there
// was before is closed first; after an error there is none.
func (s *Sink) open() error {
	if err := s.close(); err != nil {
		return err
	}
	f, info, err := openAppend(s.path, s.mode)
	if err != nil {
		return err
	}
	if err := endLine(f, info.Size()); err != nil {
		return errors.Join(fmt.Errorf("end torn line: %w", err), f.Close())
	}
	s.f, s.info, s.cut, s.began = f, info, -1, s.interval(info.ModTime())
	return nil
}

// openAppend opens the regular file at path, or creates it with the given mode, and
// locks it.
func openAppend(path string, mode fs.FileMode) (*os.File, os.FileInfo, error) {
	// Asked before opening: to open a pipe waits for its reader.
	created := false
	switch before, err := os.Lstat(path); {
	case err == nil && !before.Mode().IsRegular():
		return nil, nil, fmt.Errorf("open file: %s is not a regular file", path)
	case errors.Is(err, fs.ErrNotExist):
		if dir := filepath.Dir(path); !isDir(dir) {
			return nil, nil, fmt.Errorf("open file: directory %s does not exist: make it first", dir)
		}
		created = true
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, mode)
	if err != nil {
		return nil, nil, fmt.Errorf("open file: %w", err)
	}
	err = lock(f)
	if err == nil && created {
		err = f.Chmod(mode) // the umask may have taken bits
	}
	info, statErr := f.Stat()
	if err = errors.Join(err, statErr); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open file: %w", err), f.Close())
	}
	return f, info, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// endLine appends a newline when the last line has none: a crash cut it short,
// and the next batch would merge with it. Readers skip the torn line.
func endLine(f *os.File, size int64) error {
	if size == 0 {
		return nil
	}
	var last [1]byte
	if _, err := f.ReadAt(last[:], size-1); err != nil {
		return err
	}
	if last[0] == '\n' {
		return nil
	}
	_, err := f.Write([]byte{'\n'})
	return err
}
