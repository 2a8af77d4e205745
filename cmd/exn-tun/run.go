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
	Fabric  string   `help:"The fabric directory, in which the program and its peers find each other (default: EXN_FABRIC, else /run/exn for root, else exn in XDG_RUNTIME_DIR)." placeholder:"DIR"`
	Require bool     `help:"Allow no busy connection on plain TCP. A connection whose peer does not use the library is reset in its 8th call or after 16 KiB. Any other that stays on TCP is reset once that is decided, at most 3 s after it became busy. A program that cannot load the library is not started."`
	Policy  string   `help:"A policy file, which says which connections may use shared memory, and with what settings (exn-tun policy prints an example)." env:"EXN_POLICY" placeholder:"FILE.toml"`
	Verbose bool     `help:"The library says on standard error what happens to each connection."`
	Command []string `arg:"" passthrough:"partial" placeholder:"CMD" help:"The program and its arguments, after --."`
}

// Help is the long text of --help.
func (*runCommand) Help() string {
	return `exn-tun replaces itself by the program (exec), with libextds.so preloaded. The program keeps the process ID, the terminal and the exit code, and gets the signals. ` +
		`A busy TCP connection moves to shared memory if the program at its other end also uses the library, in the same fabric directory. All others stay on TCP. ` +
		`Neither root nor a daemon is needed.

exn-tun show sockets shows what has become of each connection, as ss -tnp does for TCP. ` +
		`tcpdump, nftables, tc and the counters of ss -i do not see bytes that go through shared memory.

The library is the file that EXN_LIBRARY names, else libextds.so beside exn-tun or in ../lib. It comes before libraries that LD_PRELOAD already names. ` +
		`A program that is static, setuid, written in Go or built for another architecture cannot load it: it runs on TCP, and standard error says so.

Exit codes: that of the program; 2 wrong usage, setting or policy, 125 exn-tun itself failed, 126 the program cannot be run, 127 there is no such program. The last three are those of env(1).`
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
