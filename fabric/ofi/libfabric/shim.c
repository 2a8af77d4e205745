#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/in.h>
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include "shim.h"

/* The version of the interface that the headers beside this file have. A library that is newer
 * keeps to it; one that is older refuses it in fi_getinfo. */
#define VERSION FI_VERSION(1, 17)

static struct {
	int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
	void (*freeinfo)(struct fi_info *);
	struct fi_info *(*dupinfo)(const struct fi_info *);
	int (*fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
	const char *(*strerror)(int);
	uint32_t (*version)(void);
} lf;

struct exn_endpoint {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_av *av;
	struct fid_cq *cq;
	struct fid_ep *ep;
};

/* Some providers take signals when they are loaded or enabled, without SA_ONSTACK. A Go program
 * would die of a nil dereference then instead of panicking. */
static void keep_signals(struct sigaction old[NSIG])
{
	for (int n = 1; n < NSIG; n++)
		sigaction(n, NULL, &old[n]);
}

static void restore_signals(const struct sigaction old[NSIG])
{
	for (int n = 1; n < NSIG; n++)
		sigaction(n, &old[n], NULL);
}

static const struct {
	const char *name, *value;
} environment[] = {
	{"IPATH_NO_BACKTRACE", "1"}, /* libinfinipath, which libfabric 1.17 of Debian links, and its successor */
	{"HFI_NO_BACKTRACE", "1"},
	{"FI_MR_CACHE_MONITOR", "disabled"}, /* the others patch munmap, which is not safe with threads */
	{"FI_OFI_RXM_BUFFER_SIZE", "8192"},  /* above a frame of ours; the default costs 74 MB */
};

int exn_load(const char *path, char *why)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	static void *handle;
	pthread_mutex_lock(&once);
	if (handle) { /* one library a process */
		pthread_mutex_unlock(&once);
		return 0;
	}
	for (size_t i = 0; i < sizeof environment / sizeof *environment; i++)
		setenv(environment[i].name, environment[i].value, 0);
	struct sigaction old[NSIG];
	keep_signals(old);
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	restore_signals(old);
	int error = 0;
	if (!h) {
		snprintf(why, EXN_WHY, "%s", dlerror());
		error = -FI_ENOSYS;
	}
	const struct {
		const char *name;
		void **to;
	} symbols[] = {
		{"fi_getinfo", (void **)&lf.getinfo}, {"fi_freeinfo", (void **)&lf.freeinfo},
		{"fi_dupinfo", (void **)&lf.dupinfo}, {"fi_fabric", (void **)&lf.fabric},
		{"fi_strerror", (void **)&lf.strerror}, {"fi_version", (void **)&lf.version},
	};
	for (size_t i = 0; !error && i < sizeof symbols / sizeof *symbols; i++) {
		*symbols[i].to = dlsym(h, symbols[i].name);
		if (!*symbols[i].to) {
			snprintf(why, EXN_WHY, "%s has no %s", path, symbols[i].name);
			error = -FI_ENOSYS;
		}
	}
	if (!error)
		handle = h;
	pthread_mutex_unlock(&once);
	return error;
}

uint32_t exn_version(void) { return lf.version(); }
const char *exn_strerror(int error) { return lf.strerror(error); }

static int failed(char *why, const char *what, int error)
{
	snprintf(why, EXN_WHY, "%s: %s", what, lf.strerror(-error));
	return error;
}

