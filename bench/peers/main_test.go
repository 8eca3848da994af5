package main

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "spillway-peers-test-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}
