/* The profile of the heap as a file: a protocol buffer of pprof (github.com/google/pprof, proto/profile.proto), packed by
 * gzip without compression (RFC 1951, section 3.2.4; RFC 1952). docs/heap.md describes what is in it. */
#ifndef GRAFT_PPROF_H
#define GRAFT_PPROF_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "destination.h"
#include "figures.h"
#include "heap.h"
#include "page.h"

/* Most programs never run this. */
#pragma clang attribute push(__attribute__((minsize)), apply_to = function)

/* A file while it is written. */
struct graft_paper {
	int fd;
	bool is_whole;
	uint32_t checksum, size;
	size_t used;
	uint8_t bytes[32768];
};

/* A message while it is put together. A sample with all its callers takes 1.5 KB. */
struct graft_message {
	size_t used;
	uint8_t bytes[8192];
};

/* What writing needs, beside the profile. */
struct graft_press {
	struct graft_paper paper;
	struct graft_message message, inner;
	struct graft_destination destination;
	char text[PATH_MAX + 64];
};
GRAFT_EARLY static struct graft_press *graft_press;

GRAFT_SMALL uint32_t graft_checksum(uint32_t checksum, const uint8_t *bytes, size_t size)
{
	static const uint32_t table[16] = {
		0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
		0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
	};
	checksum = ~checksum;
	for (size_t i = 0; i < size; i++) {
		checksum = table[(checksum ^ bytes[i]) & 15] ^ checksum >> 4;
		checksum = table[(checksum ^ bytes[i] >> 4) & 15] ^ checksum >> 4;
	}
	return ~checksum;
}

GRAFT_SMALL void graft_put_raw(struct graft_paper *paper, const void *bytes, size_t size)
{
	paper->is_whole = paper->is_whole && graft_write_to(paper->fd, bytes, size);
}

/* Writes what has gathered as a block that is stored. */
GRAFT_SMALL void graft_turn(struct graft_paper *paper, bool is_last)
{
	uint16_t size = (uint16_t)paper->used;
	uint8_t head[5] = {is_last, (uint8_t)size, (uint8_t)(size >> 8), (uint8_t)~size, (uint8_t)(~size >> 8)};
	graft_put_raw(paper, head, sizeof head);
	graft_put_raw(paper, paper->bytes, paper->used);
	paper->checksum = graft_checksum(paper->checksum, paper->bytes, paper->used);
	paper->size += (uint32_t)paper->used;
	paper->used = 0;
}

GRAFT_SMALL void graft_put_bytes(struct graft_paper *paper, const void *bytes, size_t size)
{
	const uint8_t *at = bytes;
	while (size) {
		size_t part = sizeof paper->bytes - paper->used;
		part = part < size ? part : size;
		memcpy(paper->bytes + paper->used, at, part);
		paper->used += part;
		at += part;
		size -= part;
		if (paper->used == sizeof paper->bytes)
			graft_turn(paper, false);
	}
}

GRAFT_SMALL void graft_put_varint(struct graft_message *message, uint64_t number)
{
	for (; message->used < sizeof message->bytes; number >>= 7) {
		message->bytes[message->used++] = (uint8_t)(number & 0x7f) | (number >= 0x80 ? 0x80 : 0);
		if (number < 0x80)
			return;
	}
}

/* A number in a field of wire type 0. */
GRAFT_SMALL void graft_put_number_field(struct graft_message *message, uint32_t field, uint64_t number)
{
	graft_put_varint(message, (uint64_t)field << 3);
	graft_put_varint(message, number);
}

/* Bytes in a field of wire type 2. */
GRAFT_SMALL void graft_put_bytes_field(struct graft_message *message, uint32_t field, const void *bytes, size_t size)
{
	graft_put_varint(message, (uint64_t)field << 3 | 2);
	graft_put_varint(message, size);
	if (size <= sizeof message->bytes - message->used) {
		memcpy(message->bytes + message->used, bytes, size);
		message->used += size;
	}
}

/* Puts a message into the profile as a field of its own. */
GRAFT_SMALL void graft_put_message(struct graft_paper *paper, uint32_t field, const struct graft_message *message)
{
	struct graft_message *head = &graft_press->inner;
	head->used = 0;
	graft_put_varint(head, (uint64_t)field << 3 | 2);
	graft_put_varint(head, message->used);
	graft_put_bytes(paper, head->bytes, head->used);
	graft_put_bytes(paper, message->bytes, message->used);
}

