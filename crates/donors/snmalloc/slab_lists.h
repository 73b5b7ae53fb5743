/* Lists of slabs. As upstream's, but the first slab can also be made the last: the search for holes (holes.h) looks at a few
 * slabs at a time, while the list is in use. With checks there is no search, and the lists are upstream's. heap.cc includes
 * this before anything that has such a list. */
#ifndef SNMALLOC_SLAB_LISTS_H
#define SNMALLOC_SLAB_LISTS_H

#ifdef SNMALLOC_CHECK_CLIENT
#include "snmalloc/ds_aal/seqset.h"
#else
#define SeqSet UpstreamSeqSet
#include "snmalloc/ds_aal/seqset.h"
#undef SeqSet

namespace snmalloc
{
template<typename T>
class SeqSet
{
public:
	class Node
	{
		friend class SeqSet;
		Node *next{nullptr}, *prev{nullptr};

		constexpr Node(Node *next, Node *prev) : next(next), prev(prev) {}

		void insert_between(Node *before, Node *behind)
		{
			prev = before;
			next = behind;
			before->next = behind->prev = this;
		}

	public:
		constexpr Node() = default;

		void remove()
		{
			next->prev = prev;
			prev->next = next;
		}
	};

private:
	Node head{&head, &head};

	static T *containing(Node *node)
	{
		static_assert(offsetof(T, node) == 0);
		return reinterpret_cast<T *>(node);
	}

	static T *removed(Node *node)
	{
		node->remove();
		return containing(node);
	}

public:
	constexpr SeqSet() = default;

	SNMALLOC_FAST_PATH bool is_empty() const
	{
		return head.next == &head;
	}

	SNMALLOC_FAST_PATH void insert(T *item)
	{
		item->node.insert_between(&head, head.next);
	}

	/* Takes the first, or the last. The list is not empty. */
	template<bool first>
	SNMALLOC_FAST_PATH T *pop()
	{
		return removed(first ? head.next : head.prev);
	}

	/* Makes the first one the last, and returns it. The list is not empty. */
	T *rotate()
	{
		T *first = removed(head.next);
		first->node.insert_between(head.prev, &head);
		return first;
	}

	/* Calls `visit` for each, which may remove it. */
	template<typename Visit>
	SNMALLOC_FAST_PATH void iterate(Visit &&visit)
	{
		for (Node *at = head.next, *next; at != &head; at = next) {
			next = at->next;
			visit(containing(at));
		}
	}
};
}
#endif

#endif
