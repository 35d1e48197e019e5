/*
 * stage.h: which operands of a run get copies on a device with memory of its own, in what layout, and where the
 * copies lie in scratch memory. It moves nothing; mover.h does.
 *
 * The elements of each view of SHARED memory get a copy: a dense image on the device that keeps the order of
 * the axes in memory, so that a transposed view stays one by its strides, as do reversed and repeated axes;
 * views of the same elements share a copy. Gaps are neither uploaded nor downloaded: another job may be writing
 * them. A small view of pinned memory, or one whose only readers and writers touch each element once, is
 * `direct`: kernels use the host memory itself.
 *
 * A run of one op whose parts grow (kernel.h) is streamed, if all its copies are of pinned memory. While a part
 * is computed, what the next one needs is uploaded, and what earlier ones wrote is downloaded. Its copies are
 * never valid nor dirty as a whole.
 *
 * Operands of a run with windows (window.h) are moved likewise, op by op, and have no copies as a whole. The
 * copies only say what memory is pinned.
 */
#ifndef KOPS_PLAN_STAGE_H
#define KOPS_PLAN_STAGE_H

#include <limits.h>

#include "base/list.h"
#include "plan/layout.h"
#include "plan/planner.h"
#include "plan/window.h"

/*
 * One view in host memory, and its image on the device. The plan (stage.c) sets everything except valid and
 * dirty, which say where the newest elements are while the run is in flight (mover.c):
 *
 *     state    valid  dirty   reached by
 *     absent   no     no      stage_begin(); an op that writes other views of the same bytes
 *     clean    yes    no      an upload; the download of a dirty copy
 *     dirty    yes    yes     an op that writes the copy
 *
 * A dirty copy is downloaded before an op touches other views of its bytes, so it never becomes absent.
 *
 * Invariants, from stage_begin() on (stage_copy_is_sound(), stage_is_sound()):
 *     pinned   unchanged until the next stage_begin(), even if the memory gets pinned
 *     direct   kernels use the host memory itself; the copy stays absent
 *     offset   the image of a copy that is not direct lies in the first copies_bytes of the scratch memory
 *     dirty    an op of the run writes the copy, and no other dirty copy shares a byte with it
 */
struct stage_copy {
	const struct view *view; /* the first of the run's views that it serves */
	struct memory *memory;
	struct layout layout;
	uint64_t offset;          /* in the scratch memory */
	bool is_read, is_written; /* by ops of the run: read before the run writes it, written */
	bool pinned, direct;      /* by stage_begin() */
	bool valid, dirty;        /* the mover's */
};

struct stage {
	const struct run *run;
	uint64_t copies_bytes;    /* room of all copies that are not direct */
	uint64_t workspace_bytes; /* the most that an op's kernel wants */
	uint64_t carried_bytes;   /* the most that an op's parts hand on; behind the workspace */
	uint64_t kept_bytes;      /* what the kernel of a streamed op keeps between parts; behind these */
	bool is_settled;          /* which copies are direct was decided, by what is pinned */
	bool reads_host;          /* settled, and some copy that is read is direct */
	bool streams;             /* settled, and the run is streamed */
	bool has_windows;         /* in place of copies */
	bool exchanges;           /* begun, streams, and takes part in its run's exchange (exchange.h) */
	/* The mover's (mover.h). The driver sets them all but `downloaded` before the first transfer. */
	char *scratch; /* stage_scratch_bytes() */
	const struct stage_mover *mover;
	struct stream *stream;
	struct stream *up, *down; /* of streamed runs' transfers */
	/* Those of the slice before, if the run was paused: its transfers may still be under way there. */
	struct stream *last_up, *last_down;
	void *mark; /* for mover->follow() */
	/* Of one that exchanges. */
	struct stream *across; /* copies from the other device */
	struct stage_marks *marks;
	/* Whoever may still write host memory on the stream; the CPU reads none of it before settle(). */
	bool others_out; /* earlier runs */
	bool downloaded; /* this run: a download, or a kernel that writes it directly */
	/* The driver's: */
	bool unrecordable;  /* to record the run failed, so it is not tried again */
	struct list graphs; /* recordings of the run */
	struct device_state *graphs_of;
	unsigned n_copies;
	struct stage_copy *copies;
	unsigned (*uses)[OP_OPERANDS_MAX]; /* per op and view: index of its copy; STAGE_NONE: RESIDENT,
	                                      absent, or of an op whose outputs have no element */
	struct window (
	    *windows)[OP_OPERANDS_MAX]; /* likewise, if it has them; those of all ops lie in one place */
};

#define STAGE_NONE UINT_MAX

/* Of a streamed run that exchanges operands, for mover->mark(). */
struct stage_marks {
	void *own[GROWING_PARTS_MAX];    /* each behind what it uploads for a part, */
	void *others[GROWING_PARTS_MAX]; /* and behind the other's halves for it */
	void *taken;                     /* behind all that it takes */
};

/* Returns how many bytes an operand of pinned memory may span to be used where it is, by most kernels. */
uint64_t stage_direct_max_bytes(const struct op_args *args, const struct direct_limits *direct);

static inline const struct op_args *stage_op(const struct stage *stage, unsigned i)
{
	return &stage->run->ops[i].args;
}

/* The copy of operand v of op i; NULL: it has none. */
static inline struct stage_copy *stage_copy_of(const struct stage *stage, unsigned i, unsigned v)
{
	unsigned use = stage->uses[i][v];

	return use == STAGE_NONE ? NULL : &stage->copies[use];
}

/*
 * Lays out a run whose kernels are chosen, with a copy for every view; enqueues nothing. KOPS_E_NOMEM (host
 * memory). Free with stage_free().
 */
int stage_new(const struct run *run, struct stage **ret_stage);
/* Each time that the run begins: which copies are not needed, by what memory is pinned by now. */
void stage_begin(struct stage *stage, const struct direct_limits *direct);
void stage_free(struct stage *stage);

/* The invariants above, for asserts: of one copy; of all, but that dirty ones share no byte. */
bool stage_copy_is_sound(const struct stage_copy *copy);
bool stage_is_sound(const struct stage *stage);

/* Op i's args with the addresses that its kernel uses: in the image, in host memory, or of RESIDENT memory. */
void stage_args(const struct stage *stage, unsigned i, struct op_args *ret_args);

uint64_t stage_scratch_bytes(const struct stage *stage);

/* In the scratch memory: the kernels' workspace; where the parts of a streamed op keep something, NULL:
 * nowhere. */
static inline char *stage_workspace(const struct stage *stage)
{
	return stage->scratch + stage->copies_bytes;
}
static inline char *stage_kept(const struct stage *stage)
{
	return stage->kept_bytes > 0 ? stage_workspace(stage) + stage->workspace_bytes + stage->carried_bytes
	                             : NULL;
}

/* Whether anything is uploaded or downloaded. */
static inline bool stage_moves(const struct stage *stage)
{
	return stage->copies_bytes > 0;
}

/* Whether transfers will wait for the stream: those of memory that is not pinned do. */
bool stage_waits(const struct stage *stage);
/* Whether what the run enqueues is the same each time, and waits for nothing. */
bool stage_is_recordable(const struct stage *stage);

#endif