GRAFT_SMALL void graft_put_plain_field(struct graft_paper *paper, uint32_t field, uint64_t number)
{
	struct graft_message *head = &graft_press->inner;
	head->used = 0;
	graft_put_number_field(head, field, number);
	graft_put_bytes(paper, head->bytes, head->used);
}

GRAFT_SMALL void graft_put_string(struct graft_paper *paper, const char *text)
{
	struct graft_message *message = &graft_press->message;
	message->used = 0;
	graft_put_bytes_field(message, 6, text, strlen(text));
	graft_put_bytes(paper, message->bytes, message->used);
}

/* The texts of a profile, by number; behind them the path and the build id of each module, and the comments. */
#define GRAFT_PPROF_TEXTS(X)                                                                                           \
	X(none, "") X(alloc_objects, "alloc_objects") X(count_, "count") X(alloc_space, "alloc_space") X(bytes, "bytes")   \
	X(inuse_objects, "inuse_objects") X(inuse_space, "inuse_space") X(space, "space") X(lifetime, "lifetime")            \
	X(below_1ms, "under 1 ms") X(below_10ms, "under 10 ms") X(below_100ms, "under 100 ms") X(below_1s, "under 1 s")      \
	X(below_10s, "under 10 s") X(longer, "10 s or longer") X(live, "live") X(sampled, "sampled")
#define GRAFT_PPROF_INDEX(name, text) graft_text_##name,
enum { GRAFT_PPROF_TEXTS(GRAFT_PPROF_INDEX) graft_text_count };
#define GRAFT_PPROF_TEXT(name, text) text,
static const char *const graft_texts[] = {GRAFT_PPROF_TEXTS(GRAFT_PPROF_TEXT)};

GRAFT_SMALL void graft_put_value_type(struct graft_paper *paper, uint32_t field, int kind, int unit)
{
	struct graft_message *message = &graft_press->message;
	message->used = 0;
	graft_put_number_field(message, 1, (uint64_t)kind);
	graft_put_number_field(message, 2, (uint64_t)unit);
	graft_put_message(paper, field, message);
}

GRAFT_SMALL void graft_put_modules(struct graft_paper *paper)
{
	struct graft_message *message = &graft_press->message;
	for (unsigned i = 0; i < graft_modules->count; i++) {
		const struct graft_module *module = &graft_modules->all[i];
		message->used = 0;
		graft_put_number_field(message, 1, i + 1);
		graft_put_number_field(message, 2, module->start);
		graft_put_number_field(message, 3, module->end);
		graft_put_number_field(message, 4, module->offset);
		graft_put_number_field(message, 5, graft_text_count + 2 * i);
		graft_put_number_field(message, 6, graft_text_count + 2 * i + 1);
		graft_put_message(paper, 3, message);
	}
}

