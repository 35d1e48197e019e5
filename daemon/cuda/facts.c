/* facts.c: what plans for a GPU go by: its kernels and what it costs to use them. Asks no GPU. */
#include "common/cuda.h"
#include "cuda/gpu.h"
#include "fitted.h"

#define DEPTH    8
#define DEPTH_US 60e3
#define CROWD_US 1e3
/* What each row of a copy takes beside its bytes, both ways at once (H200): 5 to 33 ns; 67 to 83 ns if the rows
 * begin 64 KiB apart or more and are of 4 to 12 KiB. */
#define LINK_ROW_US      15e-3
#define LINK_FAR_ROW_US  70e-3
#define STREAM_MIN_BYTES (2u << 20) /* fewer are moved in less time than it takes to enqueue parts */
#define CARRIED_SHARE    8          /* of device memory that an op may keep between its parts, at most */

static const struct kernel_list *const lists[OP_COUNT] = {
#define X(name) &name##_cuda_kernels,
#include "ops.def"
#undef X
};

const struct kernel_list *cuda_kernels(const struct op *op)
{
	static const struct kernel_list none;

	unsigned i = op_index(op);

	return i < OP_COUNT ? lists[i] : &none;
}

/*
 * Direct: up to where using host memory in place beats copying it: what a copy takes beside its transfer is
 * saved, and kernels read less fast than the copy engine does. Measured on an H200 over PCIe 5 x16, from
 * start() to poll(), in place against copied: gemm 64×64×64 27 µs against 34, 96×96×96 26 against 35,
 * 128×128×128 47 against 38; add 1024² 237 against 256, 2048² 731 against 949; softmax 2048² 574 against 647,
 * 4096² 2690 against 2537.
 */
void cuda_fill_costs(struct device_info *info)
{
	info->depth = DEPTH;
	info->depth_us = DEPTH_US;
	info->crowd_us = CROWD_US;
	info->beside_us = CUDA_LONG_US;
	info->has_trials = true;
	info->run_us = fitted.host.run;
	info->op_us = fitted.host.launch;
	info->carried_max_bytes = info->memory_bytes / CARRIED_SHARE;
	info->pageable_rate = fitted.host.pageable;
	info->gather_us = fitted.host.gather;
	info->link_row_us = LINK_ROW_US;
	info->link_far_row_us = LINK_FAR_ROW_US;
	info->direct = (struct direct_limits){
	    .streaming_max_bytes = (uint64_t)(fitted.host.streaming * info->link_rate),
	    .reusing_max_bytes = (uint64_t)(fitted.host.reusing * info->link_rate),
	};
	info->stream_min_bytes = STREAM_MIN_BYTES;
}
