/* open.c: which GPUs there are, and opening and closing one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#include "cuda/confined.h"
#include "cuda/crowd.h"
#include "cuda/gpu.h"
#include "cuda/graph.h"
#include "cuda/lane.h"
#include "cuda/sensors.h"
#include "fitted.h"

#define LIMIT_MIN_BYTES (64ull << 20)  /* below, kernels could not even be tested */
#define SPARE_BYTES     (256ull << 20) /* device memory left for cuBLAS, kernels and CUDA */

#define DRIVER_SLACK_NS 1000000000000ul

/* ---- What there is ---- */

static void explain_count(cudaError_t error, char why[WHY_BYTES])
{
	int driver = 0, built = CUDART_VERSION;

	cudaDriverGetVersion(&driver);
	if (driver == 0)
		snprintf(why, WHY_BYTES,
		         "no NVIDIA driver: libcuda.so.1 is missing or the kernel module is not loaded");
	else if (error == cudaErrorInsufficientDriver)
		snprintf(why, WHY_BYTES,
		         "the NVIDIA driver is too old: it supports CUDA %d.%d, kops-cuda.so needs %d.%d; "
		         "update the driver",
		         driver / 1000, driver % 1000 / 10, built / 1000, built % 1000 / 10);
	else if (error == cudaErrorNoDevice)
		snprintf(why, WHY_BYTES, "no CUDA device is visible; see nvidia-smi and CUDA_VISIBLE_DEVICES");
	else
		snprintf(why, WHY_BYTES, "CUDA cannot count the devices: %s", cudaGetErrorString(error));
}

/* Streams share a GPU's queues, of which CUDA takes 8 by default, and wait for each other there. */
#define QUEUES "32"

unsigned cuda_count(char why[WHY_BYTES])
{
	int n = 0;
	cudaError_t error;

	setenv("CUDA_DEVICE_MAX_CONNECTIONS", QUEUES, 0); /* CUDA reads it when it is first called */
	error = cudaGetDeviceCount(&n);
	if (error == cudaSuccess && n > 0)
		return (unsigned)n;
	cudaGetLastError();
	explain_count(error == cudaSuccess ? cudaErrorNoDevice : error, why);
	return 0;
}

void cuda_describe(const struct device_state *dev, struct device_info *ret)
{
	*ret = dev->info;
}

/* ---- Opening and closing ---- */

static int cuda_failed(cudaError_t error, const char *what, char why[WHY_BYTES])
{
	snprintf(why, WHY_BYTES, "%s: %s", what, cudaGetErrorString(error));
	cudaGetLastError();
	return error == cudaErrorMemoryAllocation ? KOPS_E_NOMEM : KOPS_E_FAULT;
}

/* "580.159.04", from the driver's own file; else the CUDA version that it serves. */
static void driver_version(char *text, size_t size)
{
	FILE *file = fopen("/proc/driver/nvidia/version", "re");
	char line[256], word[32];
	int cuda = 0;

	cudaDriverGetVersion(&cuda);
	snprintf(text, size, "for CUDA %d.%d", cuda / 1000, cuda % 1000 / 10);
	if (!file)
		return;
	if (fgets(line, sizeof(line), file)) {
		for (const char *at = line; *at; at += strcspn(at, " \t\n"), at += strspn(at, " \t\n"))
			if (sscanf(at, "%31[0-9.]", word) == 1 && strchr(word, '.') && strlen(word) > 4) {
				snprintf(text, size, "%s", word);
				break;
			}
	}
	fclose(file);
}

static int attribute(int index, enum cudaDeviceAttr which)
{
	int value = 0;

	cudaDeviceGetAttribute(&value, which, index);
	return value;
}

/* ---- The link ---- */

#define LINK_BYTES (16u << 20) /* of a transfer that is timed: some 0.3 ms over PCIe 5 x16 */

/* Drivers tell how wide and fast a link is, and not what is left of that behind switches and in virtual
 * machines. */
