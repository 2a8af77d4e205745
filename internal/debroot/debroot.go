// Package debroot runs programs from Debian packages without installing them.
//
// Measurements and tests of real programs (iperf3, redis, nginx) must not change
// the machine and must not depend on what somebody installed on it. So the packages, and
// those they depend on that the machine lacks, are fetched by apt and unpacked
// into a directory of the user's cache; nothing is configured or started.
//
//	root, err := debroot.Open(ctx, "redis-server", "iperf3")
//	cmd := root.Command(ctx, "redis-server", "--port", "0")
//
// # What a command sees
//
// For root who may mount, each command gets a mount namespace of its own, in which the
// packages lie over the machine's /etc, /usr and /var as if they were
// installed, and paths compiled into programs hold. What it writes into these
// three is private to it and gone when it ends; files to be kept or shared
// belong elsewhere, say in t.TempDir. The rest of the file system, the network
// and the processes are those of the caller. What a package would set up when
// it is installed (users, directories, /run) is the command's own affair:
//
//	root.Command(ctx, "sh", "-c", "useradd --system sshd && mount -t tmpfs none /run && mkdir /run/sshd && exec /usr/sbin/sshd -D")
//	root.Command(ctx, "setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups", "postgres", "-D", dir)
//	root.Command(ctx, "env", "LD_PRELOAD="+library, "redis-server")
//
// Others get PATH and LD_LIBRARY_PATH instead; programs with compiled-in
// paths must be told theirs, see [Root.Path].
//
// # Other releases
//
// [OpenRelease] has the packages of another Debian release than the machine's,
// from the same mirror: newer programs, on a newer C library. Of these everything
// they depend on is unpacked, whatever the machine has, so only the kernel and
// programs that no package needs are the machine's. The latter run on the newer
// libraries, as they would in the middle of an upgrade. On those of an older release
// they do not: its packages must have all that is run (dash, coreutils).
//
//	root, err := debroot.OpenRelease(ctx, "trixie", "openjdk-21-jdk-headless")
//
// # The cache
//
// It is EXNET_CACHE, or exnet in the user's cache directory. It holds apt's
// package lists, renewed after a week, and a directory for each set of packages
// and versions; those of another release are in a directory of its name. A lock serves one process at a time. It can be removed whenever
// no test runs. Apt is used with the machine's sources, proxies and keys, but
// its lists, archives and locks are left alone.
package debroot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrUnavailable is wrapped by errors of [Open] that say that packages cannot
// be had here: there is no apt, no network or no place to put them.
var ErrUnavailable = errors.New("no Debian packages here")

// cacheVariable names the environment variable with the place of the cache.
const cacheVariable = "EXNET_CACHE"

// Root is a set of unpacked packages. It can be used by several goroutines and
// processes at once.
type Root struct {
	dir      string
	memory   string // an empty directory, where commands mount private memory
	obstacle error  // why commands do not see the packages in place; nil if they do
}

// opened holds what this process has asked for, by cache and packages: it takes
// apt half a second to say that nothing has changed, and longer to give up.
var opened = struct {
	sync.Mutex
	results map[string]result
}{results: make(map[string]result)}

type result struct {
	root *Root
	err  error
}

// Open fetches and unpacks the packages unless the cache has them.
func Open(ctx context.Context, packages ...string) (*Root, error) {
	return OpenRelease(ctx, "", packages...)
}

// OpenRelease is Open for a Debian release by its codename, such as trixie. The
// machine's own is the empty string: by its name all of it would be unpacked a second
// time. It wraps [ErrUnavailable], too, where the machine's sources have no
// Debian, where the mirror does not have the release or the machine not its keys,
// and where packages cannot be laid in place: they need their own C library.
func OpenRelease(ctx context.Context, release string, packages ...string) (*Root, error) {
	if len(packages) == 0 {
		return nil, errors.New("no packages named")
	}
	if !codename.MatchString(release) {
		return nil, fmt.Errorf("no Debian release has the name %q", release)
	}
	cache, err := cacheDir()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	opened.Lock()
	defer opened.Unlock()
	name := strings.Join(append([]string{cache, release}, packages...), " ")
	if r, found := opened.results[name]; found {
		return r.root, r.err
	}
	root, err := open(ctx, cache, release, packages)
	if err != nil {
		err = fmt.Errorf("packages %q%s: %w", packages, of(release), unwritable(err, cache))
	}
	if ctx.Err() == nil {
		opened.results[name] = result{root, err}
	}
	return root, err
}

func of(release string) string {
	if release == "" {
		return ""
	}
	return " of " + release
}

func open(ctx context.Context, cache, release string, packages []string) (*Root, error) {
	unlock, err := lock(ctx, filepath.Join(cache, "lock"))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer unlock()
	a, err := newApt(cache, "")
	if err == nil && release != "" {
		a, err = a.ofRelease(ctx, release)
	}
	if err != nil {
		return nil, err
	}
	dir, err := a.unpacked(ctx, packages)
	if err != nil {
		return nil, err
	}
	root := &Root{dir: dir, memory: filepath.Join(cache, "memory")}
	if err := os.MkdirAll(root.memory, 0o755); err != nil {
		return nil, err
	}
	// Being root is not enough: in a container root may not mount.
	if out, err := root.Command(ctx, "").CombinedOutput(); err != nil {
		root.obstacle = fmt.Errorf("needs root and overlays to lay packages over the machine's directories: %w: %s", err, bytes.TrimSpace(out))
		if release != "" {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, root.obstacle)
		}
	}
	return root, nil
}

// unwritable adds the remedy to an error of a cache that cannot be written to. Programs that were
// started say so in their own words.
func unwritable(err error, cache string) error {
	at, ofFile := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, unix.EDQUOT), strings.Contains(strings.ToLower(err.Error()), unix.ENOSPC.Error()):
		return fmt.Errorf("%w: %w; free some space in %s, or set %s to another directory", ErrUnavailable, err, cache, cacheVariable)
	case !ofFile || !strings.HasPrefix(at.Path, cache):
	case errors.Is(err, unix.EROFS), errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w; set %s to a directory that you can write to", err, cacheVariable)
	}
	return err
}

func cacheDir() (string, error) {
	dir := os.Getenv(cacheVariable)
	if dir == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("%w (set %s to a directory)", err, cacheVariable)
		}
		dir = filepath.Join(base, "exnet")
	}
	return filepath.Abs(dir)
}

// lockRetry is how often a taken lock is tried again.
const lockRetry = 50 * time.Millisecond

// lock waits until no other process works on the cache, or until ctx ends. What it makes can be
// entered by other users, as whom programs under test may run.
func lock(ctx context.Context, path string) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		switch {
		case err == nil:
			return func() { file.Close() }, nil
		case !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EWOULDBLOCK):
			file.Close()
			return nil, fmt.Errorf("cannot lock %s: %w", path, err)
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("another process has kept %s locked: %w", path, context.Cause(ctx))
		case <-time.After(lockRetry):
		}
	}
}

// Path returns where a command of this root finds a file of the packages,
// which they know by an absolute path such as /etc/nginx/mime.types.
func (r *Root) Path(installed string) string {
	if r.obstacle != nil {
		if path := filepath.Join(r.dir, installed); exists(path) {
			return path
		}
	}
	return installed
}

// Dir is where the packages are unpacked, for files that somebody else than a command of this root needs.
func (r *Root) Dir() string { return r.dir }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
