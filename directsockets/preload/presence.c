// SPDX-License-Identifier: Apache-2.0
#include "real.h"

#include "presence.h"

#include <sys/random.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "board.h"
#include "config.h"
#include "files.h"
#include "proof.h"

int presence_listener = -1;
char presence_name[DIRECTORY_NAME];
static bool hopeless; // no usable directory: do not try again

bool presence_prepared(void)
{
	if (directory >= 0 || hopeless)
		return !hopeless;
	hopeless = !directory_open();
	if (hopeless)
		config_log("the fabric directory %s cannot be used: everything stays on TCP", config.fabric);
	else
		board_open();
	return !hopeless;
}

bool presence_ready(void)
{
	if (presence_listener >= 0)
		return true;
	if (!presence_prepared())
		return false;
	hopeless = true;
	uint64_t nonce;
	struct sockaddr_un a;
	if (getrandom(&nonce, sizeof nonce, GRND_NONBLOCK) != sizeof nonce)
		return false;
	snprintf(presence_name, sizeof presence_name, "p-%d-%016llx", (int)getpid(), (unsigned long long)nonce);
	directory_sweep();
	int s = real.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	socklen_t n = directory_address(&a, presence_name);
	if (s >= 0 && (bind(s, (struct sockaddr *)&a, n) < 0 || real.listen(s, 4096) < 0)) {
		real.close(s);
		s = -1;
	}
	presence_listener = files_keep(s);
	if (presence_listener < 0)
		return false;
	struct stat st;
	bool many = config.group && real_fstat(directory, &st) == 0 && (st.st_mode & 0020);
	fchmodat(directory, presence_name, many ? 0660 : 0600, 0); // whatever the umask
	hopeless = false;
	return true;
}

void presence_retire(void)
{
	hopeless = false;
	proof_forget();
	if (presence_listener < 0)
		return;
	directory_remove(presence_name, S_IFSOCK);
	directory_sweep();
	files_close(presence_listener);
	presence_listener = -1;
}

void presence_forget(void)
{
	presence_retire();
	board_close();
	directory_close();
}

void presence_child(void)
{
	files_close(presence_listener);
	presence_listener = -1;
	hopeless = false;
	proof_forget();
}
