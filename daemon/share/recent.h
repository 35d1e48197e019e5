/* recent.h: which users had jobs on a device lately. Plain data; the caller has the clock. */
#ifndef KOPS_RECENT_H
#define KOPS_RECENT_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Who computes only now and then must not find the GPU taken each time. What is left free for others costs long
 * kernels up to 2 % (H200).
 */
#define RECENT_NS 60000000000u

/* The last two: whoever asks is one of them, or both are others. Zeros: there were none. */
struct recent_users {
	struct {
		uint64_t uid, at_ns;
	} last[2];
};

/* The user has a job there now. */
static inline void recent_users_note(struct recent_users *r, uint64_t uid, uint64_t now_ns)
{
	if (r->last[0].uid != uid)
		r->last[1] = r->last[0];
	r->last[0].uid = uid;
	r->last[0].at_ns = now_ns;
}

/* Whether another than the one noted last had one within RECENT_NS. */
static inline bool recent_users_has_other(const struct recent_users *r, uint64_t now_ns)
{
	return r->last[1].at_ns > 0 && r->last[1].uid != r->last[0].uid &&
	       now_ns - r->last[1].at_ns < RECENT_NS;
}

#endif
