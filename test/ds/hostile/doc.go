// Package hostile lets a peer lie: it writes nonsense into all memory that it
// shares with a victim, which has a second connection that must stay right
// (TRU-1).
package hostile
