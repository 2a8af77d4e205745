package tracing

import "path/filepath"

// Instance is the directory of an instance.
func (s *Session) Instance(name string) string { return filepath.Join(filepath.Dir(s.dir), name) }
