/* Where a report goes: standard error, or a file whose readers never see half a report. */
#ifndef GRAFT_DESTINATION_H
#define GRAFT_DESTINATION_H

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "page.h"
#include "system.h"

/* The destination of a report. */
struct graft_destination {
	/* The path as in the variable, read at the start of the program: later, the environment may have changed or been
	 * freed. Empty: standard error. */
	char wanted[PATH_MAX];
	char path[PATH_MAX], temporary[PATH_MAX];
	/* The number of reports so far. */
	uint64_t number;
	int fd;
	bool is_renamed;
};

/* Expands the path: %p is the process's id, so a forked child has its own file, %n the number of the report, and %% is a
 * percent sign. Returns false if it becomes too long. */
static bool graft_expand_path(const struct graft_destination *to, char *expanded, const char *ending)
{
	struct graft_page path = {expanded, PATH_MAX, 0};
	for (const char *at = to->wanted; *at; at++) {
		char text[2] = {*at, 0};
		if (at[0] == '%' && (at[1] == 'p' || at[1] == 'n')) {
			graft_put_number(&path, at[1] == 'p' ? (uint64_t)getpid() : to->number);
			at++;
			continue;
		}
		if (at[0] == '%' && at[1] == '%')
			at++;
		graft_put_text(&path, text);
	}
	if (*ending) {
		graft_put_text(&path, ".");
		graft_put_number(&path, (uint64_t)getpid());
		graft_put_text(&path, ending);
	}
	if (path.length == path.room)
		return false;
	expanded[path.length] = 0;
	return true;
}

/* Opens without following a symbolic link that somebody has put there, and without waiting for a pipe's reader. */
static int graft_open(const char *path, int flags)
{
	int always = O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
	return (int)syscall(SYS_openat, AT_FDCWD, path, always | flags, 0644);
}

/* Whether the path names a regular file or nothing, so that a new file may take its place. If the kernel does not tell,
 * it may not: the path may be a device's. */
static bool graft_is_replaceable(const char *path)
{
	/* struct statx (statx(2)), which has the same layout everywhere: stx_mode is its 15th half word. */
	uint16_t status[128];
	enum { type_wanted = 1, type = 0170000, regular = 0100000 };
	if (syscall(SYS_statx, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW, type_wanted, status))
		return errno == ENOENT;
	return (status[14] & type) == regular;
}

/* A regular file is written under another name in the same folder and then renamed. If that name cannot be had, or the
 * path is a pipe's or a device's, it is opened itself. */
static bool graft_open_destination(struct graft_destination *to)
{
	to->number++;
	to->fd = STDERR_FILENO;
	to->is_renamed = false;
	if (!to->wanted[0])
		return true;
	if (!graft_expand_path(to, to->path, ""))
		return false;
	if (graft_is_replaceable(to->path) && graft_expand_path(to, to->temporary, ".tmp")) {
		/* One may be left over from a process with the same id. A name that somebody else makes meanwhile is not used. */
		syscall(SYS_unlinkat, AT_FDCWD, to->temporary, 0);
		to->fd = graft_open(to->temporary, O_CREAT | O_EXCL);
		to->is_renamed = to->fd >= 0;
	}
	if (!to->is_renamed)
		to->fd = graft_open(to->path, O_CREAT | O_TRUNC);
	return to->fd >= 0;
}

/* The file gets its name only if it is whole. */
static bool graft_close_destination(struct graft_destination *to, bool is_whole)
{
	if (to->fd != STDERR_FILENO)
		syscall(SYS_close, to->fd);
	if (!to->is_renamed)
		return is_whole;
	if (is_whole && !syscall(SYS_renameat2, AT_FDCWD, to->temporary, AT_FDCWD, to->path, 0))
		return true;
	syscall(SYS_unlinkat, AT_FDCWD, to->temporary, 0);
	return false;
}

#endif
