// SPDX-License-Identifier: Apache-2.0
//
// A node registers the addresses of its interface exn0, and exn-tun bridge those that the
// kernel's bridges and routes lead to: in the fabric directory's subdirectory "addresses", a symbolic
// link named by the address, in 32 hex digits, leads to the cookie of the network
// namespace in which the interface is (../addresses). So two ends of a connection find
// each other although each is in a namespace of its own.
//
// exn-tun bridge also says how the other end sees a connection whose addresses are translated on the way, once
// that has an offer: a link "t-NETNS-LOCALREMOTE" to "NETNS-LOCALREMOTE", each named as offers are. It is believed
// for as long as an offer: the ends may be those of another connection later. That somebody does so
// says a link "translated".
//
// Whoever could register an address could have the bytes of its connections. So
// only root, or the user that we are, may write there.
#include "real.h"

#include "home.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "directory.h"
#include "tuple.h"

uint64_t home_cookie(int fd)
{
	uint64_t cookie = 0;
	socklen_t n = sizeof cookie;
	return real.getsockopt(fd, SOL_SOCKET, HOME_COOKIE, &cookie, &n) == 0 ? cookie : 0;
}

// addresses opens the subdirectory, if it is one to believe; or -1.
static int addresses(void)
{
	struct stat st;
	int d = openat(directory, "../addresses", O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (d < 0 || (real_fstat(d, &st) == 0 && (st.st_uid == 0 || st.st_uid == geteuid()) && !(st.st_mode & 0022)))
		return d;
	real.close(d);
	return -1;
}

// target is where a link there leads, and how old it is.
static bool target(const char *name, char *text, size_t size, int64_t *age)
{
	int d = addresses();
	ssize_t n = d < 0 ? -1 : readlinkat(d, name, text, size - 1);
	text[n > 0 ? n : 0] = 0;
	*age = n > 0 ? directory_age(d, name) : 0;
	if (d >= 0)
		real.close(d);
	return n > 0;
}

bool home_find(const uint8_t address[16], uint64_t *cookie)
{
	static const char hex[] = "0123456789abcdef";
	char name[33] = {0}, text[20], *end = text;
	int64_t age;
	for (int i = 0; i < 16; i++) {
		name[2 * i] = hex[address[i] >> 4];
		name[2 * i + 1] = hex[address[i] & 15];
	}
	if (target(name, text, sizeof text, &age))
		*cookie = strtoull(text, &end, 16);
	return end != text && !*end && *cookie != 0;
}

bool home_translates(void)
{
	char text[2];
	int64_t age;
	return target("translated", text, sizeof text, &age);
}

bool home_translated(const struct tuple *t, uint64_t net, struct tuple *other, uint64_t *other_net)
{
	char name[2 + TUPLE_NAME] = "t-", text[TUPLE_NAME + 1];
	int64_t age;
	tuple_name(name + 2, t, net);
	return target(name, text, sizeof text, &age) && age <= DIRECTORY_OFFER_S && tuple_named(text, other, other_net);
}
