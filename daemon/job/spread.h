/*
 * spread.h: one large op over several devices of a kind at once. Loop thread only.
 *
 * The output is cut into tiles, one for each device, its owner. A tile is a run of its own, which takes its
 * operands from host memory. The first is on the job's own device. The others' owners had nothing to do when
 * the job started; there the scheduler counts the tile as a job of the same user.
 *
 * Two tiles of a product need all of one operand. If their devices reach each other, each uploads half of it,
 * and takes the other half from the other (plan/exchange.h).
 *
 * The job runs until all of its tiles are back. A tile may come back unfinished (run.h). The job is then
 * paused, and goes on when its own device may take it again.
 *
 * dispatch/tiles.h starts the tiles.
 */
#ifndef KOPS_SPREAD_H
#define KOPS_SPREAD_H

#include "job/job.h"

struct tile {
	struct spread *spread;
	unsigned owner; /* index of the device */
	struct device_work work;
	struct run run;
	struct run_op op; /* the first tile's reason is the receipt's */
	/* Of tiles beyond the first. */
	struct sched_queue queue;
	struct sched_job sched;
};

struct spread {
	struct job *job;
	unsigned n_tiles, n_away;  /* away: handed to their devices */
	struct exchange *exchange; /* of two tiles; NULL: each uploads all that it needs */
	struct tile tiles[];
};

/*
 * Cuts the planned op of a job into n tiles and plans each on its owner, by the kernel of the whole op; the
 * first owner is the job's device. NULL: it cannot be cut so, the tiles do not fit, there is no memory, or all
 * of that would not end it clearly sooner. Takes up to some milliseconds, for any number of tiles.
 */
struct spread *spread_new(struct job *job, const unsigned *owners, unsigned n);
void spread_free(struct spread *spread); /* NULL allowed */

/* Makes all tiles ready to start from their beginning. */
void spread_reset(struct spread *spread);

static inline bool tile_has_ended(const struct tile *tile)
{
	return tile->run.status < 0 || run_is_through(&tile->run);
}

/* Before tiles start. Those of devices that have other work upload all that they need by themselves. */
void spread_begin_exchange(struct spread *spread);

/* When all tiles are back: sets what the job's run shows. It is through if every tile has ended. */
void spread_gather(struct spread *spread);

/* The planned time of what is left of the longest tile. */
double spread_left_us(const struct spread *spread);

/* Adds up the parts of all tiles, and those that are done. */
void spread_count_parts(const struct spread *spread, uint32_t *ret_parts, uint32_t *ret_done);

#endif
