#include "cuda/first.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/threads.h"
#include "cuda/lane.h"
#include "plan/layout.h"

#define WAITING_MAX 32u
#define ALIGNED     256u

struct first_launch {
	const struct kernel *kernel;
	struct op_args args;
};

struct firsts {
	pthread_t thread;
	cublasHandle_t cublas;
	cudaStream_t stream;
	/* A lane's: nothing is computed. */
	void *workspace;
	size_t workspace_bytes;
	int device;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	/* Under lock. */
	bool closing;
	unsigned n;
	struct first_launch waiting[WAITING_MAX]; /* the oldest first */
};

/* ---- On the thread ---- */

static void record(const struct firsts *f, const struct first_launch *first)
{
	struct launch launch = {
	    .workspace = f->workspace,
	    .workspace_bytes = f->workspace_bytes,
	    .stream = (struct stream *)f->stream,
	    .library = (struct library *)f->cublas,
	};
	cudaGraph_t recorded = NULL;

	if (cudaStreamBeginCapture(f->stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess) {
		first->kernel->launch(&first->args, &launch);
		cudaStreamEndCapture(f->stream, &recorded);
	}
	if (recorded)
		cudaGraphDestroy(recorded);
	cudaGetLastError();
}

/* Returns false to close. The oldest stays in the list until drop_oldest(), so that none is noted twice. */
static bool await_oldest(struct firsts *f, struct first_launch *ret)
{
	bool open;

	pthread_mutex_lock(&f->lock);
	while (f->n == 0 && !f->closing)
		pthread_cond_wait(&f->wake, &f->lock);
	open = !f->closing;
	if (open)
		*ret = f->waiting[0];
	pthread_mutex_unlock(&f->lock);
	return open;
}

static void drop_oldest(struct firsts *f)
{
	pthread_mutex_lock(&f->lock);
	memmove(f->waiting, f->waiting + 1, --f->n * sizeof f->waiting[0]);
	pthread_mutex_unlock(&f->lock);
}

static void *thread_main(void *arg)
{
	struct firsts *f = arg;
	struct first_launch first;

	cuda_use_device(f->device);
	while (await_oldest(f, &first)) {
		if (first.kernel->first_ns(&first.args) > 0) { /* no run has launched it meanwhile */
			cuda_wait_for_gap();
			record(f, &first);
		}
		drop_oldest(f);
	}
	return NULL;
}

/* ---- On others ---- */

static int start_thread(struct firsts *f, char why[WHY_BYTES])
{
	int rc;

	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->wake, NULL);
	rc = threads_create(&f->thread, NULL, thread_main, f);
	if (rc == 0)
		return 0;
	snprintf(
	    why, WHY_BYTES,
	    "cannot start a thread: %s; raise the limits on processes (TasksMax, ulimit -u) and address space "
	    "(ulimit -v)",
	    strerror(rc));
	pthread_cond_destroy(&f->wake);
	pthread_mutex_destroy(&f->lock);
	return KOPS_E_SYSTEM;
}

static void free_firsts(struct firsts *f)
{
	if (f->cublas)
		cublasDestroy(f->cublas);
	if (f->stream)
		cudaStreamDestroy(f->stream);
	free(f);
}

int cuda_first_open(struct device_state *dev, char why[WHY_BYTES])
{
	struct firsts *f = calloc(1, sizeof *f);
	int rc;

	if (!f) {
		snprintf(why, WHY_BYTES, "out of memory");
		return KOPS_E_NOMEM;
	}
	f->device = dev->index;
	f->workspace = dev->lanes[0].cublas_workspace;
	f->workspace_bytes = dev->lanes[0].cublas_workspace_bytes;
	if (cudaStreamCreateWithFlags(&f->stream, cudaStreamNonBlocking) != cudaSuccess) {
		snprintf(why, WHY_BYTES, "cannot create a CUDA stream");
		rc = KOPS_E_FAULT;
	} else {
		rc = cuda_cublas_open(&f->cublas, f->stream, f->workspace, f->workspace_bytes, why);
	}
	if (rc == 0)
		rc = start_thread(f, why);
	if (rc < 0)
		free_firsts(f);
	else
		dev->firsts = f;
	return rc;
}

void cuda_first_close(struct device_state *dev)
{
	struct firsts *f = dev->firsts;

	if (!f)
		return;
	pthread_mutex_lock(&f->lock);
	f->closing = true;
	pthread_cond_signal(&f->wake);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	pthread_cond_destroy(&f->wake);
	pthread_mutex_destroy(&f->lock);
	free_firsts(f);
	dev->firsts = NULL;
}

/* Nothing is read or written there: only where it lies within ALIGNED bytes matters. */
static void place(struct view *v, void *anywhere)
{
	if (view_is_absent(v))
		return;
	if (view_is_in_host_memory(v)) { /* it gets a copy on the device */
		struct layout layout;

		layout_of(v, &layout);
		memcpy(v->strides, layout.strides, sizeof layout.strides);
	}
	v->offset %= ALIGNED;
	v->data = (char *)anywhere + v->offset;
	v->space = NULL; /* the thread may outlast it */
}

static bool is_waiting(const struct firsts *f, const struct first_launch *first)
{
	for (unsigned i = 0; i < f->n; i++)
		if (f->waiting[i].kernel == first->kernel && op_args_alike(&f->waiting[i].args, &first->args))
			return true;
	return false;
}

static void note(struct firsts *f, const struct run_op *op)
{
	struct first_launch first = {op->first_launch, op->args};

	for (unsigned v = 0; v < first.args.op->n_operands; v++)
		place(&first.args.views[v], f->workspace);
	if (!is_waiting(f, &first))
		f->waiting[f->n++] = first;
}

void cuda_first_get_ready(struct device_state *dev, const struct run *run)
{
	struct firsts *f = dev->firsts;
	unsigned before;

	pthread_mutex_lock(&f->lock);
	before = f->n;
	for (unsigned i = 0; i < run->n_ops && f->n < WAITING_MAX; i++)
		if (run->ops[i].first_launch)
			note(f, &run->ops[i]);
	if (before == 0 && f->n > 0)
		pthread_cond_signal(&f->wake);
	pthread_mutex_unlock(&f->lock);
}
