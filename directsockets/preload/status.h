// SPDX-License-Identifier: Apache-2.0
//
// What a process publishes about its connections; see ext-ds.md, "Status".
#ifndef STATUS_H
#define STATUS_H

#include <stdint.h>

#include "config.h"

#define STATUS_MAGIC 0x3154415453445845ull // "EXDSTAT1"
enum { STATUS_VERSION = 3 };

// Offset 0 of the family memory. It is written once, before anybody can see it.
struct status_head {
	uint64_t magic;
	uint32_t version, pid;
	uint64_t conns_offset;
	uint32_t conn_size, conn_count;
	// Offsets in a connection's record.
	uint32_t state, reason, tuple, ino, tcp_rx, tcp_tx, lane_rx, lane_tx, rx_mode, tx_mode, rma_rx, rma_tx, zcopy_rx, zcopy_tx, number;
	uint32_t pad[39];
	uint32_t group; // EXN_PEERS=group
	uint32_t lane_version; // LANE_VERSION of lane_shm.h
	char program[16];
	char fabric[CONFIG_PATH]; // the fabric directory, empty: none
};
_Static_assert(sizeof(struct status_head) == 4096, "status head");

void status_fill(struct status_head *h, uint64_t offset, uint32_t size, uint32_t count);

#endif
