/* transpose on the CPU: a strided move (move.h) of x, seen transposed, to y. */
#include "cpu.h"
#include "move.h"

static int launch_vectorised(const struct op_args *args, const struct launch *launch)
{
	const struct view *x = &args->views[0], *y = &args->views[1];
	struct move m = {.y = y->data, .x = x->data, .size = dtype_size(y->dtype)};

	(void)launch;
	for (unsigned d = 0; d < 4; d++) {
		unsigned from = d < 2 ? d : 5 - d;
		m.shape[d] = y->shape[d];
		m.y_strides[d] = y->strides[d];
		m.x_strides[d] = x->strides[from];
	}
	move_run(&m);
	return 0;
}

static const struct kernel rows[] = {
    {.name = "vectorised",
     .idea = "tiles turned in registers, 64x64 blocks in cache, threads",
     .dtypes = "f32 f64 f16 bf16",
     .takes = "any strides",
     .supports = cpu_reference_supports,
     .launch = launch_vectorised},
    CPU_REFERENCE_ROW("f32 f64 f16 bf16"),
};

const struct kernel_list transpose_cpu_rows = {rows, sizeof rows / sizeof rows[0]};
