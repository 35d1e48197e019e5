/* memory.c: device memory of runs and buffers, and host memory for DMA. */
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "copy/pieces.h"
#include "cuda/gpu.h"

/* What a stream keeps between runs at most: a share of the device's memory, 1.2 GiB of an H100's. */
#define SCRATCH_KEPT_SHARE 64
#define SCRATCH_MIN        (1ull << 20)

#define PIECE_PAUSE_NS 30000u /* between pieces of memory that is registered */

/* The device whose context cuda_pin() uses; -1 before the first is open. */
static int pin_device = -1;

void cuda_memory_opened(int index)
{
	int unset = -1;

	__atomic_compare_exchange_n(&pin_device, &unset, index, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* ---- The device that a thread asks ---- */

/* CUDA takes 0.1 us to be told again, and 1 to 2 when the last run took milliseconds. */
static _Thread_local int device_in_use = -1;

cudaError_t cuda_use_device(int index)
{
	cudaError_t error;

	if (device_in_use == index)
		return cudaSuccess;
	error = cudaSetDevice(index);
	if (error == cudaSuccess)
		device_in_use = index;
	return error;
}

/* ---- Scratch memory ---- */

/* Gives back what idle lanes and the pool keep. Waits for the device. */
static void release_kept(struct device_state *dev)
{
	for (unsigned i = 0; i < CUDA_LANES; i++) {
		struct lane *lane = &dev->lanes[i];

		if (lane->scratch && lane->load.out == 0) {
			cudaFreeAsync(lane->scratch, lane->stream);
			lane->scratch = NULL;
			lane->scratch_bytes = 0;
		}
		cudaStreamSynchronize(lane->stream);
	}
	cudaStreamSynchronize(dev->memory_stream);
	cudaMemPoolTrimTo(dev->pool, 0);
}

static cudaError_t pool_alloc(struct device_state *dev, uint64_t bytes, cudaStream_t stream, void **ret)
{
	cudaError_t error = cudaMallocFromPoolAsync(ret, bytes, dev->pool, stream);

	if (error != cudaErrorMemoryAllocation)
		return error;
	cudaGetLastError();
	release_kept(dev);
	return cudaMallocFromPoolAsync(ret, bytes, dev->pool, stream);
}

static uint64_t scratch_kept_max(const struct device_state *dev)
{
	return dev->info.memory_bytes / SCRATCH_KEPT_SHARE;
}

/* Runs of a lane follow each other, so they may share its scratch memory. */
static cudaError_t grow_lane_scratch(struct device_state *dev, struct lane *lane, uint64_t bytes)
{
	uint64_t room = SCRATCH_MIN;
	void *scratch;
	cudaError_t error;

	while (room < bytes)
		room *= 2;
	if (room > scratch_kept_max(dev))
		room = bytes;
	error = pool_alloc(dev, room, lane->stream, &scratch);
	if (error != cudaSuccess)
		return error;
	if (lane->scratch)
		cudaFreeAsync(lane->scratch, lane->stream);
	lane->scratch = scratch;
	lane->scratch_bytes = room;
	return cudaSuccess;
}

int cuda_get_scratch(struct device_state *dev, struct lane *lane, struct out *out, bool own)
{
	uint64_t bytes = stage_scratch_bytes(out->stage);
	cudaError_t error = cudaSuccess;

	if (bytes > scratch_kept_max(dev) || (own && bytes > 0))
		error = pool_alloc(dev, bytes, lane->stream, &out->scratch);
	else if (bytes > lane->scratch_bytes)
		error = grow_lane_scratch(dev, lane, bytes);
	out->stage->scratch = out->scratch ? out->scratch : lane->scratch;
	if (error == cudaSuccess)
		return 0;
	if (error != cudaErrorMemoryAllocation)
		return KOPS_E_FAULT;
	cudaGetLastError();
	snprintf(out->run->error, WHY_BYTES,
	         "out of device memory: the job needs %llu MiB more; free RESIDENT buffers, or submit it again "
	         "later",
	         (unsigned long long)(bytes >> 20) + 1);
	return KOPS_E_NOMEM;
}

bool cuda_get_cublas_workspace(struct device_state *dev, struct lane *lane)
{
	size_t bytes = lane->cublas_workspace_bytes;

	if (lane->cublas_workspace)
		return true;
	if (cudaMallocFromPoolAsync(&lane->cublas_workspace, bytes, dev->pool, lane->stream) != cudaSuccess) {
		lane->cublas_workspace = NULL;
		cudaGetLastError();
		return false;
	}
	return cublasSetWorkspace(lane->cublas, lane->cublas_workspace, bytes) == CUBLAS_STATUS_SUCCESS;
}

/* ---- RESIDENT and host memory ---- */

int cuda_alloc(struct device_state *dev, uint64_t bytes, void **ret_address)
{
	void *address = NULL;
	cudaError_t error;

	if (dev->fault[0])
		return KOPS_E_FAULT;
	cuda_use_device(dev->index);
	error = pool_alloc(dev, bytes, dev->memory_stream, &address);
	if (error != cudaSuccess) {
		cudaGetLastError();
		return error == cudaErrorMemoryAllocation ? KOPS_E_NOMEM : KOPS_E_FAULT;
	}
	error = cudaMemsetAsync(address, 0, bytes, dev->memory_stream);
	if (error == cudaSuccess)
		error = cudaStreamSynchronize(dev->memory_stream);
	if (error != cudaSuccess) {
		cudaFreeAsync(address, dev->memory_stream);
		cudaGetLastError();
		return KOPS_E_FAULT;
	}
	*ret_address = address;
	return 0;
}

/* No run uses it any more, so nothing has to be waited for. */
void cuda_free(struct device_state *dev, void *address)
{
	if (!address)
		return;
	cuda_use_device(dev->index);
	cudaFreeAsync(address, dev->memory_stream);
	cudaGetLastError();
}

/* Without a current device the runtime would make a context on device 0, which may not be ours to use. */
static bool enter_any_context(void)
{
	int index = __atomic_load_n(&pin_device, __ATOMIC_ACQUIRE);

	return index >= 0 && cuda_use_device(index) == cudaSuccess;
}

/* One piece at a time of everybody's memory, and a pause behind it in which others launch. */
static pthread_mutex_t piece_lock = PTHREAD_MUTEX_INITIALIZER;

static void let_others_launch(void)
{
	const struct timespec pause = {.tv_nsec = PIECE_PAUSE_NS};

	nanosleep(&pause, NULL);
}

/* Returns the bytes of the piece that begins at `at`. */
static uint64_t piece_at(const char *host, uint64_t at, uint64_t bytes)
{
	uint64_t left = piece_left((uintptr_t)(host + at));

	return bytes - at < left ? bytes - at : left;
}

static void unpin_pieces(char *host, uint64_t bytes)
{
	for (uint64_t at = 0; at < bytes; at += piece_at(host, at, bytes)) {
		pthread_mutex_lock(&piece_lock);
		if (at > 0)
			let_others_launch();
		cudaHostUnregister(host + at);
		pthread_mutex_unlock(&piece_lock);
	}
	cudaGetLastError();
}

int cuda_pin(void *host, uint64_t bytes, bool read_only)
{
	unsigned flags =
	    cudaHostRegisterPortable | cudaHostRegisterMapped | (read_only ? cudaHostRegisterReadOnly : 0);
	cudaError_t error = cudaSuccess;
	uint64_t at = 0;

	if (!enter_any_context())
		return KOPS_E_DEVICE;
	while (at < bytes) {
		pthread_mutex_lock(&piece_lock);
		if (at > 0)
			let_others_launch();
		error = cudaHostRegister((char *)host + at, piece_at(host, at, bytes), flags);
		pthread_mutex_unlock(&piece_lock);
		if (error != cudaSuccess)
			break;
		at += piece_at(host, at, bytes);
	}
	if (error == cudaSuccess)
		return 0;
	unpin_pieces(host, at);
	return error == cudaErrorMemoryAllocation ? KOPS_E_NOMEM : KOPS_E_SYSTEM;
}

/* ---- A gap between long runs, to unpin memory in ---- */

#define GAP_WAIT_NS 1000000000u
#define GAP_LOOK_NS 50000u

static struct cuda_gap gap; /* each member atomic */

void cuda_long_out_add(int n)
{
	if (__atomic_add_fetch(&gap.long_out, (unsigned)n, __ATOMIC_ACQ_REL) == 0)
		__atomic_store_n(&gap.drained_ns, clock_ns(), __ATOMIC_RELEASE);
}

bool cuda_holds_long(uint64_t since_ns)
{
	struct cuda_gap now = {
	    .unpinning = __atomic_load_n(&gap.unpinning, __ATOMIC_ACQUIRE),
	    .long_out = __atomic_load_n(&gap.long_out, __ATOMIC_ACQUIRE),
	    .drained_ns = __atomic_load_n(&gap.drained_ns, __ATOMIC_ACQUIRE),
	};

	return cuda_gap_holds(&now, since_ns, clock_ns());
}

void cuda_wait_for_gap(void)
{
	const struct timespec look = {.tv_nsec = GAP_LOOK_NS};
	uint64_t until = clock_ns() + GAP_WAIT_NS;

	while (__atomic_load_n(&gap.long_out, __ATOMIC_ACQUIRE) && clock_ns() < until)
		nanosleep(&look, NULL);
}

void cuda_unpin(void *host, uint64_t bytes)
{
	if (!enter_any_context())
		return;
	__atomic_add_fetch(&gap.unpinning, 1, __ATOMIC_ACQ_REL);
	cuda_wait_for_gap();
	unpin_pieces(host, bytes);
	__atomic_sub_fetch(&gap.unpinning, 1, __ATOMIC_ACQ_REL);
}

/* ---- Other GPUs' memory ---- */

/*
 * Which open GPUs copy from each other's memory, and how fast. That is measured, once for each pair: NVLink
 * moves seven times as much as PCIe (H200), and between GPUs without it a copy may go through the host.
 */
#define PEER_BYTES  (32u << 20) /* of a copy that is timed: 0.1 ms by NVLink */
#define COPY_TRIALS 4           /* the first wakes the link */

static pthread_mutex_t peers_lock = PTHREAD_MUTEX_INITIALIZER;
static struct device_state *opened[CUDA_PEERS_MAX]; /* under peers_lock */

static double timed_us(cudaEvent_t begun, cudaEvent_t ended, void *to, const void *from, uint64_t bytes,
                       cudaStream_t stream)
{
	float ms, least = 0;

	for (unsigned i = 0; i < COPY_TRIALS; i++) {
		cudaEventRecord(begun, stream);
		cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
		cudaEventRecord(ended, stream);
		if (cudaEventSynchronize(ended) != cudaSuccess ||
		    cudaEventElapsedTime(&ms, begun, ended) != cudaSuccess)
			return 0;
		least = i == 0 || ms < least ? ms : least;
	}
	return (double)least * 1e3;
}

double cuda_copy_us(void *to, const void *from, uint64_t bytes, cudaStream_t stream)
{
	cudaEvent_t begun = NULL, ended = NULL;
	double us = 0;

	if (cudaEventCreate(&begun) == cudaSuccess && cudaEventCreate(&ended) == cudaSuccess)
		us = timed_us(begun, ended, to, from, bytes, stream);
	if (begun)
		cudaEventDestroy(begun);
	if (ended)
		cudaEventDestroy(ended);
	cudaGetLastError();
	return us;
}

static void *probe_of(const struct device_state *dev)
{
	void *probe = NULL;

	cuda_use_device(dev->index);
	if (cudaMallocFromPoolAsync(&probe, PEER_BYTES, dev->pool, dev->memory_stream) != cudaSuccess ||
	    cudaStreamSynchronize(dev->memory_stream) != cudaSuccess)
		return NULL;
	return probe;
}

/* From the other's pool to that of the device, which is current on return. */
static double measured_rate(const struct device_state *dev, const struct device_state *from)
{
	void *there = probe_of(from), *here = probe_of(dev);
	double us = here && there ? cuda_copy_us(here, there, PEER_BYTES, dev->memory_stream) : 0;

	if (here)
		cudaFreeAsync(here, dev->memory_stream);
	if (there) {
		cuda_use_device(from->index);
		cudaFreeAsync(there, from->memory_stream);
		cuda_use_device(dev->index);
	}
	return us > 0 ? PEER_BYTES / us : 0;
}

static bool reaches(const struct device_state *dev, const struct device_state *other)
{
	int can = 0;

	return cudaDeviceCanAccessPeer(&can, dev->index, other->index) == cudaSuccess && can;
}

/* Lets a device use the memory of another one's runs. */
static bool open_pool_to(const struct device_state *owner, const struct device_state *user)
{
	const struct cudaMemAccessDesc access = {
	    .location = {.type = cudaMemLocationTypeDevice, .id = user->index},
	    .flags = cudaMemAccessFlagsProtReadWrite,
	};

	return cudaMemPoolSetAccess(owner->pool, &access, 1) == cudaSuccess;
}

static void connect(struct device_state *dev, struct device_state *other)
{
	if (!reaches(dev, other) || !reaches(other, dev) || !open_pool_to(dev, other) ||
	    !open_pool_to(other, dev))
		return;
	dev->peer_rates[other->index] = measured_rate(dev, other);
	other->peer_rates[dev->index] = dev->peer_rates[other->index];
}

void cuda_peers_opened(struct device_state *dev)
{
	if (dev->index >= CUDA_PEERS_MAX)
		return;
	pthread_mutex_lock(&peers_lock);
	for (unsigned i = 0; i < CUDA_PEERS_MAX; i++)
		if (opened[i] && opened[i]->index != dev->index)
			connect(dev, opened[i]);
	opened[dev->index] = dev;
	pthread_mutex_unlock(&peers_lock);
	cudaGetLastError();
}

void cuda_peers_closing(struct device_state *dev)
{
	pthread_mutex_lock(&peers_lock);
	if (dev->index < CUDA_PEERS_MAX && opened[dev->index] == dev)
		opened[dev->index] = NULL;
	pthread_mutex_unlock(&peers_lock);
}

double cuda_peer_rate(const struct device_state *dev, const struct device_state *from)
{
	double rate = 0;

	pthread_mutex_lock(&peers_lock);
	if (from->index < CUDA_PEERS_MAX)
		rate = dev->peer_rates[from->index];
	pthread_mutex_unlock(&peers_lock);
	return rate;
}
