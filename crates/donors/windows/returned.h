/* The other functions of Windows' C library that return a block which the program frees. The C library's own function
 * is called, in its DLL; its block is copied to one of the donor's blocks, and freed by the C library. So no block
 * crosses heaps, and the content is the C library's. */
#ifndef GRAFT_WINDOWS_RETURNED_H
#define GRAFT_WINDOWS_RETURNED_H

#include <stdlib.h>
#include <windows.h>

#include "family.h"

/* Returns a function of the C library; null if it has no function of that name, or is not a DLL. */
static FARPROC graft_in_library(const char *name)
{
	const DWORD flags = GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT;
	HMODULE library;
	FARPROC found = 0;
	/* The headers declare it as an import, so this is its address in the DLL. */
	if (GetModuleHandleExA(flags, (LPCSTR)&_errno, &library))
		found = GetProcAddress(library, name);
	if (!found)
		errno = ENOSYS;
	return found;
}

/* Returns a copy of a block of the C library, and frees that. */
static void *graft_adopted(void *block)
{
	size_t (*room)(void *) = (size_t(*)(void *))graft_in_library("_msize");
	void (*release)(void *) = (void (*)(void *))graft_in_library("free");
	if (!block || !room || !release)
		return 0;
	void *copy = graft_copy(block, room(block));
	int problem = errno;
	release(block);
	errno = problem;
	return copy;
}

/* Defines a function that returns a block if `given`, the caller's buffer, is null. */
#define GRAFT_RETURNED(name, result, given, arguments, ...)                                                            \
	GRAFT_DEFINE(name, result, __VA_ARGS__)                                                                            \
	{                                                                                                                  \
		result (*function)(__VA_ARGS__) = (result(*)(__VA_ARGS__))graft_in_library(#name);                             \
		result found = function ? function arguments : 0;                                                              \
		return (given) ? found : graft_adopted(found);                                                                 \
	}

GRAFT_RETURNED(_getcwd, char *, buffer, (buffer, room), char *buffer, int room)
GRAFT_RETURNED(_wgetcwd, wchar_t *, buffer, (buffer, room), wchar_t *buffer, int room)
GRAFT_RETURNED(_getdcwd, char *, buffer, (drive, buffer, room), int drive, char *buffer, int room)
GRAFT_RETURNED(_wgetdcwd, wchar_t *, buffer, (drive, buffer, room), int drive, wchar_t *buffer, int room)
GRAFT_RETURNED(_fullpath, char *, buffer, (buffer, path, room), char *buffer, const char *path, size_t room)
GRAFT_RETURNED(_wfullpath, wchar_t *, buffer, (buffer, path, room), wchar_t *buffer, const wchar_t *path, size_t room)
GRAFT_RETURNED(_tempnam, char *, 0, (folder, prefix), const char *folder, const char *prefix)
GRAFT_RETURNED(_wtempnam, wchar_t *, 0, (folder, prefix), const wchar_t *folder, const wchar_t *prefix)

GRAFT_DEFINE(getcwd, char *, char *buffer, int room)
{
	return graft__getcwd(buffer, room);
}

GRAFT_DEFINE(tempnam, char *, const char *folder, const char *prefix)
{
	return graft__tempnam(folder, prefix);
}

/* Defines a function that stores a copy of a variable's value; null if there is no such variable. Not every C library
 * has these, and import libraries then define them by malloc(). */
#define GRAFT_STORED(name, text, get, copy, count)                                                                     \
	GRAFT_DEFINE(name, int, text **value, size_t *length, const text *variable)                                        \
	{                                                                                                                  \
		if (length)                                                                                                    \
			*length = 0;                                                                                               \
		if (!value)                                                                                                    \
			return errno = EINVAL;                                                                                     \
		*value = 0;                                                                                                    \
		if (!variable)                                                                                                 \
			return errno = EINVAL;                                                                                     \
		const text *found = get(variable);                                                                             \
		if (!found)                                                                                                    \
			return 0;                                                                                                  \
		*value = copy(found);                                                                                          \
		if (!*value)                                                                                                   \
			return ENOMEM;                                                                                             \
		if (length)                                                                                                    \
			*length = count(found) + 1;                                                                                \
		return 0;                                                                                                      \
	}

GRAFT_STORED(_dupenv_s, char, getenv, graft__strdup, strlen)
GRAFT_STORED(_wdupenv_s, wchar_t, _wgetenv, graft__wcsdup, wcslen)

#endif
