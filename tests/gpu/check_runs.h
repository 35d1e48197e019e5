/*
 * check_runs.h: the parts of check_runs.
 *
 *   random_runs.c   chains of random ops, compared with their references
 *   graph_runs.c    graphs that are refused, forgotten, or meet other data
 *   stream_runs.c   runs that are computed while their operands move, and pairs that exchange them
 *   special_runs.c  an idle device, timed runs, runs that do not find room, a broken context
 *   check_runs.c    the device, its buffers, what runs on it; options
 */
#ifndef KOPS_CHECK_RUNS_H
#define KOPS_CHECK_RUNS_H

#include <stdbool.h>
#include <stdint.h>

#include "device/driver.h"
#include "plan/plan.h"

enum { BUFFERS = 4, RESIDENT = 3 };
#define BUFFER_BYTES (192u << 10)
#define WAIT_NS      20000000000ull /* longest wait for a run */

struct buffer {
	struct memory memory;
	unsigned char *expected, *written; /* written: a flag for each byte of the buffer */
	unsigned char *content;            /* a RESIDENT buffer's bytes as read back, else memory.host */
};

struct bench {
	const struct driver *driver;
	struct device_state *dev;
	struct planner planner;
	struct buffer buffers[BUFFERS];
	uint64_t random;
	unsigned long runs, ops, graphs, windowed;
};

/* ---- check_runs.c ---- */

/* Returns a number in [0, n). */
uint64_t below(struct bench *t, uint64_t n);
/* Returns a number in [-1, 1). */
double uniform(struct bench *t);
/* Ends the program with status 1. */
void die(const char *what, const char *why);

struct memory resident(struct bench *t, uint64_t bytes);
struct view bytes_view(const struct memory *m, uint64_t bytes);

/* These end the program if anything fails. */
void check_op(struct op_args *args, const char *what);
/* Plans and starts a run. */
void begin(struct bench *t, struct run *run);
/* Asks the driver for a wake-up, and counts those that came. */
void ask_to_be_woken(struct bench *t);
unsigned times_woken(void);
/* Waits until n runs are back. Polls half of the time, and asks to be woken otherwise. */
void wait_for(struct bench *t, unsigned n);
void run_one(struct bench *t, struct run_op *op);
void copy_between(struct bench *t, const struct memory *from, const struct memory *to, uint64_t bytes);

/* ---- random_runs.c ---- */

/* Returns false, with a message on stderr, if a byte is wrong. */
bool run_case(struct bench *t);

/* ---- graph_runs.c: these end the program if anything is wrong ---- */

void check_refused_graph(struct bench *t);
void check_forgotten_graph(struct bench *t);
void check_graphs_with_room(struct bench *t);
/* For GPUs that has_hopper(). */
void check_data_in_graph(struct bench *t);

/* ---- stream_runs.c: ends the program if anything is wrong ---- */

void check_streamed(struct bench *t, unsigned long cases); /* at most so many */

/* ---- special_runs.c: these end the program if anything is wrong ---- */

void check_idle(void);
void check_many_graphs(struct bench *t);
void check_together(struct bench *t);
void check_timed(struct bench *t, unsigned buffer);
void check_slices(struct bench *t);
void check_long_sums(struct bench *t);
bool has_hopper(const struct bench *t);
/* For GPUs with has_hopper(): others have no such kernels. */
void check_crowded(struct bench *t);
void check_out_of_memory(struct bench *t);
/* Breaks the context. */
void check_fault(struct bench *t);
/* Makes a product of a single number, with few blocks and a long time. */
struct run_op long_product(const struct memory *number, const struct memory *c);

/* ---- way_runs.c: these end the program if anything is wrong ---- */

void check_notify(struct bench *t);
void check_unpin(struct bench *t);
/* For GPUs with has_hopper(). */
void check_room(struct bench *t);

#endif