/* The number of a caller's location: its place in a table of all callers. */
GRAFT_SMALL size_t graft_location(uintptr_t *table, size_t room, uintptr_t caller, bool *is_new)
{
	size_t at = (size_t)(caller * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (room - 1);
	while (table[at] && table[at] != caller)
		at = (at + 1) & (room - 1);
	*is_new = !table[at];
	table[at] = caller;
	return at + 1;
}

GRAFT_SMALL void graft_put_location(struct graft_paper *paper, size_t number, uintptr_t caller)
{
	struct graft_message *message = &graft_press->message;
	const struct graft_module *module = graft_module_of(caller);
	message->used = 0;
	graft_put_number_field(message, 1, number);
	if (module)
		graft_put_number_field(message, 2, (uint64_t)(module - graft_modules->all) + 1);
	graft_put_number_field(message, 3, caller);
	graft_put_message(paper, 4, message);
}

GRAFT_SMALL uint64_t graft_rounded(double number)
{
	return number > 0 ? graft_whole(number + 0.5) : 0;
}

/* One sample: what a site's blocks of that lifetime stand for. */
GRAFT_SMALL void graft_put_site(struct graft_paper *paper, const struct graft_heap_site *site, int lifetime,
                                uintptr_t *table, size_t room)
{
	struct graft_message *message = &graft_press->message, *inner = &graft_press->inner;
	uint64_t blocks = graft_rounded(site->blocks[lifetime]), bytes = graft_rounded(site->bytes[lifetime]);
	bool is_live = lifetime == graft_heap_live, is_new;
	message->used = inner->used = 0;
	for (uint32_t i = 0; i < site->depth; i++)
		graft_put_varint(inner, graft_location(table, room, site->callers[i], &is_new));
	graft_put_bytes_field(message, 1, inner->bytes, inner->used);
	inner->used = 0;
	graft_put_varint(inner, blocks);
	graft_put_varint(inner, bytes);
	graft_put_varint(inner, is_live ? blocks : 0);
	graft_put_varint(inner, is_live ? bytes : 0);
	graft_put_bytes_field(message, 2, inner->bytes, inner->used);
	inner->used = 0;
	graft_put_number_field(inner, 1, graft_text_lifetime);
	graft_put_number_field(inner, 2, (uint64_t)(graft_text_below_1ms + lifetime));
	graft_put_bytes_field(message, 3, inner->bytes, inner->used);
	inner->used = 0;
	graft_put_number_field(inner, 1, graft_text_sampled);
	graft_put_number_field(inner, 3, site->sampled[lifetime]);
	graft_put_bytes_field(message, 3, inner->bytes, inner->used);
	graft_put_message(paper, 2, message);
}

/* Locations, then samples. Returns false if there is no memory for a table of the locations. */
GRAFT_SMALL bool graft_put_sites(struct graft_paper *paper)
{
	struct graft_heap_profile *heap = graft_heap;
	size_t callers = 0, room = 64;
	bool is_new;
	for (size_t i = 0; i < heap->index_room; i++)
		callers += heap->index[i] ? graft_heap_site_at(heap->index[i])->depth : 0;
	while (room < 2 * callers)
		room *= 2;
	uintptr_t *table = graft_heap_map(room * sizeof *table);
	if (!table)
		return false;
	for (size_t i = 0; i < heap->index_room; i++) {
		struct graft_heap_site *site = heap->index[i] ? graft_heap_site_at(heap->index[i]) : 0;
		for (uint32_t caller = 0; site && caller < site->depth; caller++) {
			size_t number = graft_location(table, room, site->callers[caller], &is_new);
			if (is_new)
				graft_put_location(paper, number, site->callers[caller]);
		}
	}
	for (size_t i = 0; i < heap->index_room; i++) {
		struct graft_heap_site *site = heap->index[i] ? graft_heap_site_at(heap->index[i]) : 0;
		for (int lifetime = 0; site && lifetime < graft_heap_lifetimes; lifetime++) {
			if (site->sampled[lifetime])
				graft_put_site(paper, site, lifetime, table, room);
		}
	}
	munmap(table, room * sizeof *table);
	return true;
}

GRAFT_SMALL void graft_put_comment(struct graft_paper *paper, const char *name, uint64_t number)
{
	struct graft_page page = {graft_press->text, sizeof graft_press->text - 1, 0};
	graft_put_text(&page, "allograft: ");
	graft_put_text(&page, name);
	graft_put_text(&page, "=");
	if (number == GRAFT_UNKNOWN)
		graft_put_text(&page, "unknown");
	else
		graft_put_number(&page, number);
	page.text[page.length] = 0;
	graft_put_string(paper, page.text);
}

/* The texts, and the numbers of those that are comments. */
GRAFT_SMALL void graft_put_texts(struct graft_paper *paper, uint64_t duration)
{
	static const char digits[16] = "0123456789abcdef";
	char *text = graft_press->text;
	for (int i = 0; i < graft_text_count; i++)
		graft_put_string(paper, graft_texts[i]);
	for (unsigned i = 0; i < graft_modules->count; i++) {
		const struct graft_module *module = &graft_modules->all[i];
		graft_put_string(paper, graft_modules->paths + module->path);
		for (size_t at = 0; at < module->build_id_size; at++) {
			text[2 * at] = digits[module->build_id[at] >> 4];
			text[2 * at + 1] = digits[module->build_id[at] & 15];
		}
		text[2 * module->build_id_size] = 0;
		graft_put_string(paper, text);
	}
	bool is_mine = !atomic_exchange(&graft_is_reporting, true);
	uint64_t resident = is_mine ? graft_count_resident() : GRAFT_UNKNOWN;
	if (is_mine)
		atomic_store(&graft_is_reporting, false);
	const struct {
		const char *name;
		uint64_t number;
	} figures[] = {
		{"process", (uint64_t)getpid()},
		{"seconds", duration / 1000000000u},
		{"resident_bytes", resident},
		{"reserved_bytes", graft_at_least_zero(atomic_load(&graft_reserved_bytes))},
		{"returned_bytes", graft_at_least_zero(atomic_load(&graft_returned))},
		{"truncated_stacks", graft_heap->cut},
		{"lost_samples", graft_heap->lost},
	};
	enum { figure_count = sizeof figures / sizeof *figures };
	graft_put_string(paper, "allograft: donor=" GRAFT_DONOR);
	graft_put_string(paper, "allograft: version=" GRAFT_VERSION);
	for (int i = 0; i < figure_count; i++)
		graft_put_comment(paper, figures[i].name, figures[i].number);
	for (unsigned i = 0; i < 2 + figure_count; i++)
		graft_put_plain_field(paper, 13, graft_text_count + 2 * graft_modules->count + i);
}

GRAFT_SMALL bool graft_put_profile(struct graft_paper *paper)
{
	static const uint8_t head[10] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
	uint64_t now = graft_nanoseconds(CLOCK_REALTIME), duration = graft_nanoseconds(CLOCK_MONOTONIC) - graft_heap->began;
	graft_read_modules();
	graft_put_raw(paper, head, sizeof head);
	graft_put_value_type(paper, 1, graft_text_alloc_objects, graft_text_count_);
	graft_put_value_type(paper, 1, graft_text_alloc_space, graft_text_bytes);
	graft_put_value_type(paper, 1, graft_text_inuse_objects, graft_text_count_);
	graft_put_value_type(paper, 1, graft_text_inuse_space, graft_text_bytes);
	graft_put_modules(paper);
	if (!graft_put_sites(paper))
		return false;
	graft_put_texts(paper, duration);
	graft_put_plain_field(paper, 9, now);
	graft_put_plain_field(paper, 10, duration);
	graft_put_value_type(paper, 11, graft_text_space, graft_text_bytes);
	graft_put_plain_field(paper, 12, graft_whole(graft_heap_mean));
	graft_put_plain_field(paper, 14, graft_text_inuse_space);
	graft_turn(paper, true);
	uint32_t tail[2] = {paper->checksum, paper->size};
	graft_put_raw(paper, tail, sizeof tail);
	return paper->is_whole;
}

/* Writes a profile. The caller has the lock. */
GRAFT_SMALL void graft_heap_write(void)
{
	int saved = errno;
	struct graft_destination *destination = &graft_press->destination;
	struct graft_paper *paper = &graft_press->paper;
	bool written = graft_open_destination(destination);
	if (written) {
		paper->fd = destination->fd;
		paper->is_whole = true;
		paper->checksum = paper->size = 0;
		paper->used = 0;
		written = graft_close_destination(destination, graft_put_profile(paper));
	}
	if (!written)
		graft_fputs("allograft: the heap's profile cannot be written\n");
	errno = saved;
}

static void graft_heap_write_if_due(void)
{
	uint32_t none = 0;
	while (__builtin_expect(atomic_load_explicit(&graft_heap_due, memory_order_relaxed), 0)) {
		if (!atomic_compare_exchange_strong(&graft_heap_lock_word, &none, 1))
			return;
		atomic_store(&graft_heap_due, false);
		graft_heap_write();
		graft_heap_release();
		none = 0;
	}
}

static void graft_heap_on_signal(int number)
{
	(void)number;
	atomic_store(&graft_heap_due, true);
	graft_heap_write_if_due();
}

/* Writes a profile that is due, and returns whether none is any more. */
static bool graft_heap_is_written(void)
{
	graft_heap_write_if_due();
	return !atomic_load(&graft_heap_due);
}

/* The last profile. Another thread may be writing one; it is waited for, but not without end, since that thread may be
 * the one that calls exit, in a signal handler. */
static void graft_heap_at_exit(void)
{
	static _Atomic bool written;
	if (!graft_press || atomic_exchange(&written, true))
		return;
	graft_notice_fork();
	atomic_store(&graft_heap_due, true);
	graft_try_for_a_second(graft_heap_is_written);
}

#pragma clang attribute pop

#endif
