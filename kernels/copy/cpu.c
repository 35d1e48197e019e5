/* copy on the CPU: a strided move (move.h). */
#include <math.h>
#include <string.h>

#include "common/cpu.h"
#include "common/move.h"

static struct move move_of(const struct op_args *args)
{
	const struct view *x = &args->views[0], *y = &args->views[1];
	struct move m = {.y = y->data, .x = x->data, .size = dtype_size(y->dtype)};

	memcpy(m.shape, y->shape, sizeof m.shape);
	memcpy(m.y_strides, y->strides, sizeof m.y_strides);
	memcpy(m.x_strides, x->strides, sizeof m.x_strides);
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
     .idea = "memcpy where both sides are contiguous, blocked tiles where not, threads",
     .dtypes = "f32 f64 f16 bf16 i32 c64 c128",
     .takes = "any strides",
     .supports = cpu_reference_supports,
     .time_ns = time_ns,
     .launch = launch_vectorised},
    CPU_REFERENCE_KERNEL("f32 f64 f16 bf16 i32 c64 c128"),
};

const struct kernel_list copy_cpu_kernels = {kernels, sizeof kernels / sizeof kernels[0]};
