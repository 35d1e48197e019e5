/*
 * gpu.h: one NVIDIA GPU as the files of its driver share it.
 *
 *     open.c          what there is; opening and closing a device
 *     preload.c       loads all kernels at the start, and what first launches of shapes need
 *     memory.c        the device that a thread asks; scratch of runs, RESIDENT memory, pinning;
 *                     other GPUs' memory
 *     facts.c         what plans go by
 *     driver.c        starting and finishing runs; the table of the driver
 *     enqueue.c       what a run puts on its stream
 *     together.c      small ops of a run that are alike, by one launch
 *     crowd.c         those of several runs
 *     graph.c         runs that come again, recorded
 *     lane.c          the streams, and what is in flight on each
 *     confined.c      streams whose launches leave multiprocessors free
 *     transfer.c      uploads and downloads of operands
 */
#ifndef KOPS_CUDA_GPU_H
#define KOPS_CUDA_GPU_H

#include <cublas_v2.h>
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdalign.h>

#include "cuda/choice.h"
#include "device/driver.h"
#include "plan/stage.h"

/* Of which the GPU tells when they were; the second and the last where there are transfers. */
enum run_moment { RUN_BEGUN, RUN_UPLOADED, RUN_COMPUTED, RUN_DOWNLOADED, RUN_MOMENTS };

/* What a run needs while it is in flight, or paused as its run->state. Kept for reuse: events are slow to make.
 */
struct out {
	struct run *run;
	struct stage *stage;             /* run->planned, once it has begun */
	struct cuda_graph *graph;        /* that was launched for it; NULL: none */
	struct crowd_graph *crowd_graph; /* that is free again after it; NULL: none */
	void *scratch; /* of its own, when it was too much for the lane's or has to outlast a pause; freed in
	                  stream order */
	cudaEvent_t ended; /* for notify() */
	bool ended_recorded;
	bool notifies; /* a host call waits for `ended` */
	/* What it is timed by: where its graph writes the moments, ns of the GPU's clock; else events; else the
	 * host's clock. */
	uint64_t *stamps; /* NULL: none */
	bool has_events;
	cudaEvent_t events[RUN_MOMENTS];
	unsigned sharers; /* of the launch that it was started by; 1: it had its own */
	uint64_t started_ns;
	const uint32_t *word; /* pinned: the GPU writes, when the run is through, */
	uint32_t number;      /* this: lane->numbered, which wraps; of a graph 1 */
	int status;
	struct list_link link; /* in lane.outs, or in device_state.spare */
};

/* The last moment that is noted of a run. */
static inline enum run_moment cuda_last_moment(const struct stage *stage)
{
	return stage_moves(stage) ? RUN_DOWNLOADED : RUN_COMPUTED;
}

/* Pinned: numbers of the last runs that are through, and that are enqueued. A cache line for each writer. */
struct lane_words {
	alignas(64) uint32_t through;  /* the GPU's */
	alignas(64) uint32_t enqueued; /* the host's; cuda_hold() waits for it */
};

/* Of runs that exchange operands with another GPU's. */
struct lane_across {
	cudaStream_t stream;      /* copies from there */
	struct stage_marks marks; /* each a cudaEvent_t */
};

struct lane {
	cudaStream_t stream;
	cudaStream_t up, down;      /* transfers of streamed runs (stage.h) */
	cudaEvent_t mark;           /* by which these three wait for each other */
	struct lane_across *across; /* NULL: none of its runs has needed it yet */
	cudaStream_t waker; /* carries the host calls of notify(), so that they do not hold up the stream */
	cublasHandle_t cublas;
	void *cublas_workspace; /* NULL: cuda_get_cublas_workspace() was not called yet */
	size_t cublas_workspace_bytes;
	cudaStream_t confined; /* for launches that leave multiprocessors to others (confined.h); NULL: none */
	cudaEvent_t turn;      /* by which it and the stream wait for each other */
	void *scratch;
	uint64_t scratch_bytes;
	uint32_t issued;   /* runs, and crowds of them */
	uint32_t numbered; /* of these: graphs tell their ends themselves, and may come 2^31 times in between */
	struct lane_words *words;
	struct list outs; /* what is in flight, in the order in which it was enqueued */
	struct lane_load load;
};

/* Pinned: where a graph writes that it is through. A cache line each. */
struct graph_word {
	alignas(64) uint32_t through;
	uint64_t stamps[RUN_MOMENTS]; /* of a graph that is timed */
	struct list_link link;        /* in graphs.free_words */
};

#define CUDA_GRAPHS_MAX 1024u

/* Runs of one small op each that are alike, held back until poll() to be started by one launch. */
struct crowd {
	struct lane *lane;
	unsigned n;
	struct out *outs[TOGETHER_MAX];
	struct op_args args[TOGETHER_MAX];
};

#define CROWD_GRAPH_OPS 16u /* in larger crowds an op's share of a launch is small */

/* Pinned: where a crowd's graph writes that it is through, and reads where its operands are. */
struct crowd_words {
	alignas(64) uint32_t through;
	alignas(64) void *addresses[CROWD_GRAPH_OPS * OP_OPERANDS_MAX];
};

