// SPDX-License-Identifier: Apache-2.0
//
// A tool reads the connection table of a running process: the head says where
// the records are and where in a record each published field is, so that the
// library may change its private fields without breaking the tool.
#include "real.h"

#include "status.h"

#include <stddef.h>
#include <stdio.h>
#include <sys/prctl.h>

#include "family.h"

_Static_assert(offsetof(struct status_head, program) == 256, "ext-ds.md says so");

void status_fill(struct status_head *h, uint64_t offset, uint32_t size, uint32_t count)
{
	*h = (struct status_head){
		.magic = STATUS_MAGIC,
		.version = STATUS_VERSION,
		.pid = (uint32_t)getpid(),
		.conns_offset = offset,
		.conn_size = size,
		.conn_count = count,
		.state = offsetof(struct conn, state),
		.reason = offsetof(struct conn, reason),
		.tuple = offsetof(struct conn, tuple),
		.ino = offsetof(struct conn, ino),
		.tcp_rx = offsetof(struct conn, tcp_rx),
		.tcp_tx = offsetof(struct conn, tcp_tx),
		.lane_rx = offsetof(struct conn, rx.bytes),
		.lane_tx = offsetof(struct conn, tx.bytes),
		.rx_mode = offsetof(struct conn, rx_mode),
		.tx_mode = offsetof(struct conn, tx_mode),
		.rma_rx = offsetof(struct conn, rx.rma_bytes),
		.rma_tx = offsetof(struct conn, tx.rma_bytes),
		.zcopy_rx = offsetof(struct conn, rx.advert.taken),
		.zcopy_tx = offsetof(struct conn, tx.advert.taken),
		.number = offsetof(struct conn, number),
		.group = config.group,
		.lane_version = LANE_VERSION,
	};
	prctl(PR_GET_NAME, h->program);
	snprintf(h->fabric, sizeof h->fabric, "%s", config.fabric);
}
