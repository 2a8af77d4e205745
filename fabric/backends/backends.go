// Package backends makes every backend known to fabric.Open:
//
//	import _ "exnet/fabric/backends"
package backends

import (
	_ "exnet/fabric/ofi" // ofi:
	_ "exnet/fabric/shm" // shm:
)
