// Package oracle tests the oracle of EXT-DS: plain TCP answers the scripts of test/ds/script alike
// each time, and none of their steps hangs. It imports nothing of the product, so go test need
// not run it again when only the product has changed.
package oracle
