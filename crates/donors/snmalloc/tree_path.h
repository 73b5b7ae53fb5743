/* The path from a tree's root to a node. Upstream's is an array of 128 steps of 16 bytes, 2 KiB of stack, and two of them
 * may be there at once: a thread with a stack of PTHREAD_STACK_MIN (2 KiB) could not allocate. This one has nodes of 8
 * bytes, directions of one bit, and fewer steps. heap.cc includes it before upstream's trees. */
#ifndef SNMALLOC_TREE_PATH_H
#define SNMALLOC_TREE_PATH_H

#include "snmalloc/ds_core/bits.h"
#include "snmalloc/ds_core/concept.h"
#include "snmalloc/ds_core/helpers.h"
#include "snmalloc/ds_core/ptrwrap.h"
#include "snmalloc/stl/array.h"

namespace snmalloc
{
namespace stl
{
/* Any other array is upstream's. */
template<typename T, size_t N>
struct ArrayOrPath : Array<T, N> {
};

/* A red-black tree of n nodes has at most 2 log2(n + 1) levels: 2^24 nodes fill this. A node is a free range of a thread:
 * slabs' metadata, of 64 bytes, or chunks of 16 KiB. So a thread would have freed 256 GiB in one piece of two. */
template<typename Step>
struct ArrayOrPath<Step, 128>
{
private:
	static constexpr size_t STEPS = 48;
	using Node = decltype(Step::node);

	Node nodes[STEPS];
	uint64_t directions{0};

	struct Direction {
		uint64_t &all;
		size_t at;

		operator bool() const
		{
			return all >> at & 1;
		}
	};

	struct Reference {
		Node &node;
		Direction dir;

		void set(Node to, bool direction)
		{
			node = to;
			dir.all = (dir.all & ~(uint64_t{1} << dir.at)) | uint64_t{direction} << dir.at;
		}
	};

public:
	Reference operator[](size_t at)
	{
		if (SNMALLOC_UNLIKELY(at >= STEPS))
			platform_fail("a tree of free memory is too deep");
		return {nodes[at], {directions, at}};
	}
};
}
}

#define Array ArrayOrPath
#include "snmalloc/ds_core/redblacktree.h"
#undef Array

#endif
