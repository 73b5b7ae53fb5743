/* Which unused pages go back: ranges of pages, the long ones first.
 *
 * Each range takes a system call of its own. Where blocks in use are scattered there are many short ranges: in `fragments`
 * of the suite with 8 threads, those under 16 KiB were 72 of 100 calls and 33 of 100 pages. So they go back only when they
 * take more than what is in use, or when all is asked for. */
#ifndef GRAFT_SCUDO_RANGES_H
#define GRAFT_SCUDO_RANGES_H

#include "release.h"

#include "bridge.h"

namespace scudo {

/* How many calls are under way that return every unused page: malloc_trim(), the thread of purge_period. If a fork comes
 * in between, the child returns every unused page always. */
static constinit atomic_u32 ThoroughReleases = {};

/* Gives each range to one of upstream's recorders, or only counts it. */
class SelectedRanges {
public:
	SelectedRanges(ReleaseRecorder &To, uptr Shortest, uptr Longest) : To(To), Shortest(Shortest), Longest(Longest)
	{
	}

	/* Called by upstream's releaseFreeMemoryToOS for each range of unused pages. */
	void releasePageRangeToOS(uptr From, uptr End)
	{
		const uptr Size = End - From;
		All += Size;
		if (Size >= Shortest && Size <= Longest)
			To.releasePageRangeToOS(From, End);
		else
			Left += Size;
	}

	/* In bytes: the ranges that were seen, and those among them that were only counted. */
	uptr All = 0, Left = 0;

private:
	ReleaseRecorder &To;
	uptr Shortest, Longest;
};

/* In place of upstream's function for one size class, which returns each range. */
template <class SkipRegionT>
void releaseFreeMemoryToOS(PageReleaseContext &Context, ReleaseRecorder &Recorder, SkipRegionT SkipRegion)
{
	constexpr uptr Long = 16 << 10;
	const bool Thorough = atomic_load_relaxed(&ThoroughReleases) || !scudo_short_ranges_wait();
	uptr Regions = 0;
	auto CountRegion = [&](uptr Region) {
		const bool Skipped = SkipRegion(Region);
		Regions += !Skipped;
		return Skipped;
	};
	SelectedRanges First(Recorder, Thorough ? 0 : Long, UINTPTR_MAX);
	releaseFreeMemoryToOS<SelectedRanges>(Context, First, CountRegion);
	const uptr InUse = Regions * Context.PagesCount * getPageSizeCached() - First.All;
	if (First.Left > InUse) {
		SelectedRanges Rest(Recorder, 0, Long - 1);
		releaseFreeMemoryToOS<SelectedRanges>(Context, Rest, SkipRegion);
	}
}

} // namespace scudo

#endif
