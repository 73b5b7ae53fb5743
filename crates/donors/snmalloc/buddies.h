/* Free ranges of powers of two, which become one with their buddies. heap.cc includes it in place of upstream's class, which
 * does the same, but calls itself from functions that have a path in a tree on their stack. Here such a path is gone before
 * anything else is called, so that there is one at a time (tree_path.h). */
#ifndef SNMALLOC_BUDDIES_H
#define SNMALLOC_BUDDIES_H

namespace snmalloc
{
/* Ranges of 2^MIN_SIZE_BITS bytes and more, below 2^MAX_SIZE_BITS. `Rep` is upstream's: where a range's links are. */
template<typename Rep, size_t MIN_SIZE_BITS, size_t MAX_SIZE_BITS>
class Buddy
{
	using Range = typename Rep::Contents;
	using Tree = RBTree<Rep>;
	static constexpr size_t SIZES = MAX_SIZE_BITS - MIN_SIZE_BITS;

	/* The ranges of one size: a few at hand, the others in a tree. */
	struct Level {
		Range near[3];
		Tree tree{};
	};
	stl::Array<Level, SIZES> levels{};
	/* There is nothing from this level on. */
	size_t end{0};

	static size_t level_of(size_t size)
	{
		return bits::next_pow2_bits(size) - MIN_SIZE_BITS;
	}

	static __attribute__((noinline)) Range take_lowest(Tree &tree)
	{
		return tree.remove_min();
	}

	static __attribute__((noinline)) void insert(Tree &tree, Range range)
	{
		auto path = tree.get_root_path();
		tree.find(path, range);
		tree.insert_path(path, range);
	}

	/* Takes the buddy out of the tree, if it is there, and may become one with the range. Only what is in the tree may be
	 * asked that: of other memory nothing is known. */
	static __attribute__((noinline)) bool take_buddy(Tree &tree, Range buddy, Range range, size_t size)
	{
		auto path = tree.get_root_path();
		return tree.find(path, buddy) && Rep::can_consolidate(range, size) && tree.remove_path(path);
	}

	bool remove_buddy(Range range, size_t size)
	{
		if (level_of(size) >= end)
			return false;
		Level &level = levels[level_of(size)];
		Range buddy = Rep::buddy(range, size);
		for (Range &near : level.near) {
			if (!Rep::equal(buddy, near))
				continue;
			if (!Rep::can_consolidate(range, size))
				return false;
			near = take_lowest(level.tree);
			return true;
		}
		return take_buddy(level.tree, buddy, range, size);
	}

	/* Takes a range of exactly that level. */
	Range take(Level &level)
	{
		Range taken = take_lowest(level.tree);
		for (Range &near : level.near)
			if (Rep::equal(Rep::null, taken) || Rep::compare(near, taken))
				taken = stl::exchange(near, taken);
		return taken;
	}

public:
	constexpr Buddy() = default;

	/* Adds a range of a power of two at a multiple of that. Returns null, or the whole of 2^MAX_SIZE_BITS bytes that it
	 * makes with others, which is too large to be here. */
	Range add_block(Range range, size_t size)
	{
		while (remove_buddy(range, size)) {
			size *= 2;
			range = Rep::align_down(range, size);
			if (size == bits::one_at_bit(MAX_SIZE_BITS))
				return range;
		}
		size_t at = level_of(size);
		end = bits::max(end, at + 1);
		for (Range &near : levels[at].near) {
			if (Rep::equal(Rep::null, near)) {
				near = range;
				return Rep::null;
			}
		}
		insert(levels[at].tree, range);
		return Rep::null;
	}

	/* Takes a range of that size, or splits the next larger existing one. Returns null if no range is large enough. */
	Range remove_block(size_t size)
	{
		size_t wanted = level_of(size);
		for (size_t at = wanted; at < end; at++) {
			Range taken = take(levels[at]);
			if (Rep::equal(Rep::null, taken))
				continue;
			while (at-- > wanted)
				add_block(Rep::offset(taken, bits::one_at_bit(at + MIN_SIZE_BITS)), bits::one_at_bit(at + MIN_SIZE_BITS));
			return taken;
		}
		end = bits::min(end, wanted);
		return Rep::null;
	}
};
}

#endif
