/*
 * marks.h: records which jobs were running when kopsd died, in a small file that outlives it.
 *
 * A job may take the daemon down, by using all memory or by a fault of a device. Clients then send it again,
 * because it was not answered. So each job is marked while a device has it, by its user and its shape: ops,
 * kernels, types, extents and strides.
 *
 * Marks found at a start are of jobs that ran at the last death. After one death such a job is a suspect and
 * runs alone, so that no innocent job runs at the next death. After two deaths it is refused. A mark is removed
 * when such a job ends, at an orderly stop, and an hour after the last death.
 *
 * The file is mapped, so a mark costs a few stores. Losing it when the machine crashes does no harm.
 */
#ifndef KOPS_MARKS_H
#define KOPS_MARKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "device/driver.h"

#define MARKS_DEATHS_MAX 2   /* a job with this many deaths is refused */
#define MARKS_LASTING_MS 100 /* a job that has run for this long may be why kopsd was killed */

struct marks;

/*
 * Opens or creates the file, and counts its marks as a death. An invalid file is replaced. NULL with a sentence
 * in why: the file cannot be created; then jobs are not marked.
 */
struct marks *marks_open(const char *path, char why[WHY_BYTES]);

/* Ends in order: keeps only marks of refused and suspect jobs. NULL allowed. */
void marks_close(struct marks *marks);

/* The shape of a planned run. */
uint64_t marks_shape(const struct run *run);

/* The number of consecutive deaths at which such a job was running. marks NULL: 0. */
unsigned marks_deaths(const struct marks *marks, uid_t uid, uint64_t shape);

/* Call these when a device gets such a job, and when it has it no more, paused or ended. forgiven: the job
 * ended, so it does not take the daemon down. marks: NULL allowed. */
void marks_set(struct marks *marks, uid_t uid, uint64_t shape);
void marks_unset(struct marks *marks, uid_t uid, uint64_t shape, bool forgiven);

/* The job has run for MARKS_LASTING_MS. */
void marks_set_lasting(struct marks *marks, uid_t uid, uint64_t shape);

/* Notes that kopsd is crashing, rather than being killed. Async-signal-safe. */
void marks_note_crash(struct marks *marks);

#endif
