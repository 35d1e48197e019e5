/* room.h: how much a run leaves to other users while it is on a GPU. */
#ifndef KOPS_ROOM_H
#define KOPS_ROOM_H

#include "plan/run.h"
#include "share/recent.h"

/* For a run of the user noted last: others may have short ones beside it, or somebody may come during a long
 * one. */
static inline enum run_room room_for(const struct recent_users *users, double plan_us, uint64_t now_ns)
{
	const double in_the_way_us = 200; /* a shorter run is over before it is in anybody's way */
	const double long_us = 1000;

	if (plan_us > in_the_way_us && recent_users_has_other(users, now_ns))
		return RUN_IS_CONFINED;
	return plan_us > long_us ? RUN_LEAVES_ROOM : RUN_KEEPS_ALL;
}

#endif