static double measured_link_rate(const struct device_state *dev)
{
	void *host = NULL, *device = NULL;
	double us = 0;

	if (cudaHostAlloc(&host, LINK_BYTES, cudaHostAllocDefault) == cudaSuccess &&
	    cudaMalloc(&device, LINK_BYTES) == cudaSuccess)
		us = cuda_copy_us(device, host, LINK_BYTES, dev->memory_stream);
	cudaFree(device);
	cudaFreeHost(host);
	cudaGetLastError();
	return us > 0 ? LINK_BYTES / us : fitted.host.link;
}

static void fill_info(struct device_state *dev, const struct cudaDeviceProp *prop, size_t free_bytes)
{
	uint64_t limit = dev->memory_max_bytes > LIMIT_MIN_BYTES ? dev->memory_max_bytes : LIMIT_MIN_BYTES;
	char driver[32], text[256];

	driver_version(driver, sizeof(driver));
	snprintf(text, sizeof(text), "%.60s, compute capability %d.%d, %d SMs, driver %s, CUDA %d.%d",
	         prop->name, prop->major, prop->minor, prop->multiProcessorCount, driver, CUDART_VERSION / 1000,
	         CUDART_VERSION % 1000 / 10);
	snprintf(dev->info.description, sizeof(dev->info.description), "%.127s", text);
	dev->total_bytes = prop->totalGlobalMem;
	dev->info.memory_bytes = free_bytes > SPARE_BYTES ? free_bytes - SPARE_BYTES : 0;
	if (dev->memory_max_bytes > 0 && dev->info.memory_bytes > limit)
		dev->info.memory_bytes = limit;
	dev->info.cache_bytes = (uint64_t)attribute(dev->index, cudaDevAttrL2CacheSize);
	dev->info.link_rate = measured_link_rate(dev);
	cuda_fill_costs(&dev->info);
}

static int require(struct device_state *dev, char why[WHY_BYTES])
{
	enum cudaDriverEntryPointQueryResult found;
	void *function = NULL;

	if (!attribute(dev->index, cudaDevAttrMemoryPoolsSupported)) {
		snprintf(why, WHY_BYTES, "the device does not support memory pools, which kopsd needs");
		return KOPS_E_UNSUPPORTED;
	}
	if (!attribute(dev->index, cudaDevAttrCanUseHostPointerForRegisteredMem)) {
		snprintf(why, WHY_BYTES, "the device cannot access registered host memory at its host address");
		return KOPS_E_UNSUPPORTED;
	}
	if (cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &function, 11070, cudaEnableDefault,
	                                     &found) != cudaSuccess ||
	    !function) {
		cudaGetLastError();
		snprintf(why, WHY_BYTES, "the driver lacks cuStreamWriteValue32; update it");
		return KOPS_E_UNSUPPORTED;
	}
	dev->write_value = (PFN_cuStreamWriteValue32_v11070)function;
	return 0;
}

