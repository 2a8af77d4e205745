package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"exnet/test/tier"
)

// budgetRuns is after how many runs of CI in a row that took too long the next one fails.
const budgetRuns = 3

// checkBudget keeps how long make test took in CI, in the cache of the machine, and fails when the
// last three runs exceeded what it should take by half: then tests belong in a later tier.
func (s *suite) checkBudget() {
	if s.tier != tier.Quick || s.usual == 0 || os.Getenv("CI") == "" || len(s.failed) > 0 {
		return
	}
	cache, err := cacheDir()
	if err != nil {
		return // there is nothing to compare with
	}
	path := filepath.Join(cache, "make-test-seconds.json")
	var seconds []float64
	if text, err := os.ReadFile(path); err == nil {
		_ = json.Unmarshal(text, &seconds) // what is damaged is made anew
	}
	seconds = append(seconds, time.Since(s.start).Seconds())
	seconds = seconds[max(0, len(seconds)-budgetRuns):]
	if text, err := json.Marshal(seconds); err == nil && os.MkdirAll(cache, 0o755) == nil {
		_ = os.WriteFile(path, text, 0o644) // without it the next run knows less
	}
	if err := overBudget(seconds, s.usual); err != nil {
		s.fail("the time of make test", err.Error())
		return
	}
	s.pass()
}

// overBudget judges the last runs.
func overBudget(seconds []float64, usual time.Duration) error {
	if len(seconds) < budgetRuns {
		return nil
	}
	limit := usual.Seconds() * 1.5
	for _, took := range seconds {
		if took <= limit {
			return nil
		}
	}
	return fmt.Errorf("the last %d runs of CI took %.0f s, more than %.0f s each: move tests to a later tier in test/tier/tiers.txt", len(seconds), seconds, limit)
}

func cacheDir() (string, error) {
	if dir := os.Getenv("EXNET_CACHE"); dir != "" {
		return dir, nil
	}
	user, err := os.UserCacheDir()
	return filepath.Join(user, "exnet"), err
}