/* The launch of a crowd, recorded for one lane and number of ops. */
struct crowd_graph {
	cudaGraphExec_t exec; /* NULL: none yet */
	struct crowd_words *words;
	const struct kernel *kernel;
	struct op_args args; /* of its first op */
	unsigned missed;     /* crowds of this size that it was not for, in a row */
	unsigned patience;   /* after so many of them it is recorded anew */
	bool out;
};

/* Of a device; under lock. */
struct graphs {
	pthread_mutex_t lock;
	struct list by_use; /* struct cuda_graph, the one launched last first */
	size_t nodes;       /* of all */
	struct graph_word *words;
	struct list free_words;
	cudaGraphExec_t rehearsal; /* the device thread's */
	uint64_t rehearsed_ns;
};

#define CUDA_PEERS_MAX 64

struct device_state {
	int index;
	double peer_rates[CUDA_PEERS_MAX]; /* memory.c: by index, bytes per us from there; 0: none */
	void *nvml;                        /* cuda_sensors_open() */
	uint64_t total_bytes;              /* of its memory, whoever has it */
	uint64_t memory_max_bytes;         /* that it may take; 0: what is free */
	struct device_info info;
	cudaMemPool_t pool;
	cudaStream_t memory_stream; /* alloc() and free() */
	PFN_cuStreamWriteValue32_v11070 write_value;
	struct lane_words *words; /* pinned, one for each lane */
	struct lane lanes[CUDA_LANES];
	CUgreenCtx confined; /* of their confined streams; NULL: there are none */
	struct list spare;   /* struct out */
	struct graphs graphs;
	struct firsts *firsts; /* first launches; preload.c */
	struct crowd crowd;
	struct crowd_words *crowd_words;                                  /* pinned */
	struct crowd_graph crowd_graphs[CUDA_LANES][CROWD_GRAPH_OPS + 1]; /* by number of ops, 2 and more */
	struct list held;        /* long runs that wait for cuda_unpin(), and others of their queues */
	uint64_t held_ns;        /* when the first of them came */
	struct list done;        /* runs that are back without having been in flight */
	void (*wake)(void *arg); /* the argument of notify(); NULL before the first */
	void *wake_arg;
	uint64_t queried_ns;
	char fault[WHY_BYTES]; /* "" while the context is sound */
};

/* open.c */
unsigned cuda_count(char why[WHY_BYTES]);
int cuda_open(unsigned index, const struct driver_limits *limits, struct device_state **ret_dev,
              char why[WHY_BYTES]);
void cuda_close(struct device_state *dev);
void cuda_describe(const struct device_state *dev, struct device_info *ret);

/* preload.c */
/* Loads all kernels of this module on the calling thread's device. */
void cuda_preload(void);
/* Starts the thread for first launches of a device whose lanes are open. On success it has taken over the
 * stream and the handle. KOPS_E_NOMEM, KOPS_E_SYSTEM with a sentence in why. */
int cuda_first_open(struct device_state *dev, cudaStream_t stream, cublasHandle_t cublas, char why[WHY_BYTES]);
/* Returns when the thread has ended. */
void cuda_first_close(struct device_state *dev);
/* As driver.get_ready. Leaves some out if there are many: later runs bring them again. */
void cuda_first_get_ready(struct device_state *dev, const struct run *run);

/* facts.c */
const struct kernel_list *cuda_kernels(const struct op *op);
/* Of a device whose memory_bytes and link_rate are known. */
void cuda_fill_costs(struct device_info *info);

/* memory.c */
/* For what the calling thread asks of CUDA next; instead of cudaSetDevice(). */
cudaError_t cuda_use_device(int index);
/* A device is open: its context may serve cuda_pin(). */
void cuda_memory_opened(int index);
/* Finds out->stage the scratch memory it needs, `own` or what the lane's runs share. KOPS_E_NOMEM with a
 * sentence in the run, KOPS_E_FAULT. */
int cuda_get_scratch(struct device_state *dev, struct lane *lane, struct out *out, bool own);
/* Before a lane is used. Returns false if there is no memory for it. */
bool cuda_get_cublas_workspace(struct device_state *dev, struct lane *lane);
int cuda_alloc(struct device_state *dev, uint64_t bytes, void **ret_address);
void cuda_free(struct device_state *dev, void *address);
/* Registers host memory in pieces (pieces.h), so that others can launch in between. */
int cuda_pin(void *host, uint64_t bytes, bool read_only);
/*
 * As cuda_wait_for_gap() first: otherwise CUDA would wait, and everybody who launches anything with it.
 */
void cuda_unpin(void *host, uint64_t bytes);
/* Waits up to a second until no device has a long run out. */
void cuda_wait_for_gap(void);
/* Counts long runs in flight on any device: by 1 or -1. */
void cuda_long_out_add(int n);
/* Returns true if a device should not start a long run now, which it could have started at since_ns. */
bool cuda_holds_long(uint64_t since_ns);
/* A device is open: finds out which others it exchanges memory with, and lets them read what its runs have. */
void cuda_peers_opened(struct device_state *dev);
void cuda_peers_closing(struct device_state *dev);
/* As driver.peer_rate. */
double cuda_peer_rate(const struct device_state *dev, const struct device_state *from);
/* The fastest of some copies of so many bytes, us; 0: CUDA refuses. */
double cuda_copy_us(void *to, const void *from, uint64_t bytes, cudaStream_t stream);

#endif
