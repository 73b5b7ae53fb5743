/* Shared by the proof's files: guarded memory, canaries, and the walk over lengths and alignments. */
#ifndef STRINGS_PROOF_H
#define STRINGS_PROOF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef unsigned char byte;

#define PAGE 4096
#define CANARY 0xa5
#define MARGIN 96 /* bytes on either side of the writable part that are checked after each call */

/* [start, end) between two unmapped pages; `middle` is a page boundary inside. */
struct region {
	byte *start, *middle, *end;
};
extern struct region left, right;
extern unsigned full, longest;
extern const char *subject;

__attribute__((noreturn, format(printf, 1, 2))) void wrong(const char *format, ...);
uint32_t noise(void);
void untouched(const byte *from, const byte *to);
void untouched_around(const struct region *region, const byte *p, size_t n);
void clean(byte *p, size_t n);
/* Calls `check` with blocks of every length at every place in `left` and `right`. `check` restores CANARY. */
void over_pairs(const char *name, void (*check)(byte *a, byte *b, size_t n));
void over_blocks(const char *name, void (*check)(byte *a, size_t n));

void prove_blocks(void);
void prove_texts(void);
void prove_seek(void);
void prove_sets(void);
void prove_letters(void);
void prove_wchars(void);

unsigned proof_choices(void);
void proof_choose(unsigned choice);
void proof_begin(size_t work);
bool proof_has_chosen(void);
void *proof_memcpy(void *restrict d, const void *restrict s, size_t n);
void *proof_memmove(void *d, const void *s, size_t n);
void *proof_memset(void *d, int c, size_t n);
int proof_memcmp(const void *a, const void *b, size_t n);
int proof_bcmp(const void *a, const void *b, size_t n);
void *proof_memchr(const void *s, int c, size_t n);
void *proof_memrchr(const void *s, int c, size_t n);
void *proof_memmem(const void *h, size_t n, const void *needle, size_t m);
size_t proof_strlen(const char *s);
size_t proof_strnlen(const char *s, size_t n);
char *proof_strchr(const char *s, int c);
char *proof_strchrnul(const char *s, int c);
char *proof_strrchr(const char *s, int c);
char *proof_strstr(const char *h, const char *needle);
int proof_strcmp(const char *a, const char *b);
int proof_strncmp(const char *a, const char *b, size_t n);
char *proof_stpcpy(char *restrict d, const char *restrict s);
char *proof_strcpy(char *restrict d, const char *restrict s);
char *proof_stpncpy(char *restrict d, const char *restrict s, size_t n);
char *proof_strncpy(char *restrict d, const char *restrict s, size_t n);
char *proof_strcat(char *restrict d, const char *restrict s);
char *proof_strncat(char *restrict d, const char *restrict s, size_t n);
void *proof_memccpy(void *restrict d, const void *restrict s, int c, size_t n);
size_t proof_strcspn(const char *s, const char *set);
size_t proof_strspn(const char *s, const char *set);
char *proof_strpbrk(const char *s, const char *set);
int proof_strcasecmp(const char *a, const char *b);
int proof_strncasecmp(const char *a, const char *b, size_t n);
char *proof_strcasestr(const char *h, const char *needle);
size_t proof_wcslen(const wchar_t *s);
size_t proof_wcsnlen(const wchar_t *s, size_t n);
wchar_t *proof_wcschr(const wchar_t *s, wchar_t c);
int proof_wcscmp(const wchar_t *a, const wchar_t *b);
wchar_t *proof_wmemchr(const wchar_t *s, wchar_t c, size_t n);
int proof_wmemcmp(const wchar_t *a, const wchar_t *b, size_t n);
wchar_t *proof_wmemcpy(wchar_t *restrict d, const wchar_t *restrict s, size_t n);
wchar_t *proof_wmemmove(wchar_t *d, const wchar_t *s, size_t n);
wchar_t *proof_wmemset(wchar_t *d, wchar_t c, size_t n);

#endif
