// Package hostile lets a peer lie: it writes nonsense into all memory that it
// shares with a victim, which has a second connection that must stay right
// (DESIGN, section 6).
package hostile
