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
	s.f = f
	s.info = info
	s.cut = -1
	s.began = s.interval(info.ModTime())
	return nil
}

// Check finds what is no file, a directory that does not exist, and missing permissions.
func (s *Sink) Check() error {
	created, err := creates(s.path)
	if err != nil {
		return err
	}
	if created {
		if err := writable(filepath.Dir(s.path)); err != nil {
			return fmt.Errorf("open file: no permission to create files in %s", filepath.Dir(s.path))
		}
		return nil
	}
	f, err := os.OpenFile(s.path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("open file: %w", err)
	}
	return f.Close()
}

// creates is true where opening path creates a file. Its error says why none can be
// opened. It is asked before opening: to open a pipe waits for its reader.
func creates(path string) (bool, error) {
	switch before, err := os.Lstat(path); {
	case err == nil && before.IsDir():
		return false, fmt.Errorf("open file: %s is a directory: write the path of a file in it", path)
	case err == nil && !before.Mode().IsRegular():
		return false, fmt.Errorf("open file: %s is not a regular file", path)
	case errors.Is(err, fs.ErrNotExist):
		if dir := filepath.Dir(path); !isDir(dir) {
			return false, fmt.Errorf("open file: directory %s does not exist: make it first", dir)
		}
		return true, nil
	}
	return false, nil
}

// openAppend opens the regular file at path, or creates it with the given mode, and
// locks it.
func openAppend(path string, mode fs.FileMode) (*os.File, os.FileInfo, error) {
	created, err := creates(path)
	if err != nil {
		return nil, nil, err
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
