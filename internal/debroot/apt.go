package debroot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// listsLife is how old package lists may be. Debian changes a stable release
// every few days; a list that names a package no longer there is renewed anyway.
const listsLife = 7 * 24 * time.Hour

// apt is Debian's package manager with a state of its own below dir.
// The machine's record of installed packages is read, never written; for
// another release there is none (release.go).
type apt struct {
	dir    string
	config string // a file read after the machine's configuration
}

// aptConfig keeps apt inside the directory %[1]q. The machine's hooks are
// dropped: they act on the machine. Locks are dropped because they are the
// machine's; the cache has its own. Apt as root would fetch as another user,
// who may have no access to the cache.
const aptConfig = `Dir::State::lists "%[1]s/lists";
Dir::State::extended_states "%[1]s/extended_states";
Dir::Cache "%[1]s/cache";
Dir::Cache::pkgcache "pkgcache.bin";
Dir::Cache::srcpkgcache "srcpkgcache.bin";
Debug::NoLocking "true";
APT::Sandbox::User "root";
APT::Install-Recommends "false";
APT::Get::Assume-Yes "true";
APT::Get::Show-User-Simulation-Note "false";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
`

// newApt makes an apt whose state is in the cache, and which reads the lines of
// more after its own.
func newApt(cache, more string) (*apt, error) {
	for _, program := range []string{"apt-get", "dpkg-deb", "tar"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%w: no %s on this machine", ErrUnavailable, program)
		}
	}
	a := &apt{dir: filepath.Join(cache, "apt")}
	a.config = filepath.Join(a.dir, "apt.conf")
	for _, dir := range []string{"lists/partial", "cache"} {
		if err := os.MkdirAll(filepath.Join(a.dir, dir), 0o755); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	if err := os.WriteFile(a.config, append(fmt.Appendf(nil, aptConfig, a.dir), more...), 0o644); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return a, nil
}

// unpacked returns the directory with the packages and those they need that
// the machine lacks, which it fills when it is not there yet.
func (a *apt) unpacked(ctx context.Context, packages []string) (string, error) {
	fresh, err := a.haveLists(ctx)
	if err != nil {
		return "", err
	}
	dir, err := a.unpack(ctx, packages)
	if err == nil || fresh {
		return dir, err
	}
	// The lists may name versions that are gone, or lack a new package.
	if _, updateErr := a.update(ctx, 0); updateErr != nil {
		return "", errors.Join(err, updateErr)
	}
	return a.unpack(ctx, packages)
}

// haveLists renews lists that are too old, and says whether it did. If it cannot,
// old ones are better than none.
func (a *apt) haveLists(ctx context.Context) (fresh bool, err error) {
	fresh, err = a.update(ctx, listsLife)
	if err != nil && exists(a.stamp()) {
		err = nil
	}
	return fresh, err
}

func (a *apt) stamp() string { return filepath.Join(a.dir, "updated") }

// update renews lists older than life and says whether it did.
func (a *apt) update(ctx context.Context, life time.Duration) (bool, error) {
	if info, err := os.Stat(a.stamp()); err == nil && time.Since(info.ModTime()) < life {
		return false, nil
	}
	if _, err := a.get(ctx, "update", "--error-on=any"); err != nil {
		return false, fmt.Errorf("%w: cannot fetch package lists: %w", ErrUnavailable, err)
	}
	return true, os.WriteFile(a.stamp(), nil, 0o644)
}

func (a *apt) unpack(ctx context.Context, packages []string) (string, error) {
	plan, err := a.get(ctx, append([]string{"install", "--simulate"}, packages...)...)
	if err != nil {
		return "", err
	}
	roots := filepath.Join(filepath.Dir(a.dir), "roots")
	dir := filepath.Join(roots, key(packages[0], installations(plan)))
	if exists(dir) {
		return dir, nil
	}
	// Only a complete root gets its name. The lock is ours, so what else has
	// the temporary name was left by a process that died.
	partial := filepath.Join(roots, "partial")
	if err := os.RemoveAll(partial); err != nil {
		return "", err
	}
	defer os.RemoveAll(partial)
	debs := filepath.Join(partial, "debs")
	files := filepath.Join(partial, "root")
	if err := errors.Join(os.MkdirAll(filepath.Join(debs, "partial"), 0o755), layOut(files)); err != nil {
		return "", err
	}
	download := []string{"install", "--download-only", "--option", "Dir::Cache::archives=" + debs}
	if _, err := a.get(ctx, append(download, packages...)...); err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	archives, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return "", err
	}
	for _, deb := range archives {
		if err := extract(ctx, deb, files); err != nil {
			return "", err
		}
	}
	return dir, os.Rename(files, dir)
}

// get runs apt-get and returns what it prints.
func (a *apt) get(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"--config-file", a.config, "--quiet"}, args...)...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("apt-get %s: %w: %s", args[0], err, firstError(stderr.String()))
	}
	return out, nil
}

// firstError returns the first of apt's error messages, or all it said.
func firstError(text string) string {
	for line := range strings.Lines(text) {
		if message, found := strings.CutPrefix(line, "E: "); found {
			return strings.TrimSpace(message)
		}
	}
	return strings.TrimSpace(text)
}

// installation matches what apt-get --simulate would install:
// "Inst iperf3 (3.12-1 Debian:12/stable [amd64])", with "[old]" before the
// parenthesis when it would replace an installed version.
var installation = regexp.MustCompile(`(?m)^Inst (\S+) (?:\[\S+\] )?\((\S+) .*\[(\w+)\]\)`)

// installations returns the packages, versions and architectures of a plan.
func installations(plan []byte) []string {
	var all []string
	for _, m := range installation.FindAllSubmatch(plan, -1) {
		all = append(all, fmt.Sprintf("%s_%s_%s", m[1], m[2], m[3]))
	}
	return all
}

// key names a root by a digest of what is unpacked in it, and by one of the
// packages asked for, for those who look into the cache.
func key(name string, versions []string) string {
	slices.Sort(versions)
	sum := sha256.Sum256([]byte(strings.Join(versions, "\n")))
	return name + "-" + hex.EncodeToString(sum[:8])
}

// layOut makes an empty root in which, as on every Debian since 12, /bin and
// its like are links into /usr. Packages still hold both spellings.
func layOut(root string) error {
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.MkdirAll(filepath.Join(root, "usr", name), 0o755); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join("usr", name), filepath.Join(root, name)); err != nil {
			return err
		}
	}
	return errors.Join(os.Mkdir(filepath.Join(root, "etc"), 0o755), os.Mkdir(filepath.Join(root, "var"), 0o755))
}

// extract unpacks the files of a package. dpkg-deb --extract would replace the
// links of layOut by directories.
func extract(ctx context.Context, deb, root string) error {
	var complaints [2]bytes.Buffer
	contents := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	untar := exec.CommandContext(ctx, "tar", "--extract", "--preserve-permissions", "--keep-directory-symlink", "--directory", root)
	contents.Stderr, untar.Stderr = &complaints[0], &complaints[1]
	var err error
	if untar.Stdin, err = contents.StdoutPipe(); err != nil {
		return err
	}
	if err := contents.Start(); err != nil {
		return err
	}
	if err := errors.Join(untar.Run(), contents.Wait()); err != nil {
		return fmt.Errorf("cannot unpack %s: %w: %s", filepath.Base(deb), err, complaints[0].String()+complaints[1].String())
	}
	return nil
}
