package main

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
)

type versionCommand struct{}

func (*versionCommand) Run(out output) error {
	v := version()
	if v == "" {
		return errors.New("built without module support, so the version is not known; build with make")
	}
	_, err := fmt.Fprintf(out, "exn-tun %s %s %s/%s\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return err
}

// version is that of the module, "" if it is not known.
func version() string {
	info, found := debug.ReadBuildInfo()
	if !found {
		return ""
	}
	return info.Main.Version
}
