package script

import (
	"bytes"
	"crypto/sha256"
	"encoding/gob"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Reference is what TCP answers to a script: the log of an earlier play, if one was kept by this
// kernel for this script and this player, or else of a new one, which is kept.
//
// A kept log saves half of the work of a comparison. It can be unusual, since TCP may do a thing
// later on a busy machine, so whoever finds a difference plays the script over TCP again.
func Reference(plain Stage, s Script) (Log, error) {
	path, err := referencePath(plain, s)
	if err != nil {
		return Play(plain, s)
	}
	if kept, err := os.ReadFile(path); err == nil {
		var log Log
		if gob.NewDecoder(bytes.NewReader(kept)).Decode(&log) == nil && len(log) > 0 {
			return log, nil
		}
	}
	log, err := Play(plain, s)
	if err != nil || len(log) == 0 || log[len(log)-1].Outcome == hung {
		return log, err
	}
	var text bytes.Buffer
	if gob.NewEncoder(&text).Encode(log) == nil {
		keep(path, text.Bytes())
	}
	return log, nil
}

// referencePath names the file by all that the answers depend on. The name of a built player has
// a hash of its sources.
func referencePath(plain Stage, s Script) (string, error) {
	cache := os.Getenv("EXNET_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(user, "exnet")
	}
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%s\n%s\n%s\n%v\n", kernel.Release, kernel.Version, filepath.Base(plain.Player), s)
	return filepath.Join(cache, "tcp-answers", hex.EncodeToString(sum.Sum(nil)[:16])), nil
}

// keep writes a file that others may be reading. A cache that cannot be written costs time only.
func keep(path string, text []byte) {
	if os.MkdirAll(filepath.Dir(path), 0o755) != nil {
		return
	}
	temp, err := os.CreateTemp(filepath.Dir(path), "new-*")
	if err != nil {
		return
	}
	_, err = temp.Write(text)
	if closed := temp.Close(); err != nil || closed != nil || os.Rename(temp.Name(), path) != nil {
		os.Remove(temp.Name())
	}
}
