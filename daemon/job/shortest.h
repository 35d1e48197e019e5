/*
 * shortest.h: the shortest of the latest times that something took. Waiting for others only makes a time
 * longer, so a few long ones say nothing, however long they are.
 */
#ifndef KOPS_JOB_SHORTEST_H
#define KOPS_JOB_SHORTEST_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define SHORTEST_OF 8u

/* Small, as each prepared job has one. */
struct shortest {
	float us; /* of the last 8 to 15 times; 0: there was none */
	float new_us;
	uint8_t n, n_new; /* all times, up to 8; those that new_us is the shortest of */
};

static inline void shortest_note(struct shortest *s, double us)
{
	s->new_us = s->n_new == 0 ? (float)us : fminf(s->new_us, (float)us);
	s->us = s->n == 0 ? (float)us : fminf(s->us, (float)us);
	if (s->n < SHORTEST_OF)
		s->n++;
	if (++s->n_new < SHORTEST_OF)
		return;
	s->us = s->new_us;
	s->n_new = 0;
}

/* Returns true if there were enough times for the shortest to be longer than was planned. */
static inline bool shortest_is_known(const struct shortest *s)
{
	return s->n == SHORTEST_OF;
}

#endif
