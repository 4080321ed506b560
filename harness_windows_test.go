package main

// The functions of harness_unix_test.go: Windows has none of this.

import (
	"errors"
	"os"
	"os/exec"
)

func makePipe(string) error   { return errors.ErrUnsupported }
func makeDevice(string) error { return errors.ErrUnsupported }
func endBySignal(int)         {}
func leaveSession(*exec.Cmd)  {}
func isGone(int) bool         { return true }

func copyDescriptor(*os.File) (func(), error) { return func() {}, errors.ErrUnsupported }
