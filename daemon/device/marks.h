/*
 * marks.h: which jobs were at work when kopsd died, kept in a small file that outlives it.
 *
 * A job that takes the daemon down (by all of the memory, by a fault of a device) comes again from clients that
 * repeat what was not answered. So each job is marked while a device has it, by its user and its shape: ops,
 * kernels, types, extents and strides. What is marked at a start was at work at the death before. After one
 * death it is a suspect and runs alone, so that no innocent one is at work at the next; after two it is
 * refused. A mark goes when such a job comes to its end, at an orderly stop, and an hour after the last death.
 *
 * The file is mapped, so marking costs a few stores; that it is there no longer after a crash of the machine
 * does no harm.
 */
#ifndef KOPS_MARKS_H
#define KOPS_MARKS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "plan/backend.h"

#define MARKS_DEATHS_MAX 2   /* from so many on a job is refused */
#define MARKS_LASTING_MS 100 /* at work for so long, it may be why somebody killed us */

struct marks;

/*
 * Opens or makes the file, and counts what is marked in it as a death. A file that is of no use is begun anew.
 * NULL: the file cannot be created, with a sentence in why; jobs go unmarked then.
 */
struct marks *marks_open(const char *path, char why[WHY_BYTES]);

/* An orderly end: nothing is marked any more but what is refused or suspected. NULL allowed. */
void marks_close(struct marks *marks);

/* The shape of a planned run. */
uint64_t marks_shape(const struct run *run);

/* At how many deaths in a row such a job was at work. NULL allowed: 0. */
unsigned marks_deaths(const struct marks *marks, uid_t uid, uint64_t shape);

/* A device gets such a job; and has it no more, paused or at its end. forgiven: it came to its end, so it is
 * none that takes the daemon down. marks NULL allowed. */
void marks_set(struct marks *marks, uid_t uid, uint64_t shape);
void marks_unset(struct marks *marks, uid_t uid, uint64_t shape, bool forgiven);

/* It has been at work for MARKS_LASTING_MS. */
void marks_set_lasting(struct marks *marks, uid_t uid, uint64_t shape);

/* The process ends for a reason of its own. Async-signal-safe. */
void marks_note_crash(struct marks *marks);

#endif
