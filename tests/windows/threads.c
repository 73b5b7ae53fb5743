/* Threads that come and go, and free each other's blocks. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#include "check.h"

enum { THREADS = 8, ROUNDS = 40, SLOTS = 512, STEPS = 20000 };

static void *volatile shared[SLOTS];

static DWORD WINAPI work(void *seed)
{
	uint32_t state = (uint32_t)(uintptr_t)seed;
	for (int step = 0; step < STEPS; step++) {
		state = state * 1664525 + 1013904223;
		size_t size = 16 + (state >> 8) % (step % 64 ? 600 : 60000);
		unsigned char *block = malloc(size);
		CHECK(block);
		block[0] = block[size - 1] = (unsigned char)size;
		memcpy(block + 1, &size, sizeof size);
		unsigned char *other = InterlockedExchangePointer(&shared[(state >> 4) % SLOTS], block);
		if (other) {
			memcpy(&size, other + 1, sizeof size);
			CHECK(other[0] == (unsigned char)size && other[size - 1] == (unsigned char)size);
			free(other);
		}
	}
	return 0;
}

int main(void)
{
	for (int round = 0; round < ROUNDS; round++) {
		HANDLE threads[THREADS];
		for (int number = 0; number < THREADS; number++) {
			threads[number] = CreateThread(0, 0, work, (void *)(uintptr_t)(round * THREADS + number + 1), 0, 0);
			CHECK(threads[number]);
		}
		CHECK(WaitForMultipleObjects(THREADS, threads, TRUE, INFINITE) == WAIT_OBJECT_0);
		for (int number = 0; number < THREADS; number++)
			CloseHandle(threads[number]);
	}
	for (int slot = 0; slot < SLOTS; slot++)
		free(shared[slot]);
	puts("threads: all right");
	return 0;
}
