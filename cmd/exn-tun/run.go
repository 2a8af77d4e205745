package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"exnet/directsockets/launch"
	"exnet/directsockets/policy/policyfile"
	"exnet/directsockets/settings"
	fabricdir "exnet/fabric/dir"
	"exnet/fabric/directory"
	"exnet/fabric/shm"
)

type runCommand struct {
	Fabric  string   `help:"The fabric directory in which the program and its peers find each other (default: EXN_FABRIC, else /run/exn for root, else exn in XDG_RUNTIME_DIR)." placeholder:"DIR"`
	Require bool     `help:"Reset connections that stay on TCP at their first busy moment: in the 8th call or after 16 KiB if the peer does not use the library, else once it is decided, 3 s later at the latest. Refuse to start a program into which nothing can be preloaded."`
	Policy  string   `help:"A policy file: which connections may upgrade, and with what settings (default: EXN_POLICY; exn-tun policy prints one)." env:"EXN_POLICY" placeholder:"FILE.toml"`
	Verbose bool     `help:"Have the program say on standard error what happens to its connections."`
	Command []string `arg:"" passthrough:"partial" placeholder:"CMD" help:"The program and its arguments, after --."`
}

// Help is the long text of --help.
func (*runCommand) Help() string {
	return `Becomes the program, with libextds.so preloaded: its process ID, signals, terminal and exit code are those that it would have by itself. ` +
		`Its TCP connections move to shared memory when the peer is run so, too, and shows up in the same fabric directory; all others stay on TCP. ` +
		`Neither root nor a daemon is needed. exn-tun show sockets tells what has become of each connection, as ss does for TCP; ` +
		`upgraded bytes are not seen by tcpdump, nftables, tc and the counters of ss -i.

The library is the one that EXN_LIBRARY names, else libextds.so beside exn-tun or in ../lib. Libraries that LD_PRELOAD names already stay behind it. ` +
		`A program that is static, setuid, written in Go or of another architecture runs on TCP; that is said on standard error.

Exit codes: those of CMD; 125 exn-tun itself failed, 126 CMD cannot be run, 127 there is no CMD (2 wrong usage or policy), as of env(1).`
}

// The exit codes of env(1) and its like.
const (
	exitNotStarted = 125
	exitCannotRun  = 126
	exitNotFound   = 127
)

func (c *runCommand) Run(messages messages) error {
	command := c.Command
	if command[0] == "--" {
		command = command[1:]
	}
	if len(command) == 0 {
		return coded{errors.New("no program to run: exn-tun run -- CMD ARGS"), exitUsage}
	}
	if wrong := settings.Check(os.Environ()); len(wrong) > 0 {
		return coded{wrong[0], exitUsage}
	}
	library, err := launch.Library()
	if err != nil {
		return coded{err, exitNotStarted}
	}
	program, err := launch.Find(command[0], os.Environ())
	if errors.Is(err, launch.ErrNotFound) {
		return coded{err, exitNotFound}
	}
	if err != nil {
		return coded{err, exitCannotRun}
	}
	options := launch.Options{Require: c.Require, Verbose: c.Verbose, Sanitizer: program.Sanitizer()}
	if c.Policy != "" {
		if options.Policy, err = policyfile.Read(c.Policy); err != nil {
			return err
		}
	}
	dir := c.Fabric
	if dir == "" {
		dir = shm.DefaultDir()
	}
	if dir, err = filepath.Abs(dir); err != nil { // the program may change its directory
		return coded{err, exitNotStarted}
	}
	if c.Fabric != "" || os.Getenv("EXN_FABRIC") != "" {
		options.Fabric = dir // else each program has the default of its user
	}
	obstacles := program.Obstacles(os.Geteuid(), os.Getegid())
	user := directory.Self()
	if p := options.Policy; p != nil && os.Getenv(fabricdir.PeersVariable) == "" {
		user.Peers, _ = fabricdir.ParsePeers(p.Setting(filepath.Base(program.Path), fabricdir.PeersVariable)) // the file was checked
	}
	if err := directory.Check(dir, user); err != nil {
		obstacles = append(obstacles, err.Error())
	}
	if len(obstacles) > 0 && c.Require {
		return coded{fmt.Errorf("%s; with --require it is not started on TCP", obstacles[0]), exitCannotRun}
	}
	for _, o := range obstacles {
		fmt.Fprintf(messages, "exn-tun: %s; its connections stay on TCP\n", o)
	}
	err = unix.Exec(program.Path, command, options.Environment(library, os.Environ()))
	return coded{fmt.Errorf("run %s: %w", program.Path, err), exitCannotRun} // exec only returns when it failed
}
