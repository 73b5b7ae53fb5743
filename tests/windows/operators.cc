// Operators new and delete, containers, exceptions and threads of C++, whose library is linked statically.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <malloc.h>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

struct alignas(256) Aligned {
	char bytes[256];
};

static void fill(int seed)
{
	std::map<std::string, std::vector<int>> all;
	for (int at = 0; at < 2000; at++)
		all["key " + std::to_string(seed * at % 499)].push_back(at);
	std::size_t sum = 0;
	for (const auto &[key, values] : all)
		sum += values.size() + key.size() * 0;
	CHECK(sum == 2000);
}

int main()
{
	// A block of `new` is a block of malloc: their heaps are the same.
	char *block = static_cast<char *>(::operator new(100));
	CHECK(_msize(block) >= 100);
	free(block);
	auto aligned = std::make_unique<Aligned>();
	CHECK(reinterpret_cast<std::uintptr_t>(aligned.get()) % 256 == 0);
	CHECK(!::operator new(SIZE_MAX / 4, std::nothrow));
	bool thrown = false;
	try {
		::operator delete(::operator new(SIZE_MAX / 4));
	} catch (const std::bad_alloc &) {
		thrown = true;
	}
	CHECK(thrown);
	std::vector<std::thread> threads;
	for (int seed = 1; seed <= 8; seed++)
		threads.emplace_back(fill, seed);
	for (auto &thread : threads)
		thread.join();
	std::puts("operators: all right");
}
