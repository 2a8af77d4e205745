package report

import (
	"math"
	"strconv"
	"strings"
)

// A Unit is the unit of a row, as in the JSON.
type Unit string

// The units.
const (
	Nanoseconds    Unit = "ns"
	BytesPerSecond Unit = "B/s"
	BitsPerSecond  Unit = "bit/s"
	MessagesPerSec Unit = "msg/s"
	ConnectionsPS  Unit = "conn/s"
	PercentOfCPU   Unit = "%"
	Percent        Unit = "% of all"
	Bytes          Unit = "B"
	ObjectsPerOp   Unit = "objects/op"
	CallsPerOp     Unit = "calls/op"
)

func (u Unit) valid() bool {
	switch u {
	case Nanoseconds, BytesPerSecond, BitsPerSecond, MessagesPerSec, ConnectionsPS, PercentOfCPU, Percent, Bytes, ObjectsPerOp, CallsPerOp:
		return true
	}
	return false
}

// Format prints v for people: three digits, because noise hides the fourth,
// and a prefix that keeps the number between 1 and 1000.
func (u Unit) Format(v float64) string {
	switch u {
	case Nanoseconds:
		return scale(v, 1000, "ns", "µs", "ms", "s")
	case BytesPerSecond:
		return scale(v, 1000, "B/s", "kB/s", "MB/s", "GB/s", "TB/s")
	case BitsPerSecond:
		return scale(v, 1000, "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s")
	case MessagesPerSec:
		return scale(v, 1000, "msg/s", "k msg/s", "M msg/s", "G msg/s")
	case ConnectionsPS:
		return scale(v, 1000, "conn/s", "k conn/s", "M conn/s")
	case Bytes:
		return scale(v, 1024, "B", "KiB", "MiB", "GiB", "TiB")
	case ObjectsPerOp, CallsPerOp:
		return digits(v)
	}
	return digits(v) + " %"
}

// FormatSize prints a number of bytes: whole if it is, else with three digits.
func FormatSize(n int) string {
	if n == 0 {
		return ""
	}
	s := Bytes.Format(float64(n))
	if number, unit, ok := strings.Cut(s, " "); ok && strings.Contains(number, ".") {
		return strings.TrimRight(strings.TrimRight(number, "0"), ".") + " " + unit
	}
	return s
}

func scale(v, step float64, units ...string) string {
	i := 0
	for ; i < len(units)-1 && math.Abs(v) >= step; i++ {
		v /= step
	}
	return digits(v) + " " + units[i]
}

// digits prints three significant digits, without an exponent.
func digits(v float64) string {
	decimals := 2
	switch a := math.Abs(v); {
	case v == 0:
		return "0"
	case a >= 99.95:
		decimals = 0
	case a >= 9.995:
		decimals = 1
	case a < 0.1:
		decimals = 4
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}
