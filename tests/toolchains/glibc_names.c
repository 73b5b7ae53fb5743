/* Symbols that glibc has and musl lacks: Debian compiles its static libraries for glibc. For tests only. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

char __libc_single_threaded;

int _dl_find_object(void *address, void *result)
{
	(void)address, (void)result;
	return -1;
}

uint32_t arc4random(void)
{
	uint32_t value;
	if (getentropy(&value, sizeof value))
		abort();
	return value;
}

long __isoc23_strtol(const char *text, char **end, int base) { return strtol(text, end, base); }
unsigned long __isoc23_strtoul(const char *text, char **end, int base) { return strtoul(text, end, base); }
long long __isoc23_strtoll(const char *text, char **end, int base) { return strtoll(text, end, base); }

int __isoc23_sscanf(const char *text, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	int count = vsscanf(text, format, list);
	va_end(list);
	return count;
}

int __vfprintf_chk(FILE *file, int flag, const char *format, va_list list) { return vfprintf(file, format, list); }

int __fprintf_chk(FILE *file, int flag, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	int count = vfprintf(file, format, list);
	va_end(list);
	return count;
}

int __vsnprintf_chk(char *out, size_t size, int flag, size_t room, const char *format, va_list list)
{
	return vsnprintf(out, size, format, list);
}

int __snprintf_chk(char *out, size_t size, int flag, size_t room, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	int count = vsnprintf(out, size, format, list);
	va_end(list);
	return count;
}

long __fdelt_chk(long descriptor) { return descriptor / (8 * (long)sizeof(long)); }
void *__memcpy_chk(void *to, const void *from, size_t size, size_t room) { return memcpy(to, from, size); }
void *__memmove_chk(void *to, const void *from, size_t size, size_t room) { return memmove(to, from, size); }
ssize_t __read_chk(int file, void *to, size_t size, size_t room) { return read(file, to, size); }
ssize_t __recv_chk(int file, void *to, size_t size, size_t room, int flags) { return recv(file, to, size, flags); }

ssize_t __recvfrom_chk(int file, void *to, size_t size, size_t room, int flags, struct sockaddr *from,
	socklen_t *length)
{
	return recvfrom(file, to, size, flags, from, length);
}

int fcntl64(int file, int command, ...)
{
	va_list list;
	va_start(list, command);
	long argument = va_arg(list, long);
	va_end(list);
	return fcntl(file, command, argument);
}

int open64(const char *path, int flags, ...)
{
	va_list list;
	va_start(list, flags);
	mode_t mode = va_arg(list, mode_t);
	va_end(list);
	return open(path, flags, mode);
}

int fstat64(int file, struct stat *found) { return fstat(file, found); }
int lstat64(const char *path, struct stat *found) { return lstat(path, found); }
int stat64(const char *path, struct stat *found) { return stat(path, found); }
int ftruncate64(int file, off_t size) { return ftruncate(file, size); }
int truncate64(const char *path, off_t size) { return truncate(path, size); }
off_t lseek64(int file, off_t offset, int whence) { return lseek(file, offset, whence); }
ssize_t pwrite64(int file, const void *from, size_t size, off_t at) { return pwrite(file, from, size, at); }
struct dirent *readdir64(DIR *folder) { return readdir(folder); }

void *mmap64(void *at, size_t size, int protection, int flags, int file, off_t offset)
{
	return mmap(at, size, protection, flags, file, offset);
}
