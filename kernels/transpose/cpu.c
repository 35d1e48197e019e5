/* transpose on the CPU: a strided move (move.h) of x, seen transposed, to y. */
#include <math.h>

#include "common/cpu.h"
#include "common/move.h"

static struct move move_of(const struct op_args *args)
{
	const struct view *x = &args->views[0], *y = &args->views[1];
	struct move m = {.y = y->data, .x = x->data, .size = dtype_size(y->dtype)};

	for (unsigned d = 0; d < 4; d++) {
		unsigned from = d < 2 ? d : 5 - d;
		m.shape[d] = y->shape[d];
		m.y_strides[d] = y->strides[d];
		m.x_strides[d] = x->strides[from];
	}
	return m;
}

static double time_ns(const struct op_args *args)
{
	struct move m = move_of(args);

	return fmax(move_ns(&m), cpu_memory_ns(args, (double)view_elements(&args->views[1]) / MOVE_PART));
}

static int launch_vectorised(const struct op_args *args, const struct launch *launch)
{
	struct move m = move_of(args);

	(void)launch;
	move_run(&m);
	return 0;
}

static const struct kernel kernels[] = {
    {.name = "vectorised",
     .idea = "tiles turned in registers, 64x64 blocks in cache, threads",
     .dtypes = "f32 f64 f16 bf16 i32 c64 c128",
     .takes = "any strides",
     .supports = cpu_reference_supports,
     .time_ns = time_ns,
     .launch = launch_vectorised},
    CPU_REFERENCE_KERNEL("f32 f64 f16 bf16 i32 c64 c128"),
};

const struct kernel_list transpose_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]};
