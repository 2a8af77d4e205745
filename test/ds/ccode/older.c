// SPDX-License-Identifier: Apache-2.0
//
// older, preloaded behind the library, makes it one of before HELLO had features.
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

enum { MESSAGE = 256, HELLO = 1, FEATURES = 164 }; // ext-ds.md, "Control messages"

ssize_t sendmsg(int fd, const struct msghdr *h, int flags)
{
	ssize_t (*next)(int, const struct msghdr *, int) = (ssize_t (*)(int, const struct msghdr *, int))dlsym(RTLD_NEXT, "sendmsg");
	uint32_t kind;
	if (h->msg_iovlen == 1 && h->msg_iov->iov_len == MESSAGE && h->msg_control) {
		memcpy(&kind, h->msg_iov->iov_base, sizeof kind);
		if (kind == HELLO)
			memset((char *)h->msg_iov->iov_base + FEATURES, 0, sizeof kind);
	}
	return next(fd, h, flags);
}
