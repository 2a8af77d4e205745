package debroot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
)

// codename matches names of releases, which become names of directories.
var codename = regexp.MustCompile(`^[a-z]*$`)

// releaseConfig has apt know one source in %[1]q and no installed package, so
// that it plans for all that packages depend on. The machine's preferences and
// its default release are about its own sources.
const releaseConfig = `Dir::State::status "%[1]s/status";
Dir::Etc::sourcelist "%[1]s/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
#clear APT::Default-Release;
`

// keyring is where each Debian has the keys of all releases that it knows of, those
// of the next one among them.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// ofRelease is an apt for another release, from the mirror of a.
func (a *apt) ofRelease(ctx context.Context, release string) (*apt, error) {
	mirror, err := a.mirror(ctx)
	if err != nil {
		return nil, err
	}
	cache := filepath.Join(filepath.Dir(a.dir), release)
	other, err := newApt(cache, fmt.Sprintf(releaseConfig, filepath.Join(cache, "apt")))
	if err != nil {
		return nil, err
	}
	source := fmt.Sprintf("deb [signed-by=%s] %s %s main\n", keyring, mirror, release)
	err = errors.Join(
		os.WriteFile(filepath.Join(other.dir, "sources.list"), []byte(source), 0o644),
		os.WriteFile(filepath.Join(other.dir, "status"), nil, 0o644))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return other, nil
}

// mirror is where the machine has Debian from. What is Debian the lists tell, which
// a machine without any of its own (an image of a container) has here. Security
// has another label, as it is another archive, of which a release may have nothing.
func (a *apt) mirror(ctx context.Context) (string, error) {
	if _, err := a.haveLists(ctx); err != nil {
		return "", err
	}
	out, err := a.get(ctx, "indextargets", "--format", "$(REPO_URI)",
		"Created-By: Packages", "Origin: Debian", "Label: Debian", "Component: main")
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	address, _, _ := bytes.Cut(out, []byte("\n"))
	if len(address) == 0 {
		return "", fmt.Errorf("%w: no Debian among the machine's sources", ErrUnavailable)
	}
	return string(address), nil
}