static int find(const struct exn_settings *s, struct exn_endpoint *e, char *why)
{
	struct fi_info *hints = lf.dupinfo(NULL);
	if (!hints)
		return failed(why, "fi_dupinfo", -FI_ENOMEM);
	hints->caps = FI_MSG | FI_RMA;
	hints->addr_format = FI_FORMAT_UNSPEC;
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
	hints->domain_attr->av_type = FI_AV_TABLE;
	hints->tx_attr->msg_order = FI_ORDER_SAS;
	hints->rx_attr->msg_order = FI_ORDER_SAS;
	hints->fabric_attr->prov_name = strdup(s->provider);
	int error = lf.getinfo(VERSION, s->address, s->port, FI_SOURCE | FI_NUMERICHOST, hints, &e->info);
	lf.freeinfo(hints);
	if (error)
		return failed(why, "fi_getinfo", error);
	/* Of several interfaces with the address there is one; of several variants the first is the
	 * provider's choice. */
	return 0;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

int exn_open(const struct exn_settings *s, struct exn_endpoint **out, struct exn_traits *t, char *why)
{
	struct exn_endpoint *e = calloc(1, sizeof *e);
	if (!e)
		return failed(why, "memory", -FI_ENOMEM);
	struct sigaction old[NSIG];
	keep_signals(old);
	const char *what = "fi_getinfo";
	int error = find(s, e, why);
	if (error)
		goto out;
	t->sends = least(s->sends, e->info->tx_attr->size);
	t->receives = least(s->receives, e->info->rx_attr->size);
	struct fi_av_attr av = {.type = FI_AV_TABLE};
	struct fi_cq_attr cq = {
		.size = t->sends + t->receives + 64, /* so that it cannot be full */
		.format = FI_CQ_FORMAT_DATA,
		.wait_obj = FI_WAIT_FD,
	};
	what = "fi_fabric";
	if ((error = lf.fabric(e->info->fabric_attr, &e->fabric, NULL)))
		goto say;
	what = "fi_domain";
	if ((error = fi_domain(e->fabric, e->info, &e->domain, NULL)))
		goto say;
	what = "fi_av_open";
	if ((error = fi_av_open(e->domain, &av, &e->av, NULL)))
		goto say;
	what = "fi_cq_open";
	t->wait_fd = -1;
	if (fi_cq_open(e->domain, &cq, &e->cq, NULL)) {
		cq.wait_obj = FI_WAIT_NONE;
		if ((error = fi_cq_open(e->domain, &cq, &e->cq, NULL)))
			goto say;
	} else if (fi_control(&e->cq->fid, FI_GETWAIT, &t->wait_fd)) {
		t->wait_fd = -1;
	}
	what = "fi_endpoint";
	if ((error = fi_endpoint(e->domain, e->info, &e->ep, NULL)))
		goto say;
	if (e->ep->ops->size <= offsetof(struct fi_ops_ep, setopt) || e->ep->msg->size <= offsetof(struct fi_ops_msg, inject) ||
	    e->ep->rma->size <= offsetof(struct fi_ops_rma, writemsg)) {
		what = "tables of calls";
		error = -FI_ENOSYS;
		goto say;
	}
	what = "fi_ep_bind";
	if ((error = fi_ep_bind(e->ep, &e->av->fid, 0)) || (error = fi_ep_bind(e->ep, &e->cq->fid, FI_TRANSMIT | FI_RECV)))
		goto say;
	what = "fi_enable";
	if ((error = fi_enable(e->ep)))
		goto say;
	t->mr_mode = e->info->domain_attr->mr_mode;
	t->order = e->info->tx_attr->msg_order;
	t->inject = e->info->tx_attr->inject_size;
	t->key_size = e->info->domain_attr->mr_key_size;
	snprintf(t->name, sizeof t->name, "%s", e->info->fabric_attr->prov_name);
	*out = e;
	goto out;
say:
	failed(why, what, error);
out:
	restore_signals(old);
	if (error)
		exn_close(e);
	return error;
}

void exn_close(struct exn_endpoint *e)
{
	if (e->ep)
		fi_close(&e->ep->fid);
	if (e->cq)
		fi_close(&e->cq->fid);
	if (e->av)
		fi_close(&e->av->fid);
	if (e->domain)
		fi_close(&e->domain->fid);
	if (e->fabric)
		fi_close(&e->fabric->fid);
	if (e->info)
		lf.freeinfo(e->info);
	free(e);
}

int exn_insert(struct exn_endpoint *e, const void *sockaddr, uint64_t *addr)
{
	int n = fi_av_insert(e->av, sockaddr, 1, addr, 0, NULL);
	return n == 1 ? 0 : n < 0 ? n : -FI_EADDRNOTAVAIL;
}

int exn_remove(struct exn_endpoint *e, uint64_t addr) { return fi_av_remove(e->av, &addr, 1, 0); }

int exn_send(struct exn_endpoint *e, const void *buf, size_t len, void *desc, uint64_t to, uint64_t context)
{
	return fi_send(e->ep, buf, len, desc, to, (void *)context);
}

int exn_recv(struct exn_endpoint *e, void *buf, size_t len, void *desc, uint64_t context)
{
	return fi_recv(e->ep, buf, len, desc, FI_ADDR_UNSPEC, (void *)context);
}

int exn_write(struct exn_endpoint *e, const void *buf, size_t len, void *desc, uint64_t to, uint64_t addr,
	uint64_t key, uint64_t context)
{
	struct iovec from = {(void *)buf, len};
	struct fi_rma_iov into = {addr, len, key};
	struct fi_msg_rma m = {&from, &desc, 1, to, &into, 1, (void *)context, 0};
	return fi_writemsg(e->ep, &m, FI_DELIVERY_COMPLETE | FI_COMPLETION);
}

int exn_read(struct exn_endpoint *e, void *buf, size_t len, void *desc, uint64_t to, uint64_t addr,
	uint64_t key, uint64_t context)
{
	return fi_read(e->ep, buf, len, desc, to, addr, key, (void *)context);
}

int exn_register(struct exn_endpoint *e, void *buf, size_t len, int remote_read, int remote_write,
	uint64_t key, struct exn_region *out)
{
	struct fid_mr *mr;
	uint64_t access = FI_READ | FI_WRITE | FI_SEND | FI_RECV;
	if (remote_read)
		access |= FI_REMOTE_READ;
	if (remote_write)
		access |= FI_REMOTE_WRITE;
	int error = fi_mr_reg(e->domain, buf, len, access, 0, key, 0, &mr, NULL);
	if (error)
		return error;
	if (e->info->domain_attr->mr_mode & FI_MR_ENDPOINT) {
		error = fi_mr_bind(mr, &e->ep->fid, 0);
		if (!error)
			error = fi_mr_enable(mr);
		if (error) {
			fi_close(&mr->fid);
			return error;
		}
	}
	out->mr = mr;
	out->desc = fi_mr_desc(mr);
	out->key = fi_mr_key(mr);
	return 0;
}

int exn_deregister(struct exn_region *r) { return fi_close(&((struct fid_mr *)r->mr)->fid); }

/* The most completions that one call hands over. */
enum { BATCH = 64 };

int exn_poll(struct exn_endpoint *e, struct exn_event *events, int n)
{
	struct fi_cq_data_entry entries[BATCH];
	int taken = 0;
	while (taken < n) {
		int want = n - taken < BATCH ? n - taken : BATCH;
		ssize_t got = fi_cq_read(e->cq, entries, want);
		if (got == -FI_EAVAIL) {
			struct fi_cq_err_entry error;
			memset(&error, 0, sizeof error);
			if (fi_cq_readerr(e->cq, &error, 0) != 1)
				break;
			events[taken++] = (struct exn_event){(uint64_t)error.op_context, 0, error.err ? error.err : FI_EOTHER,
				(error.flags & FI_RECV) != 0};
			continue;
		}
		if (got <= 0)
			break;
		for (ssize_t i = 0; i < got; i++)
			events[taken++] = (struct exn_event){(uint64_t)entries[i].op_context, entries[i].len, 0,
				(entries[i].flags & FI_RECV) != 0};
		if (got < want)
			break;
	}
	return taken;
}

int exn_trywait(struct exn_endpoint *e)
{
	struct fid *fids[1] = {&e->cq->fid};
	return fi_trywait(e->fabric, fids, 1);
}
