#include "cuda/transfer.h"

#include <stdlib.h>
#include <string.h>

#include "common/cuda.h"
#include "copy/pieces.h"

#define CALLS_MAX     16         /* DMA copies per transfer; each costs some 2 µs of this thread */
#define PITCH_MAX     INT32_MAX  /* bytes; cudaMemcpy2D refuses more */
#define ROW_BYTES_MIN 256        /* below, a kernel on mapped memory moves rows faster than the copy engine */
#define BOUNCE_BYTES  (4u << 20) /* host memory through which the CPU gathers and scatters */

/* A transfer as pitched copies: `calls` of `height` rows each. */
struct pitched {
	uint64_t row_bytes, height, host_pitch, image_pitch, calls;
	uint32_t outer; /* first axis that calls are looped over */
};

static struct pitched pitched_of(const struct layout *l)
{
	uint32_t next = l->rank > 0 && l->host_stride[0] == 1 && l->image_stride[0] == 1;
	struct pitched p = {
	    .row_bytes = next ? l->extent[0] * l->element : l->element, .height = 1, .calls = 1};

	p.host_pitch = p.image_pitch = p.row_bytes;
	if (next < l->rank) {
		p.height = l->extent[next];
		p.host_pitch = l->host_stride[next] * l->element;
		p.image_pitch = l->image_stride[next] * l->element;
	}
	p.outer = next + 1;
	for (uint32_t d = p.outer; d < l->rank; d++)
		p.calls *= l->extent[d];
	return p;
}

static bool suits_pitch(const struct pitched *p, uint64_t pitch)
{
	return pitch >= p->row_bytes && (p->height == 1 || pitch <= PITCH_MAX);
}

static bool suits_copy_engine(const struct pitched *p)
{
	if (p->calls > CALLS_MAX || !suits_pitch(p, p->host_pitch) || !suits_pitch(p, p->image_pitch))
		return false;
	return p->row_bytes >= ROW_BYTES_MIN || p->height * p->calls <= CALLS_MAX;
}

/*
 * Memory that is not pinned yet may be registered by another thread meanwhile, so its copies end at edges too.
 * kind: cudaMemcpyDefault if `host` is memory of a GPU, which is copied to the image.
 */
static int by_copy_engine(const struct layout *l, const struct pitched *p, char *host, char *image,
                          enum cudaMemcpyKind kind, cudaStream_t stream)
{
	bool up = kind != cudaMemcpyDeviceToHost;

	for (uint64_t call = 0; call < p->calls; call++) {
		uint64_t left = call, host_at = 0, image_at = 0;

		for (uint32_t d = p->outer; d < l->rank; d++) {
			host_at += left % l->extent[d] * l->host_stride[d];
			image_at += left % l->extent[d] * l->image_stride[d];
			left /= l->extent[d];
		}
		char *outside = host + host_at * l->element, *inside = image + image_at * l->element;

		cuda_copy_rows(
		    &(struct rows){
		        .to = (uintptr_t)(up ? inside : outside),
		        .from = (uintptr_t)(up ? outside : inside),
		        .bytes = p->row_bytes,
		        .height = p->height,
		        .to_pitch = up ? p->image_pitch : p->host_pitch,
		        .from_pitch = up ? p->host_pitch : p->image_pitch,
		        .to_pieces = !up,
		        .from_pieces = kind == cudaMemcpyHostToDevice,
		    },
		    kind, stream);
	}
	return cuda_launch_status();
}

static int by_kernel(const struct layout *l, char *host, char *image, bool up, cudaStream_t stream)
{
	struct view outside = {.data = host, .dtype = l->dtype, .rank = l->rank}, inside;

	inside = outside;
	inside.data = image;
	for (uint32_t d = 0; d < l->rank; d++) {
		uint32_t axis = l->rank - 1 - d;

		outside.shape[axis] = inside.shape[axis] = l->extent[d];
		outside.strides[axis] = (int64_t)l->host_stride[d];
		inside.strides[axis] = (int64_t)l->image_stride[d];
	}
	return up ? cuda_copy_strided(&outside, &inside, stream) : cuda_copy_strided(&inside, &outside, stream);
}

static void move_elements(char *to, uint64_t to_step, const char *from, uint64_t from_step, uint64_t n,
                          uint32_t element)
{
	for (uint64_t i = 0; i < n; i++, to += to_step, from += from_step) {
		switch (element) { /* sizes that the compiler knows need no call */
		case 2:
			memcpy(to, from, 2);
			break;
		case 4:
			memcpy(to, from, 4);
			break;
		case 8:
			memcpy(to, from, 8);
			break;
		case 16:
			memcpy(to, from, 16);
			break;
		default:
			memcpy(to, from, element);
		}
	}
}

