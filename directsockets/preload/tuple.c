// SPDX-License-Identifier: Apache-2.0
#include "real.h"

#include "tuple.h"

#include <netinet/in.h>
#include <string.h>

#include "config.h"

void tuple_side(uint8_t to[16], uint16_t *port, const struct sockaddr_storage *s)
{
	if (s->ss_family == AF_INET) {
		const struct sockaddr_in *a = (const struct sockaddr_in *)s;
		memset(to, 0, 10);
		to[10] = to[11] = 0xff;
		memcpy(to + 12, &a->sin_addr, 4);
		*port = a->sin_port;
	} else {
		const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)s;
		memcpy(to, &a->sin6_addr, 16);
		*port = a->sin6_port;
	}
}

static bool inside(const uint8_t a[16], const struct subnet *s)
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	unsigned whole = s->bits / 8, rest = s->bits % 8;
	if (s->bits < 96 && !memcmp(a, v4, sizeof v4))
		return false; // ::/0 is IPv6 only
	return !memcmp(a, s->address, whole) && (!rest || !((a[whole] ^ s->address[whole]) >> (8 - rest)));
}

static bool named(const uint8_t a[16])
{
	for (uint32_t i = 0; i < config.subnet_count; i++)
		if (inside(a, &config.subnets[i]))
			return true;
	return false;
}

bool tuple_local(const struct tuple *t)
{
	static const uint8_t loopback4[13] = {[10] = 0xff, [11] = 0xff, [12] = 127};
	static const uint8_t loopback6[16] = {[15] = 1};
	if (!memcmp(t->local, loopback4, 13) && !memcmp(t->remote, loopback4, 13))
		return true;
	if (!memcmp(t->local, loopback6, 16) && !memcmp(t->remote, loopback6, 16))
		return true;
	return !memcmp(t->local, t->remote, 16) || (named(t->local) && named(t->remote));
}

void tuple_turn(struct tuple *to, const struct tuple *t)
{
	*to = *t;
	memcpy(to->local, t->remote, 16);
	memcpy(to->remote, t->local, 16);
	to->local_port = t->remote_port;
	to->remote_port = t->local_port;
}

bool tuple_equal(const struct tuple *a, const struct tuple *b)
{
	return !memcmp(a->local, b->local, 16) && !memcmp(a->remote, b->remote, 16) && a->local_port == b->local_port &&
	       a->remote_port == b->remote_port;
}

bool tuple_first(const struct tuple *t)
{
	int d = memcmp(t->local, t->remote, 16);
	return d ? d < 0 : memcmp(&t->local_port, &t->remote_port, 2) < 0;
}
