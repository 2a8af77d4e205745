// SPDX-License-Identifier: Apache-2.0
#include "real.h"

#include "directory.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "clock.h"
#include "config.h"
#include "files.h"

int directory = -1;

// trusted: this directory is our user's own and nobody else gets in, which its group's bits show
// for an access control list, too; or it is a group's, where that was asked for (../../fabric/dir).
static bool trusted(int fd)
{
	struct stat st;
	if (real_fstat(fd, &st) < 0 || (st.st_mode & 0007))
		return false;
	bool own = st.st_uid == geteuid();
	return config.group ? own || st.st_uid == 0 || (st.st_mode & 0020) : own && !(st.st_mode & 0070);
}

// make makes "ds", for a group where FABRIC is a group's, whatever the umask. It
// appears with its final mode: who found it before would not get in, or would use a
// board that nobody else does.
static void make(int top, mode_t mode)
{
	char name[32];
	struct stat st;
	if (real_fstatat(top, "ds", &st, AT_SYMLINK_NOFOLLOW) == 0)
		return;
	snprintf(name, sizeof name, "ds-%d-%x", (int)getpid(), (unsigned)clock_ns());
	if (mkdirat(top, name, 0700) < 0)
		return;
	if (((mode & 0070) && fchmodat(top, name, mode & 07777, 0) < 0) ||
	    (real.syscall(SYS_renameat2, top, name, top, "ds", RENAME_NOREPLACE) < 0 &&
	     (errno != EINVAL || renameat(top, name, top, "ds") < 0))) // some file systems only do that
		unlinkat(top, name, AT_REMOVEDIR);
}

bool directory_open(void)
{
	const char *path = config.fabric;
	if (directory >= 0)
		return true;
	if (!*path)
		return false;
	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return false;
	int top = open(path, O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;
	if (top < 0)
		return false;
	int fd = -1;
	if (trusted(top) && real_fstat(top, &st) == 0) {
		make(top, st.st_mode);
		fd = openat(top, "ds", O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0 && !trusted(fd)) {
			real.close(fd);
			fd = -1;
		}
	}
	real.close(top);
	directory = files_keep(fd);
	return directory >= 0;
}

// accessible: this process may read, write and search there.
static bool accessible(int in, const char *path)
{
	return real.syscall(SYS_faccessat, in, path, R_OK | W_OK | X_OK) == 0;
}

// makeable: the directory is missing, and may be made where it would lie.
static bool makeable(void)
{
	static char above[sizeof config.fabric]; // large for a stack; threads write the same
	snprintf(above, sizeof above, "%s", config.fabric);
	char *end = strrchr(above, '/');
	if (end)
		end[end == above] = 0; // of "/exn" the slash stays
	return accessible(AT_FDCWD, end ? above : ".");
}

bool directory_permitted(void)
{
	if (!*config.fabric)
		return false;
	int top = open(config.fabric, O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (top < 0)
		return errno == ENOENT && makeable();
	int below = openat(top, "ds", O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	bool missing = below < 0 && errno == ENOENT;
	bool ok = trusted(top) && accessible(top, ".") &&
		  (missing || (below >= 0 && trusted(below) && accessible(below, ".")));
	if (below >= 0)
		real.close(below);
	real.close(top);
	return ok;
}

void directory_close(void)
{
	files_close(directory);
	directory = -1;
}

socklen_t directory_address(struct sockaddr_un *a, const char *name)
{
	a->sun_family = AF_UNIX;
	snprintf(a->sun_path, sizeof a->sun_path, "/proc/self/fd/%d/%.63s", directory, name);
	return sizeof *a;
}

int directory_connect(int s, const char *name)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	struct stat st;
	int r = -1, at = openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (at < 0)
		return -1;
	if (real_fstat(at, &st) < 0 || !S_ISSOCK(st.st_mode) || !(config.group || st.st_uid == geteuid())) {
		errno = EPERM;
	} else {
		snprintf(a.sun_path, sizeof a.sun_path, "/proc/self/fd/%d", at);
		r = real.connect(s, (struct sockaddr *)&a, sizeof a);
	}
	int saved = errno;
	real.close(at);
	errno = saved;
	return r;
}

bool directory_remove(const char *name, mode_t type)
{
	struct stat st;
	return real_fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && (st.st_mode & S_IFMT) == type && st.st_uid == geteuid() &&
	       unlinkat(directory, name, 0) == 0;
}

// deserted: nobody listens there any more. A socket of the wrong type is told so
// by a living listener, which notices nothing.
static bool deserted(const char *name)
{
	int s = real.socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool yes = s >= 0 && directory_connect(s, name) < 0 && (errno == ECONNREFUSED || errno == ENOENT);
	if (s >= 0)
		real.close(s);
	return yes;
}

int64_t directory_age(int in, const char *name)
{
	struct stat st; // fstatat may be another preloaded library's, which changes times as it does the clock
	return real.syscall(SYS_newfstatat, in, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ? INT64_MAX : clock_wall() - st.st_mtime;
}

// stale: an offer that has expired or whose process is gone, or a refusal as old.
static bool stale(const char *offer)
{
	char target[2 * DIRECTORY_NAME];
	ssize_t n = readlinkat(directory, offer, target, sizeof target - 1);
	if (n <= 0)
		return false;
	target[n] = 0;
	char *colon = strchr(target, ':');
	if (!colon || colon - target >= DIRECTORY_NAME || strchr(target, '/'))
		return true;
	*colon = 0;
	int64_t age = directory_age(directory, offer);
	bool refusal = !strcmp(target, "no"); // of a process that may have no listener
	return (!refusal && deserted(target)) || (age > DIRECTORY_OFFER_S && age < INT64_MAX);
}

void directory_sweep(void)
{
	int fd = openat(directory, ".", O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	if (!d) {
		if (fd >= 0)
			real.close(fd);
		return;
	}
	for (struct dirent *e; (e = readdir(d)) != NULL;) {
		if (e->d_name[0] == 'o' && e->d_name[1] == '-') {
			if (stale(e->d_name))
				directory_remove(e->d_name, S_IFLNK);
		} else if (e->d_name[0] == 'p' && e->d_name[1] == '-' && strlen(e->d_name) < DIRECTORY_NAME && deserted(e->d_name)) {
			directory_remove(e->d_name, S_IFSOCK);
		}
	}
	closedir(d);
}
