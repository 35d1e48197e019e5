/* tiles.h: starts the tiles of a job that is spread over devices (job/spread.h). back.h takes them back. */
#ifndef KOPS_TILES_H
#define KOPS_TILES_H

#include "job/job.h"

/*
 * Spreads a job that is about to start over its device and others of its kind that have nothing to do, if that
 * is possible and pays. Sets job->is_spread. The tiles' memory on the other devices counts as taken from now
 * on.
 */
void tiles_prepare(struct job *job);

/* Hands over the tiles that have not ended. job->tile_done() follows for each. */
void tiles_start(struct job *job);

#endif