/* Moves elements [first, first + n) of the image between host memory and dense. */
static void move_on_cpu(const struct layout *l, char *host, char *dense, uint64_t first, uint64_t n, bool up)
{
	uint64_t host_step = l->host_stride[0] * l->element;

	while (n > 0) {
		uint64_t rest = first / l->extent[0], at = first % l->extent[0], run = l->extent[0] - at;
		char *outside = host + at * host_step;

		if (run > n)
			run = n;
		for (uint32_t d = 1; d < l->rank; d++) {
			outside += rest % l->extent[d] * l->host_stride[d] * l->element;
			rest /= l->extent[d];
		}
		if (up)
			move_elements(dense, l->element, outside, host_step, run, l->element);
		else
			move_elements(outside, host_step, dense, l->element, run, l->element);
		dense += run * l->element;
		first += run;
		n -= run;
	}
}

static int by_cpu(const struct layout *l, char *host, char *image, bool up, cudaStream_t stream)
{
	uint64_t chunk = l->bytes < BOUNCE_BYTES ? l->bytes : BOUNCE_BYTES;
	char *bounce = malloc(chunk);
	cudaError_t error = cudaSuccess;

	if (!bounce)
		return KOPS_E_NOMEM;
	for (uint64_t done = 0; done < l->bytes && error == cudaSuccess; done += chunk) {
		if (chunk > l->bytes - done)
			chunk = l->bytes - done;
		if (up)
			move_on_cpu(l, host, bounce, done / l->element, chunk / l->element, true);
		error = cudaMemcpyAsync(up ? image + done : bounce, up ? bounce : image + done, chunk,
		                        up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, stream);
		if (error == cudaSuccess)
			error = cudaStreamSynchronize(stream);
		if (!up && error == cudaSuccess)
			move_on_cpu(l, host, bounce, done / l->element, chunk / l->element, false);
	}
	free(bounce);
	return error == cudaSuccess ? 0 : KOPS_E_FAULT;
}

static int transfer(const struct layout *l, char *host, bool pinned, char *image, bool up, cudaStream_t stream)
{
	struct pitched p = pitched_of(l);

	if (l->bytes == 0)
		return 0;
	host += l->lowest;
	if (suits_copy_engine(&p))
		return by_copy_engine(l, &p, host, image, up ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost,
		                      stream);
	if (pinned)
		return by_kernel(l, host, image, up, stream);
	return by_cpu(l, host, image, up, stream);
}

static int enqueue_upload(const struct layout *layout, const void *host, bool pinned, void *image,
                          struct stream *stream)
{
	return transfer(layout, (char *)(uintptr_t)host, pinned, image, true, (cudaStream_t)stream);
}

static int enqueue_download(const struct layout *layout, void *host, bool pinned, const void *image,
                            struct stream *stream)
{
	return transfer(layout, host, pinned, (char *)(uintptr_t)image, false, (cudaStream_t)stream);
}

/* As from host memory that lies like the image. */
static int enqueue_copy(const struct layout *layout, const void *from, void *to, struct stream *stream)
{
	struct layout there = *layout;
	struct pitched p;

	if (layout->bytes == 0)
		return 0;
	memcpy(there.host_stride, layout->image_stride, sizeof there.host_stride);
	p = pitched_of(&there);
	if (suits_copy_engine(&p))
		return by_copy_engine(&there, &p, (char *)(uintptr_t)from, to, cudaMemcpyDefault,
		                      (cudaStream_t)stream);
	return by_kernel(&there, (char *)(uintptr_t)from, to, true, (cudaStream_t)stream);
}

static int settle(struct stream *stream)
{
	return cudaStreamSynchronize((cudaStream_t)stream) == cudaSuccess ? 0 : KOPS_E_FAULT;
}

static int set_mark(struct stream *before, void *mark)
{
	return cudaEventRecord((cudaEvent_t)mark, (cudaStream_t)before) == cudaSuccess ? 0 : KOPS_E_FAULT;
}

static int await_mark(struct stream *after, void *mark)
{
	return cudaStreamWaitEvent((cudaStream_t)after, (cudaEvent_t)mark, 0) == cudaSuccess ? 0 : KOPS_E_FAULT;
}

static int follow(struct stream *before, struct stream *after, void *event)
{
	int rc = set_mark(before, event);

	return rc < 0 ? rc : await_mark(after, event);
}

const struct stage_mover cuda_mover = {
    .upload = enqueue_upload,
    .download = enqueue_download,
    .settle = settle,
    .follow = follow,
    .mark = set_mark,
    .await = await_mark,
    .copy = enqueue_copy,
};
