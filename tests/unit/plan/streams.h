/*
 * streams.h: streams of a device that do what they are asked for later, in any order that their waits for each
 * other allow.
 */
#ifndef KOPS_TESTS_STREAMS_H
#define KOPS_TESTS_STREAMS_H

#include <stdlib.h>
#include <string.h>

#include "common/cpu.h"
#include "host_mover.h"

#define TASKS_MAX 1024

static uint64_t random_state;

static uint64_t pick(uint64_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % n;
}

struct stream;

struct task {
	enum { MOVE_UP, MOVE_DOWN, MOVE_ACROSS, WAIT, RUN_PART, POISON, COMPARE } kind;
	struct layout layout;
	const char *from;
	char *to;
	struct stream *other; /* WAIT: until so many of its tasks are done */
	uint64_t n;
	struct op_args args;
	const struct run_op *op;
	uint32_t part;
	void *kept;
};

struct stream {
	struct task tasks[TASKS_MAX];
	unsigned n, done;
	uint64_t bytes; /* that it moves */
};

enum { COMPUTE, UP, DOWN, ACROSS, STREAMS }; /* of a lane */

#define LANES 2
static struct stream streams[STREAMS * LANES];

/* Behind so many tasks of a stream. */
struct mark {
	struct stream *stream;
	unsigned n;
};

static struct mark lane_marks[LANES][2 * GROWING_PARTS_MAX + 1];
static struct stage_marks lane_stage_marks[LANES];
static struct mark follow_marks[LANES];

static struct task *add_task(struct stream *stream, int kind)
{
	struct task *t = &stream->tasks[stream->n++];

	assert_true(stream->n <= TASKS_MAX);
	*t = (struct task){.kind = kind};
	return t;
}

static void add_move(struct stream *stream, int kind, const struct layout *l, const char *from, char *to)
{
	struct task *t = add_task(stream, kind);

	t->layout = *l;
	t->from = from;
	t->to = to;
	stream->bytes += l->bytes;
}

static int upload(const struct layout *l, const void *host, bool pinned, void *image, struct stream *stream)
{
	assert_true(pinned && (stream - streams) % STREAMS == UP);
	add_move(stream, MOVE_UP, l, host, image);
	return 0;
}

static int download(const struct layout *l, void *host, bool pinned, const void *image, struct stream *stream)
{
	assert_true(pinned && (stream - streams) % STREAMS == DOWN);
	add_move(stream, MOVE_DOWN, l, image, host);
	return 0;
}

static int copy(const struct layout *l, const void *from, void *to, struct stream *stream)
{
	assert_true((stream - streams) % STREAMS == ACROSS);
	add_move(stream, MOVE_ACROSS, l, from, to);
	return 0;
}

static bool may_settle;
static void run_streams(const struct stream *until);

static int settle(struct stream *stream)
{
	if (!may_settle)
		fail_msg("a streamed run waits");
	run_streams(stream);
	return 0;
}

static int set_mark(struct stream *before, void *mark)
{
	*(struct mark *)mark = (struct mark){before, before->n};
	return 0;
}

static int await(struct stream *after, void *mark)
{
	const struct mark *behind = mark;
	struct task *t = add_task(after, WAIT);

	t->other = behind->stream;
	t->n = behind->n;
	return 0;
}

static int follow(struct stream *before, struct stream *after, void *mark)
{
	set_mark(before, mark);
	return await(after, mark);
}

static const struct stage_mover mover = {upload, download, settle, follow, set_mark, await, copy};

/* False: it has to wait. */
static bool do_task(const struct task *t)
{
	const struct launch launch = {.kept.memory = t->kept};

	switch (t->kind) {
	case MOVE_UP:
		host_upload(&t->layout, t->from, true, t->to, NULL);
		return true;
	case MOVE_DOWN:
		host_download(&t->layout, t->to, true, t->from, NULL);
		return true;
	case MOVE_ACROSS:
		host_copy(&t->layout, t->from, t->to, NULL);
		return true;
	case RUN_PART:
		assert_int_equal(
		    kernel_launch_part(t->op->kernel, &t->args, &t->op->cut, t->part, &launch, cpu_convert), 0);
		return true;
	case POISON:
		memset(t->to, 0xff, t->n); /* NaN */
		return true;
	case COMPARE:
		assert_memory_equal(t->to, t->from, t->n);
		return true;
	default:
		return t->other->done >= t->n;
	}
}

static bool all_are_done(void)
{
	for (unsigned i = 0; i < STREAMS * LANES; i++)
		if (streams[i].done < streams[i].n)
			return false;
	return true;
}

/* Until this one is through; NULL: all. Those that others wait for go on at last. */
static void run_streams(const struct stream *until)
{
	while (until ? until->done < until->n : !all_are_done()) {
		struct stream *s = &streams[pick(STREAMS * LANES)];
		unsigned at_once = 1 + (unsigned)pick(8);

		while (at_once-- > 0 && s->done < s->n && do_task(&s->tasks[s->done]))
			s->done++;
	}
}

/* Of all lanes' streams of a kind. */
static uint64_t bytes_of_streams(unsigned kind)
{
	uint64_t bytes = 0;

	for (unsigned lane = 0; lane < LANES; lane++)
		bytes += streams[STREAMS * lane + kind].bytes;
	return bytes;
}

static void use_lane(struct stage *stage, unsigned lane)
{
	struct stream *of_lane = &streams[STREAMS * lane];
	struct stage_marks *marks = &lane_stage_marks[lane];
	struct mark *mark = lane_marks[lane];

	for (unsigned i = 0; i < GROWING_PARTS_MAX; i++) {
		marks->own[i] = mark++;
		marks->others[i] = mark++;
	}
	marks->taken = mark;
	stage->mover = &mover;
	stage->stream = &of_lane[COMPUTE];
	stage->up = &of_lane[UP];
	stage->down = &of_lane[DOWN];
	stage->across = &of_lane[ACROSS];
	stage->marks = marks;
	stage->mark = &follow_marks[lane];
}

#endif
