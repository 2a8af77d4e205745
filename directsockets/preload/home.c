// SPDX-License-Identifier: Apache-2.0
//
// A node registers the addresses of its interface exn0, and exn-tun bridge those that the
// kernel's bridges and routes lead to: in the fabric directory's subdirectory "addresses", a symbolic
// link named by the address, in 32 hex digits, leads to the cookie of the network
// namespace in which the interface is (../addresses). So two ends of a connection find
// each other although each is in a namespace of its own.
//
// Whoever could register an address could have the bytes of its connections. So
// only root, or the user that we are, may write there.
#include "real.h"

#include "home.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "directory.h"

uint64_t home_cookie(int fd)
{
	uint64_t cookie = 0;
	socklen_t n = sizeof cookie;
	return real.getsockopt(fd, SOL_SOCKET, HOME_COOKIE, &cookie, &n) == 0 ? cookie : 0;
}

bool home_find(const uint8_t address[16], uint64_t *cookie)
{
	static const char hex[] = "0123456789abcdef";
	char name[33] = {0}, text[20] = {0}, *end = text;
	struct stat st;
	int d = openat(directory, "../addresses", O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (d < 0)
		return false;
	for (int i = 0; i < 16; i++) {
		name[2 * i] = hex[address[i] >> 4];
		name[2 * i + 1] = hex[address[i] & 15];
	}
	bool ours = real_fstat(d, &st) == 0 && (st.st_uid == 0 || st.st_uid == geteuid()) && !(st.st_mode & 0022);
	if (ours && readlinkat(d, name, text, sizeof text - 1) > 0)
		*cookie = strtoull(text, &end, 16);
	real.close(d);
	return end != text && !*end && *cookie != 0;
}
