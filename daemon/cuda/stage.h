/*
 * stage.h: how the host memory of a run gets to the GPU and back.
 *
 * The elements of each view of SHARED memory get a copy: a dense image on the device that keeps the order of
 * the axes in memory, so that a transposed view stays one by its strides, as do reversed and repeated axes;
 * views of the same elements share a copy. Gaps are neither uploaded nor downloaded: another job may be writing
 * them. A small view of pinned memory, or one whose only readers and writers touch each element once, is
 * `direct`: kernels use the host memory itself.
 *
 * Within a run: a copy is uploaded when an op first reads it; valid while no op has written other views of
 * the same bytes; dirty from its op's write until it is downloaded. No two dirty copies share a byte.
 */
#ifndef KOPS_CUDA_STAGE_H
#define KOPS_CUDA_STAGE_H

#include <cuda_runtime_api.h>

#include "base/list.h"
#include "cuda/layout.h"
#include "device/backend.h"

/*
 * Invariants, from cuda_stage_begin() on:
 *     direct     there is no image: neither valid nor dirty
 *     dirty      the image is valid, some op has written it, and no other dirty copy shares a byte with it
 *     pinned     as it was at cuda_stage_begin(), however often others look
 */
struct cuda_copy {
	const struct view *view; /* the first of the run's views that it serves */
	struct memory *memory;
	struct cuda_layout layout;
	uint64_t offset;          /* in the scratch memory */
	bool is_read, is_written; /* by ops of the run: read before the run writes it, written */
	bool pinned, direct, valid, dirty;
};

struct cuda_stage {
	const struct run *run;
	uint64_t copies_bytes;    /* room of all copies that are not direct */
	uint64_t workspace_bytes; /* the most that an op's kernel wants */
	uint64_t carried_bytes;   /* the most that an op's parts hand on; behind the workspace */
	char *scratch;            /* cuda_stage_scratch_bytes(); the caller's, set before the first transfer */
	cudaStream_t stream;      /* likewise */
	/* Whoever may still write host memory on the stream; the CPU reads none of it before settle(). */
	bool others_out; /* earlier runs; likewise the caller's */
	bool downloaded; /* this run: a download, or a kernel that writes it directly */
	/* Of the layout: */
	bool is_settled;    /* which copies are direct was decided, by what is pinned */
	bool reads_host;    /* settled, and some copy that is read is direct */
	bool unrecordable;  /* recording a graph failed, so it is not tried again */
	struct list graphs; /* of the run; graph.c's */
	struct backend_device *graphs_of;
	unsigned n_copies;
	struct cuda_copy *copies;
	unsigned (*uses)[OP_OPERANDS_MAX]; /* per op and view: index of its copy; CUDA_STAGE_NONE: RESIDENT,
	                                      absent, or of an op whose outputs have no element */
};

#define CUDA_STAGE_NONE UINT_MAX

/*
 * Pinned views that span no more bytes are direct if their kernels can take them. `streaming` is for ops with
 * little arithmetic per byte, whose kernels read each element about once; `reusing` for the others.
 */
struct cuda_direct {
	uint64_t streaming_max_bytes, reusing_max_bytes;
};

/*
 * Lays out a run whose kernels are chosen, with a copy for every view; enqueues nothing. KOPS_E_NOMEM (host
 * memory). Free with cuda_stage_free().
 */
int cuda_stage_new(const struct run *run, struct cuda_stage **ret_stage);
/* Each time that the run begins: which copies are not needed, by what memory is pinned by now. */
void cuda_stage_begin(struct cuda_stage *stage, const struct cuda_direct *direct);
void cuda_stage_free(struct cuda_stage *stage);

uint64_t cuda_stage_scratch_bytes(const struct cuda_stage *stage);

/* Whether anything is uploaded or downloaded. */
static inline bool cuda_stage_moves(const struct cuda_stage *stage)
{
	return stage->copies_bytes > 0;
}

/* Whether transfers will wait for the stream: those of memory that is not pinned do. */
bool cuda_stage_waits(const struct cuda_stage *stage);
/* Whether what the run enqueues is the same each time, and waits for nothing. */
bool cuda_stage_is_recordable(const struct cuda_stage *stage);

/*
 * The rest enqueues on stage->stream. 0, KOPS_E_NOMEM or KOPS_E_FAULT.
 *
 * upload_all: copies whose first use is a read of what no op of this run wrote before. begin_op: what op i
 * still lacks, and its args with device addresses. end_op: notes what it has written. download_all: every
 * written copy.
 */
int cuda_stage_upload_all(struct cuda_stage *stage);
int cuda_stage_begin_op(struct cuda_stage *stage, unsigned i, struct op_args *ret_args);
void cuda_stage_end_op(struct cuda_stage *stage, unsigned i);
int cuda_stage_download_all(struct cuda_stage *stage);

#endif
