/* copy on the CPU: a strided move (move.h). */
#include <string.h>

#include "cpu.h"
#include "move.h"

static int launch_vectorised(const struct op_args *args, const struct launch *launch)
{
	const struct view *x = &args->views[0], *y = &args->views[1];
	struct move m = {.y = y->data, .x = x->data, .size = dtype_size(y->dtype)};

	(void)launch;
	memcpy(m.shape, y->shape, sizeof m.shape);
	memcpy(m.y_strides, y->strides, sizeof m.y_strides);
	memcpy(m.x_strides, x->strides, sizeof m.x_strides);
	move_run(&m);
	return 0;
}

static const struct kernel rows[] = {
    {.name = "vectorised",
     .idea = "memcpy where both sides are contiguous, blocked tiles where not, threads",
     .dtypes = "f32 f64 f16 bf16",
     .takes = "any strides",
     .supports = cpu_reference_supports,
     .launch = launch_vectorised},
    CPU_REFERENCE_ROW("f32 f64 f16 bf16"),
};

const struct kernel_list copy_cpu_rows = {rows, sizeof rows / sizeof rows[0]};
