/* The names under which the functions are known.
 *
 * Public ones are weak: a program or a compiler's runtime may bring its own, as it may with musl, whose members are
 * then not linked. musl's internal ones are weak, too, and hidden, as in musl. */
#ifdef STRINGS_PROOF
#define PUBLIC(name, function)                                                                                         \
	extern __typeof__(function) proof_##name __attribute__((alias(#function), visibility("default")));
#define INTERNAL(name, function)
#else
#define PUBLIC(name, function)                                                                                         \
	extern __typeof__(function) name __attribute__((weak, alias(#function), visibility("default")));
#define INTERNAL(name, function)                                                                                       \
	extern __typeof__(function) name __attribute__((weak, alias(#function), visibility("hidden")));
#endif

/* On aarch64, musl's memcpy and memset are Arm's own assembly, and good. They stay until a measurement on a real
 * machine shows that these are better. */
#if !defined(__aarch64__) || defined(STRINGS_PROOF)
PUBLIC(memcpy, move_block)
PUBLIC(memset, fill_block)
#endif
PUBLIC(memmove, move_block)
PUBLIC(memcmp, compare_blocks)
PUBLIC(bcmp, differ_blocks)
PUBLIC(memchr, find_byte)
PUBLIC(memrchr, find_last_byte)
PUBLIC(memmem, find_block)
PUBLIC(strlen, text_length)
PUBLIC(strnlen, text_length_within)
PUBLIC(strchr, find_in_text)
PUBLIC(strchrnul, find_in_text_or_end)
PUBLIC(strrchr, find_last_in_text)
PUBLIC(strstr, find_text)
PUBLIC(strcmp, order_texts)
PUBLIC(strncmp, order_texts_within)
PUBLIC(stpcpy, copy_text_to_end)
PUBLIC(strcpy, copy_text_to_start)
PUBLIC(stpncpy, copy_text_padded_to_end)
PUBLIC(strncpy, copy_text_padded)
PUBLIC(strcat, append_text)
PUBLIC(strncat, append_text_within)
PUBLIC(memccpy, copy_block_until)
PUBLIC(strcspn, length_without)
PUBLIC(strspn, length_of)
PUBLIC(strpbrk, find_member)
PUBLIC(strcasecmp, order_texts_folded)
PUBLIC(strncasecmp, order_texts_folded_within)
PUBLIC(strcasestr, find_text_folded)
PUBLIC(wcslen, wchars_length)
PUBLIC(wcsnlen, wchars_length_within)
PUBLIC(wcschr, find_in_wchars)
PUBLIC(wmemchr, find_wchar)
PUBLIC(wmemcmp, compare_wchars)
PUBLIC(wcscmp, order_wchars)
PUBLIC(wmemcpy, move_wchars)
PUBLIC(wmemmove, move_wchars)
PUBLIC(wmemset, fill_wchars)
/* With a locale, which is one argument more, and makes no difference. */
PUBLIC(strcasecmp_l, order_texts_folded)
PUBLIC(strncasecmp_l, order_texts_folded_within)

INTERNAL(__memrchr, find_last_byte)
INTERNAL(__strchrnul, find_in_text_or_end)
INTERNAL(__stpcpy, copy_text_to_end)
INTERNAL(__stpncpy, copy_text_padded_to_end)
INTERNAL(__strcasecmp_l, order_texts_folded)
INTERNAL(__strncasecmp_l, order_texts_folded_within)
#if defined(__x86_64__)
/* How musl's memmove for x86_64 enters its memcpy: until 1.2.3, and since. */
INTERNAL(__memcpy_fwd, move_block)
INTERNAL(__memcpy_fwd_alias_1, move_block)
#endif
