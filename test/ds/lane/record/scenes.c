// SPDX-License-Identifier: Apache-2.0
//
// The scenes: what two programs do on a connection that has just been engaged.
// They run with 16 slots and a window of 16 KiB, so that both come round.
#include "record.h"

// Data below the VELO threshold and above it, laps, a half-close, the end.
static void forward(void)
{
	put('a', 'a', 5); // SWITCH, then one slot
	get('b', 100, 5);
	put('b', 'b', 300); // three slots
	get('a', 1000, 300);
	put('a', 'c', 480); // as much as goes by slots
	get('b', 130, 130); // ends inside a slot
	get('b', 1000, 350);
	put('a', 'd', 481); // by the window
	get('b', 200, 200); // ends inside a piece
	get('b', 1000, 281);
	put('a', 'e', 10000); // the window was empty: it starts again at its beginning
	put('a', 'f', 5000);
	get('b', 10000, 10000);
	put('a', 'g', 3000); // up to the end of the window, and from its beginning
	get('b', 9000, 8000);
	put('a', 'h', 480);
	put('a', 'i', 100); // the last slot of the first lap
	get('b', 1000, 580);
	put('a', 'j', 7); // the first of the second
	half_close('a');
	get('b', 100, 7);
	get('b', 100, 0);
	put('b', 'k', 50); // the peer has shut: BACK, then TCP
	get('a', 100, 50);
	end('b');
	get('a', 100, 0);
	end('a');
}

// Close with nothing unread.
static void closed(void)
{
	put('a', 'a', 5);
	get('b', 100, 5);
	put('a', 'b', 600);
	end('a');
	get('b', 1000, 600);
	get('b', 100, 0);
	end('b');
}

// Close with lane bytes unread: the peer is reset.
static void aborted(void)
{
	put('a', 'a', 5);
	get('b', 100, 5);
	put('b', 'b', 9);
	end('a');
	get('b', 100, -1);
	end('b');
}

// A writer goes back to TCP and to the lane again.
static void left(void)
{
	put('a', 'a', 5);
	leave('a', true);
	put('a', 'b', 700); // the reader has not taken SWITCH: still the lane
	get('b', 1000, 705);
	put('a', 'c', 10); // BACK, then TCP
	put('a', 'd', 10);
	get('b', 100, 20); // and consents again
	leave('a', false);
	put('a', 'e', 10); // SWITCH
	get('b', 100, 10);
	end('a');
	get('b', 100, 0);
	end('b');
}

// A reader goes back to TCP with bytes unread.
static void withdrawn(void)
{
	put('b', 'a', 5);
	get('a', 100, 5);
	put('b', 'b', 300);
	put('b', 'c', 1000);
	get('a', 100, 100); // ends inside the first of five slots
	withdraw('a');
	get('a', 100, -1); // nothing is there for now
	put('b', 'd', 20); // the writer sees it: the rest by TCP, BACK, then these
	get('a', 3000, 1220);
	put('b', 'e', 20); // by TCP, for good
	get('a', 100, 20);
	end('a');
	get('b', 100, 0);
	end('b');
}

const struct scene scenes[] = {
	{"forward", forward}, {"close", closed}, {"abort", aborted}, {"leave", left}, {"withdraw", withdrawn}, {0},
};
