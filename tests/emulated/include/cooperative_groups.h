/* cooperative_groups.h: as much of it as the emulated sources name. */
#ifndef KOPS_EMULATED_COOPERATIVE_GROUPS_H
#define KOPS_EMULATED_COOPERATIVE_GROUPS_H

#include "emulator.h"

namespace cooperative_groups
{

struct cluster_group {
	void sync() const
	{
		emulator::meet_team();
	}
	/* Everything waits at the second of the two calls. */
	void barrier_arrive() const
	{
	}
	void barrier_wait() const
	{
		sync();
	}
	/* Returns the same place in another block's dynamic shared memory. */
	template <class T> T *map_shared_rank(T *p, unsigned rank) const
	{
		emulator::block &mine = *emulator::self->block, &other = mine.team->blocks.at(rank);

		return (T *)(other.dynamic.data + ((char *)p - mine.dynamic.data));
	}
};

inline cluster_group this_cluster()
{
	return {};
}

} // namespace cooperative_groups

#endif
