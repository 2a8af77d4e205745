// Package directsockets is package net for TCP connections whose bytes may leave
// TCP: EXT-DS for Go programs, which no preloaded library reaches.
package directsockets