/* *ret_cublas may be set on failure too. */
static int make_cublas(cublasHandle_t *ret_cublas, cudaStream_t stream, char why[WHY_BYTES])
{
	cublasStatus_t status = cublasCreate(ret_cublas);

	if (status == CUBLAS_STATUS_SUCCESS)
		status = cublasSetStream(*ret_cublas, stream);
	if (status == CUBLAS_STATUS_SUCCESS)
		status = cublasSetMathMode(*ret_cublas, CUBLAS_DEFAULT_MATH |
		                                            CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
	if (status == CUBLAS_STATUS_SUCCESS)
		return 0;
	snprintf(why, WHY_BYTES, "cannot initialize cuBLAS: %s", cublasGetStatusString(status));
	return KOPS_E_FAULT;
}

/* Lanes that only chains use find their workspace when first chosen. 32 MiB is what cuBLAS asks for on Hopper;
 * older GPUs need less. */
static int open_cublas(struct device_state *dev, unsigned i, const struct cudaDeviceProp *prop,
                       char why[WHY_BYTES])
{
	struct lane *lane = &dev->lanes[i];
	int rc = make_cublas(&lane->cublas, lane->stream, why);

	lane->cublas_workspace_bytes = (prop->major >= 9 ? 32u : 8u) << 20;
	if (rc < 0 || i >= CUDA_LANES_SHORT || cuda_get_cublas_workspace(dev, lane))
		return rc;
	snprintf(why, WHY_BYTES, "cannot allocate the workspace of cuBLAS, %zu MiB",
	         lane->cublas_workspace_bytes >> 20);
	return KOPS_E_NOMEM;
}

static int open_lane(struct device_state *dev, unsigned i, const struct cudaDeviceProp *prop,
                     char why[WHY_BYTES])
{
	struct lane *lane = &dev->lanes[i];
	int least = 0, greatest = 0;
	cudaError_t error = cudaDeviceGetStreamPriorityRange(&least, &greatest);

	if (error == cudaSuccess)
		error = cudaStreamCreateWithPriority(&lane->stream, cudaStreamNonBlocking,
		                                     i < CUDA_LANES_HIGH ? greatest : least);

	lane->words = &dev->words[i];
	*lane->words = (struct lane_words){0};
	if (error == cudaSuccess)
		error = cudaStreamCreateWithFlags(&lane->waker, cudaStreamNonBlocking);
	if (error == cudaSuccess)
		error = cudaStreamCreateWithFlags(&lane->up, cudaStreamNonBlocking);
	if (error == cudaSuccess)
		error = cudaStreamCreateWithFlags(&lane->down, cudaStreamNonBlocking);
	if (error == cudaSuccess)
		error = cudaEventCreateWithFlags(&lane->mark, cudaEventDisableTiming);
	if (error != cudaSuccess)
		return cuda_failed(error, "cannot create a CUDA stream", why);
	return open_cublas(dev, i, prop, why);
}

static int open_firsts(struct device_state *dev, char why[WHY_BYTES])
{
	const struct lane *lane = &dev->lanes[0];
	cudaStream_t stream = NULL;
	cublasHandle_t cublas = NULL;
	cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
	int rc;

	if (error != cudaSuccess)
		return cuda_failed(error, "cannot create a CUDA stream", why);
	rc = make_cublas(&cublas, stream, why);
	/* Nothing is computed, so this lane's workspace serves. */
	if (rc == 0)
		cublasSetWorkspace(cublas, lane->cublas_workspace, lane->cublas_workspace_bytes);
	if (rc == 0)
		rc = cuda_first_open(dev, stream, cublas, why);
	if (rc == 0)
		return 0;
	if (cublas)
		cublasDestroy(cublas);
	cudaStreamDestroy(stream);
	return rc;
}

static int open_pool(struct device_state *dev, char why[WHY_BYTES])
{
	struct cudaMemPoolProps props = {
	    .allocType = cudaMemAllocationTypePinned,
	    .location = {.type = cudaMemLocationTypeDevice, .id = dev->index},
	};
	uint64_t keep = UINT64_MAX;
	cudaError_t error = cudaMemPoolCreate(&dev->pool, &props);

	if (error == cudaSuccess)
		error = cudaMemPoolSetAttribute(dev->pool, cudaMemPoolAttrReleaseThreshold, &keep);
	if (error == cudaSuccess)
		error = cudaStreamCreateWithFlags(&dev->memory_stream, cudaStreamNonBlocking);
	if (error == cudaSuccess)
		error =
		    cudaHostAlloc((void **)&dev->words, CUDA_LANES * sizeof *dev->words, cudaHostAllocMapped);
	if (error == cudaSuccess)
		error = cudaHostAlloc((void **)&dev->graphs.words, CUDA_GRAPHS_MAX * sizeof *dev->graphs.words,
		                      cudaHostAllocMapped);
	if (error == cudaSuccess)
		error = cuda_crowd_open(dev);
	for (unsigned i = 0; error == cudaSuccess && i < CUDA_GRAPHS_MAX; i++) {
		dev->graphs.words[i].link = (struct list_link){0};
		list_push_first(&dev->graphs.free_words, &dev->graphs.words[i].link);
	}
	return error == cudaSuccess ? 0 : cuda_failed(error, "cannot create a memory pool", why);
}

static void close_stream(cudaStream_t stream)
{
	if (!stream)
		return;
	cudaStreamSynchronize(stream);
	cudaStreamDestroy(stream);
}

static void close_lane(struct lane *lane)
{
	if (lane->stream)
		cudaStreamSynchronize(lane->stream);
	close_stream(lane->waker);
	cuda_lane_close_across(lane);
	close_stream(lane->up);
	close_stream(lane->down);
	if (lane->mark)
		cudaEventDestroy(lane->mark);
	if (lane->cublas)
		cublasDestroy(lane->cublas);
	cudaFree(lane->cublas_workspace);
	if (lane->scratch)
		cudaFreeAsync(lane->scratch, lane->stream);
	if (lane->stream)
		cudaStreamDestroy(lane->stream);
}

void cuda_close(struct device_state *dev)
{
	struct out *out;

	if (!dev)
		return;
	cuda_use_device(dev->index);
	cuda_peers_closing(dev);
	cuda_first_close(dev);
	cuda_confined_close(dev);
	for (unsigned i = 0; i < CUDA_LANES; i++)
		close_lane(&dev->lanes[i]);
	while ((out = list_take(&dev->spare, struct out, link)))
		cuda_out_free(out);
	if (dev->memory_stream) {
		cudaStreamSynchronize(dev->memory_stream);
		cudaStreamDestroy(dev->memory_stream);
	}
	cuda_graph_end_rehearsals(dev);
	cudaFreeHost(dev->words);
	cudaFreeHost(dev->graphs.words);
	cuda_crowd_close(dev);
	if (dev->pool)
		cudaMemPoolDestroy(dev->pool);
	cudaGetLastError();
	pthread_mutex_destroy(&dev->graphs.lock);
	free(dev);
}

/*
 * A device's first use makes its context, and a thread of CUDA's that waits for events, and looks up ten
 * times a second if there are none. It inherits from this one how late its timers may be: so it sleeps on until
 * an event, or until its CPU wakes for another timer.
 */
static cudaError_t make_context(int index)
{
	int slack_ns = prctl(PR_GET_TIMERSLACK, 0ul, 0ul, 0ul, 0ul);
	cudaError_t error;

	prctl(PR_SET_TIMERSLACK, DRIVER_SLACK_NS, 0ul, 0ul, 0ul);
	error = cuda_use_device(index);
	prctl(PR_SET_TIMERSLACK, (unsigned long)slack_ns, 0ul, 0ul, 0ul);
	return error;
}

static int open_parts(struct device_state *dev, char why[WHY_BYTES])
{
	struct cudaDeviceProp prop;
	size_t free_bytes = 0, total_bytes = 0;
	cudaError_t error = make_context(dev->index);
	int rc;

	if (error == cudaSuccess)
		error = cudaGetDeviceProperties(&prop, dev->index);
	if (error != cudaSuccess)
		return cuda_failed(error, "cannot open the GPU", why);
	if ((rc = require(dev, why)) < 0 || (rc = open_pool(dev, why)) < 0)
		return rc;
	for (unsigned i = 0; i < CUDA_LANES; i++)
		if ((rc = open_lane(dev, i, &prop, why)) < 0)
			return rc;
	if ((rc = open_firsts(dev, why)) < 0)
		return rc;
	cuda_confined_open(dev);
	cuda_graph_make_rehearsal(dev);
	cuda_preload();
	error = cudaMemGetInfo(&free_bytes, &total_bytes);
	if (error != cudaSuccess)
		return cuda_failed(error, "cannot read the size of the GPU's memory", why);
	fill_info(dev, &prop, free_bytes);
	return 0;
}

int cuda_open(unsigned index, const struct driver_limits *limits, struct device_state **ret_dev,
              char why[WHY_BYTES])
{
	struct device_state *dev = calloc(1, sizeof(*dev));
	int rc;

	if (!dev) {
		snprintf(why, WHY_BYTES, "out of memory");
		return KOPS_E_NOMEM;
	}
	dev->index = (int)index;
	dev->memory_max_bytes = limits->memory_bytes;
	pthread_mutex_init(&dev->graphs.lock, NULL);
	rc = open_parts(dev, why);
	if (rc < 0) {
		cuda_close(dev);
		return rc;
	}
	dev->nvml = cuda_sensors_open((int)index);
	cuda_memory_opened((int)index);
	cuda_peers_opened(dev);
	*ret_dev = dev;
	return 0;
}
