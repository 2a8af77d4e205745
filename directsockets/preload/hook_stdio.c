// SPDX-License-Identifier: Apache-2.0
//
// Exported: the ways in which stdio gets at a descriptor. What it does inside
// itself reaches no hook, so the connection goes back to TCP first.
#include "hook.h"

#include <stdarg.h>

#include "conn.h"
#include "filemap.h"
#include "files.h"

EXPORT FILE *fdopen(int fd, const char *mode)
{
	HOOK();
	hook_leave(fd, REASON_STDIO);
	return real.fdopen(fd, mode);
}

EXPORT int fclose(FILE *f)
{
	HOOK();
	int fd = files_top() > 0 ? fileno(f) : -1; // it closes the descriptor inside itself
	if (fd >= 0 && files_conn(fd))
		conn_close(fd, false);
	filemap_close(fd);
	return real.fclose(f);
}

EXPORT int vdprintf(int fd, const char *format, va_list ap)
{
	HOOK();
	hook_leave(fd, REASON_STDIO);
	return real.vdprintf(fd, format, ap);
}

EXPORT int dprintf(int fd, const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	int r = vdprintf(fd, format, ap);
	va_end(ap);
	return r;
}

// What fortified programs call.
EXPORT int __vdprintf_chk(int fd, int flag, const char *format, va_list ap)
{
	HOOK();
	hook_leave(fd, REASON_STDIO);
	return real.__vdprintf_chk(fd, flag, format, ap);
}

EXPORT int __dprintf_chk(int fd, int flag, const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	int r = __vdprintf_chk(fd, flag, format, ap);
	va_end(ap);
	return r;
}
