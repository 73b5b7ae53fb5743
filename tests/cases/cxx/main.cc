#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <sys/resource.h>
#include <thread>
#include <vector>

#define CHECK(condition) \
	do { \
		if (!(condition)) std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition), std::_Exit(1); \
	} while (0)

static bool aligned(const void *block, std::size_t to) { return reinterpret_cast<std::uintptr_t>(block) % to == 0; }

template <std::size_t N> struct alignas(N) Aligned {
	char bytes[N * 2];
	Aligned() { bytes[0] = 1; }
	~Aligned() { CHECK(bytes[0] == 1); }
};

template <std::size_t N> static void align() {
	CHECK(aligned(std::make_unique<Aligned<N>>().get(), N));
	CHECK(aligned(std::make_unique<Aligned<N>[]>(7).get(), N));
	std::vector<Aligned<N>> many(20);
	for (auto &one : many) CHECK(aligned(&one, N));
	void *plain = ::operator new(100, std::align_val_t(N), std::nothrow);
	CHECK(plain && aligned(plain, N));
	::operator delete(plain, 100, std::align_val_t(N));
}

// Made before main and by each thread; released after main and as each thread ends.
struct Keeper {
	std::string *text = new std::string(1000, 'k');
	~Keeper() {
		std::string copy = *text + *text;
		CHECK(copy.size() == 2000 && copy[1999] == 'k');
		delete text;
	}
};
static Keeper global;
static thread_local Keeper own;

static int depth(int level, const std::string &text) {
	std::vector<std::string> ballast(3, text + text);
	if (level == 0) throw std::runtime_error(text);
	try {
		return depth(level - 1, text + "x") + static_cast<int>(ballast.size());
	} catch (const std::logic_error &) {
		return -1;
	}
}

static void exceptions() {
	for (int i = 0; i < 200; i++) {
		try {
			depth(i % 20, "deep");
			CHECK(false);
		} catch (const std::exception &caught) {
			CHECK(std::string(caught.what()).size() == 4u + i % 20);
		}
	}
	std::exception_ptr kept;
	std::thread([&] {
		try {
			throw std::vector<int>(5000, 7);
		} catch (...) {
			kept = std::current_exception();
		}
	}).join();
	try {
		std::rethrow_exception(kept);
	} catch (std::vector<int> &numbers) {
		CHECK(numbers.size() == 5000 && numbers[4999] == 7);
	}
}

static char *reserve;
static int handled;

static void too_much() {
	volatile std::size_t size = PTRDIFF_MAX;
	CHECK(!::operator new(size, std::nothrow) && !::operator new(size / 2, std::align_val_t(4096), std::nothrow));
	int caught = 0;
	try {
		::operator delete(::operator new(size));
	} catch (const std::bad_alloc &) {
		caught++;
	}
	try {
		delete[] new int[size];
	} catch (const std::bad_array_new_length &) {
		caught++;
	} catch (const std::bad_alloc &) {
		caught++;
	}
	CHECK(caught == 2);
	// The handler is called until it has freed enough, or has no more to free.
	reserve = new char[1000];
	std::set_new_handler([] {
		delete[] reserve;
		reserve = nullptr;
		if (++handled == 3) std::set_new_handler(nullptr);
	});
	try {
		::operator delete(::operator new(size));
		CHECK(false);
	} catch (const std::bad_alloc &) {
		CHECK(handled == 3 && !reserve);
	}
}

// Memory really runs out: the exception is caught, and everything works again.
static void exhausted() {
	const std::size_t MOST = 3000;
	rlimit limit, old;
	CHECK(getrlimit(RLIMIT_AS, &old) == 0);
	unsigned long pages = 0;
	if (FILE *file = std::fopen("/proc/self/statm", "r")) {
		if (std::fscanf(file, "%lu", &pages) != 1) pages = 0;
		std::fclose(file);
	}
	limit = old;
	limit.rlim_cur = pages * 4096 + (64u << 20);
	if (setrlimit(RLIMIT_AS, &limit)) return;
	std::vector<std::unique_ptr<std::string>> kept;
	bool thrown = false;
	try {
		// The loop is bounded, since emulators enforce no limit and allocators may hold address space in reserve.
		while (kept.size() < MOST) kept.push_back(std::make_unique<std::string>(100000, 'x'));
	} catch (const std::bad_alloc &) {
		thrown = true;
	}
	CHECK(setrlimit(RLIMIT_AS, &old) == 0);
	CHECK(thrown || kept.size() == MOST);
	kept.clear();
	CHECK(std::string(200000, 'y').back() == 'y');
}

int main() {
	std::atomic<int> done{0};
	std::vector<std::thread> threads;
	for (int i = 0; i < 6; i++)
		threads.emplace_back([&done, i] {
			std::map<std::string, std::shared_ptr<std::vector<int>>> map;
			CHECK(own.text->size() == 1000);
			for (int j = 0; j < 3000; j++) {
				auto &numbers = map[std::to_string(j * 7919 % 500) + " is a key that does not fit into the string itself"];
				if (!numbers) numbers = std::make_shared<std::vector<int>>();
				numbers->push_back(i);
				if (j % 3 == 0) numbers->shrink_to_fit();
			}
			CHECK(map.size() == 500);
			exceptions();
			done++;
		});
	for (auto &thread : threads) thread.join();
	CHECK(done == 6 && own.text->size() == 1000);
	align<32>(), align<64>(), align<256>(), align<4096>(), align<65536>();
	too_much();
	exhausted();
	std::puts("ok");
}
