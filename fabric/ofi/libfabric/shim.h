/*
 * The calls of libfabric that the package needs, each in one crossing from Go. Nothing here is
 * thread-safe beyond what FI_THREAD_SAFE gives: the caller holds its own lock.
 */
#ifndef EXN_SHIM_H
#define EXN_SHIM_H
#include <stddef.h>
#include <stdint.h>

enum { EXN_WHY = 512 }; /* bytes of an error text */

struct exn_endpoint;

struct exn_settings {
	const char *provider; /* as fi_info names it: "tcp;ofi_rxm" */
	const char *address;  /* numeric, to listen at */
	const char *port;
	size_t receives;      /* buffers that will be posted */
	size_t sends;         /* operations that will be under way at most */
};

/* What the provider turned out to want. */
struct exn_traits {
	uint64_t mr_mode;
	uint64_t order;
	size_t inject;
	size_t sends;
	size_t receives;
	size_t key_size;
	int wait_fd; /* -1: the provider has no wait object */
	char name[64];
	char version[16];
};

struct exn_event {
	uint64_t context;
	uint64_t length;
	int32_t error; /* 0, or a positive errno of libfabric */
	int32_t receive; /* of a receive: length says how many bytes came */
};

struct exn_region {
	void *mr;
	void *desc;
	uint64_t key;
};

/* Each returns 0, or a negative errno of libfabric. */
int exn_load(const char *path, char *why);
uint32_t exn_version(void);
const char *exn_strerror(int error);
int exn_open(const struct exn_settings *s, struct exn_endpoint **out, struct exn_traits *t, char *why);
void exn_close(struct exn_endpoint *e);
int exn_insert(struct exn_endpoint *e, const void *sockaddr, uint64_t *addr);
int exn_remove(struct exn_endpoint *e, uint64_t addr);
int exn_send(struct exn_endpoint *e, const void *buf, size_t len, void *desc, uint64_t to, uint64_t context);
int exn_recv(struct exn_endpoint *e, void *buf, size_t len, void *desc, uint64_t context);
int exn_write(struct exn_endpoint *e, const void *buf, size_t len, void *desc, uint64_t to, uint64_t addr,
	uint64_t key, uint64_t context);
int exn_read(struct exn_endpoint *e, void *buf, size_t len, void *desc, uint64_t to, uint64_t addr,
	uint64_t key, uint64_t context);
int exn_register(struct exn_endpoint *e, void *buf, size_t len, int remote_read, int remote_write,
	uint64_t key, struct exn_region *out);
int exn_deregister(struct exn_region *r);
int exn_poll(struct exn_endpoint *e, struct exn_event *events, int n);
int exn_trywait(struct exn_endpoint *e);
#endif
