/*
 * stage.h: how the host memory of a run gets to a device with memory of its own, and back.
 *
 * The elements of each view of SHARED memory get a copy: a dense image on the device that keeps the order of
 * the axes in memory, so that a transposed view stays one by its strides, as do reversed and repeated axes;
 * views of the same elements share a copy. Gaps are neither uploaded nor downloaded: another job may be writing
 * them. A small view of pinned memory, or one whose only readers and writers touch each element once, is
 * `direct`: kernels use the host memory itself.
 *
 * A run of one op whose parts grow (kernel.h) is streamed, if all its copies are of pinned memory: what a part
 * needs is uploaded, and what it wrote downloaded, on streams of their own, while other parts are computed.
 *
 * Within another run: a copy is uploaded when an op first reads it; valid while no op has written other views
 * of the same bytes; dirty from its op's write until it is downloaded. No two dirty copies share a byte.
 */
#ifndef KOPS_PLAN_STAGE_H
#define KOPS_PLAN_STAGE_H

#include "base/list.h"
#include "plan/layout.h"
#include "plan/planner.h"

/*
 * How a driver moves elements. Enqueued on the stream; of host memory that is not pinned, upload and download
 * return after the elements were read or written, and their caller has called settle() where anything may still
 * write them. 0, KOPS_E_NOMEM or KOPS_E_FAULT. host: the memory's first byte.
 */
struct stage_mover {
	int (*upload)(const struct layout *layout, const void *host, bool pinned, void *image,
	              struct stream *stream);
	int (*download)(const struct layout *layout, void *host, bool pinned, const void *image,
	                struct stream *stream);
	int (*settle)(struct stream *stream); /* blocks until all that is enqueued is through */
	/* What is enqueued on `after` from here on waits for all that is on `before` by now. mark: the stage's.
	 */
	int (*follow)(struct stream *before, struct stream *after, void *mark);
};

/*
 * Invariants, from stage_begin() on:
 *     direct     there is no image: neither valid nor dirty
 *     dirty      the image is valid, some op has written it, and no other dirty copy shares a byte with it
 *     pinned     as it was at stage_begin(), however often others look
 */
struct stage_copy {
	const struct view *view; /* the first of the run's views that it serves */
	struct memory *memory;
	struct layout layout;
	uint64_t offset;          /* in the scratch memory */
	bool is_read, is_written; /* by ops of the run: read before the run writes it, written */
	bool pinned, direct, valid, dirty;
};

struct stage {
	const struct run *run;
	uint64_t copies_bytes;    /* room of all copies that are not direct */
	uint64_t workspace_bytes; /* the most that an op's kernel wants */
	uint64_t carried_bytes;   /* the most that an op's parts hand on; behind the workspace */
	char *scratch;            /* stage_scratch_bytes(); the caller's, set before the first transfer */
	const struct stage_mover *mover; /* likewise, as is the rest up to others_out */
	struct stream *stream;
	struct stream *up, *down; /* of streamed runs' transfers */
	void *mark;               /* the mover's own, for follow() */
	/* Whoever may still write host memory on the stream; the CPU reads none of it before settle(). */
	bool others_out; /* earlier runs; likewise the caller's */
	bool downloaded; /* this run: a download, or a kernel that writes it directly */
	/* Of the layout: */
	bool is_settled; /* which copies are direct was decided, by what is pinned */
	bool reads_host; /* settled, and some copy that is read is direct */
	bool streams;    /* settled, and the run is streamed */
	/* The driver's: */
	bool unrecordable;  /* to record the run failed, so it is not tried again */
	struct list graphs; /* recordings of the run */
	struct device_state *graphs_of;
	unsigned n_copies;
	struct stage_copy *copies;
	unsigned (*uses)[OP_OPERANDS_MAX]; /* per op and view: index of its copy; STAGE_NONE: RESIDENT,
	                                      absent, or of an op whose outputs have no element */
};

#define STAGE_NONE UINT_MAX

/* Returns how many bytes an operand of pinned memory may span to be used where it is, by most kernels. */
uint64_t stage_direct_max_bytes(const struct op_args *args, const struct direct_limits *direct);

/*
 * Lays out a run whose kernels are chosen, with a copy for every view; enqueues nothing. KOPS_E_NOMEM (host
 * memory). Free with stage_free().
 */
int stage_new(const struct run *run, struct stage **ret_stage);
/* Each time that the run begins: which copies are not needed, by what memory is pinned by now. */
void stage_begin(struct stage *stage, const struct direct_limits *direct);
void stage_free(struct stage *stage);

uint64_t stage_scratch_bytes(const struct stage *stage);

/* Whether anything is uploaded or downloaded. */
static inline bool stage_moves(const struct stage *stage)
{
	return stage->copies_bytes > 0;
}

/* Whether transfers will wait for the stream: those of memory that is not pinned do. */
bool stage_waits(const struct stage *stage);
/* Whether what the run enqueues is the same each time, and waits for nothing. */
bool stage_is_recordable(const struct stage *stage);

/*
 * The rest enqueues on stage->stream. 0, KOPS_E_NOMEM or KOPS_E_FAULT.
 *
 * begin_slice: before the first call of a slice. upload_all: copies whose first use is a read of what no op of
 * this run wrote before; of a streamed run what its first part needs. begin_part: what a part of op i still
 * lacks, and the op's args with device addresses. end_part: notes what it has written, which a streamed run
 * downloads. download_all: every written copy that is not downloaded yet. end_slice: the stream waits for
 * transfers; after a failure too.
 */
int stage_begin_slice(struct stage *stage);
int stage_upload_all(struct stage *stage);
int stage_begin_part(struct stage *stage, unsigned i, uint32_t part, struct op_args *ret_args);
int stage_end_part(struct stage *stage, unsigned i, uint32_t part);
int stage_download_all(struct stage *stage);
int stage_end_slice(struct stage *stage);

#endif
