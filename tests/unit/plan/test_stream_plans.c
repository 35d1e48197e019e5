/* Plans of streamed runs: how they are cut, how long they are planned to take, and what they need. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gemm/gemm.h"
#include "plan/plan.h"
#include "seed.h"

static uint64_t random_state;

static uint64_t pick(uint64_t n)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return (random_state >> 33) % n;
}

static double flops_per_ns;
static bool whole_only;

/* A kernel that makes each element of its inputs ready, which takes as long as so many FLOPs; it may keep them.
 */
static double flops_to_make;
static bool keeps;

static bool supports(const struct op_args *args, const char **ret_why_not)
{
	*ret_why_not = "is a part";
	return !whole_only || view_elements(op_output_const(args)) == 8192 * 8192;
}

static double elements_in(const struct op_args *args)
{
	double n = 0;

	for (unsigned v = 0; v < op_first_output(args->op); v++)
		n += view_is_absent(&args->views[v]) ? 0 : (double)view_elements(&args->views[v]);
	return n;
}

static double time_ns(const struct op_args *args)
{
	struct cost cost;

	args->op->cost(args, &cost);
	return (cost.flops + flops_to_make * elements_in(args)) / flops_per_ns;
}

static uint64_t kept_bytes(const struct op_args *whole, const struct op_cut *cut)
{
	(void)cut;
	return keeps ? (uint64_t)elements_in(whole) : 0;
}

static double kept_ns(const struct op_args *whole, const struct op_args *part, const struct op_args *fresh)
{
	struct cost cost;

	(void)whole;
	part->op->cost(part, &cost);
	return (cost.flops + flops_to_make * elements_in(fresh)) / flops_per_ns;
}

static const struct kernel_list *kernels_of(const struct op *op)
{
	static const struct kernel kernel = {.name = "it",
	                                     .supports = supports,
	                                     .time_ns = time_ns,
	                                     .kept_bytes = kept_bytes,
	                                     .kept_ns = kept_ns};
	static const struct kernel_list list = {&kernel, 1};

	(void)op;
	return &list;
}

struct planned {
	double us;
	struct op_cut cut;
	uint64_t device_bytes;
};

static uint64_t device_id; /* of planners to come */
/* Of ops to come: operands that another device needs too, and the rate at which they come from there. */
static unsigned shared;
static double shared_rate;

/* Products of f32, one behind the other, from and to this memory, on a device of so many bytes. */
static struct planned plan_products_on(uint64_t device_bytes, unsigned n_ops, uint64_t n, struct memory *memory)
{
	const struct planner planner = {.kernels = kernels_of,
	                                .id = device_id,
	                                .dev = memory->owner,
	                                .info = {.memory_bytes = device_bytes,
	                                         .run_us = 15,
	                                         .op_us = 3,
	                                         .kept_workspace_max_bytes = UINT64_MAX,
	                                         .link_rate = 50e3,
	                                         .pageable_rate = 10e3,
	                                         .stream_min_bytes = 2u << 20}};
	struct run_op both[2];
	struct run run = {.ops = both, .n_ops = n_ops};
	struct planned planned;
	char why[WHY_BYTES];

	for (unsigned i = 0; i < n_ops; i++) {
		both[i] = (struct run_op){.args.op = op_by_name("gemm"), .pinned = ""};
		both[i].args.params.gemm.alpha = 1;
		both[i].shared.operands = shared;
		both[i].shared.rate = shared_rate;
		for (unsigned v = 0; v <= GEMM_C; v++) {
			if (v == GEMM_BIAS)
				continue;
			both[i].args.views[v] = (struct view){.dtype = KOPS_F32,
			                                      .rank = 2,
			                                      .shape = {n, n},
			                                      .space = memory,
			                                      .offset = v * n * n * sizeof(float)};
			view_make_dense(&both[i].args.views[v]);
		}
		assert_int_equal(op_check(&both[i].args, why), 0);
	}
	assert_int_equal(plan_run(&planner, &run), 0);
	planned = (struct planned){run.plan_us, both[0].cut, run.device_bytes};
	run_forget_plan(&run);
	return planned;
}

static struct planned plan_products(unsigned n_ops, uint64_t n, struct memory *memory)
{
	return plan_products_on(1ull << 40, n_ops, n, memory);
}

static void large_products_are_planned_to_stream(void **state)
{
	struct memory memory = {.bytes = 1ull << 32, .pin = MEMORY_PINNED};
	const double upload_us = 2 * 8192.0 * 8192 * 4 / 50e3;
	struct planned p;

	(void)state;
	whole_only = false;
	flops_per_ns = 200e3; /* 5.5 ms: half as long as the uploads take */
	p = plan_products(1, 8192, &memory);
	assert_true(p.cut.grows && p.cut.n_parts > 4);
	assert_true(p.us > upload_us && p.us < 1.3 * upload_us);
	/* 44 ms, and 46 of uploads: the first tile comes in steps, so that there is something to compute soon.
	 */
	p = plan_products(1, 16384, &memory);
	assert_true(p.cut.first_parts > 1 && p.us < 1.4 * 2 * 16384.0 * 16384 * 16384 / 200e6);
	/* Where computing takes much longer, transfers are nearly hidden. */
	flops_per_ns = 40e3;
	p = plan_products(1, 8192, &memory);
	assert_true(p.cut.grows && p.us < 1.2 * 2 * 8192.0 * 8192 * 8192 / 40e6);
}

/* What is kept has room, and is not made again for each part. */
static void what_is_kept_is_made_once(void **state)
{
	struct memory memory = {.bytes = 1ull << 32, .pin = MEMORY_PINNED};
	const double n = 8192, made_us = 2 * n * n * 10000 / 200e6, compute_us = 2 * n * n * n / 200e6;
	struct planned anew, kept;

	(void)state;
	whole_only = false;
	flops_per_ns = 200e3;
	flops_to_make = 10000; /* longer than to multiply */
	anew = plan_products(1, 8192, &memory);
	keeps = true;
	kept = plan_products(1, 8192, &memory);
	flops_to_make = 0;
	keeps = false;
	assert_true(kept.cut.grows && kept.us < 0.9 * anew.us);
	assert_true(kept.us < 1.4 * (made_us + compute_us));
	assert_true((double)kept.device_bytes >= (3 * sizeof(float) + 2) * n * n);
}

static void other_runs_are_planned_as_a_whole(void **state)
{
	struct memory memory = {.bytes = 1ull << 32, .pin = MEMORY_PINNED}, resident = memory,
	              pageable = memory;

	(void)state;
	whole_only = false;
	flops_per_ns = 200e3;
	resident.owner = &resident;
	pageable.pin = MEMORY_PAGEABLE;
	assert_false(plan_products(1, 8192, &resident).cut.grows);
	assert_false(plan_products(1, 8192, &pageable).cut.grows);
	assert_false(plan_products(1, 128, &memory).cut.grows);
	assert_false(plan_products(2, 8192, &memory).cut.grows);
	whole_only = true;
	assert_false(plan_products(1, 8192, &memory).cut.grows);
}

/* The device computes faster meanwhile, but only plans that are made anew show it. */
static void plans_of_streams_are_kept_for_their_device(void **state)
{
	struct memory memory = {.bytes = 1ull << 40, .pin = MEMORY_PINNED};
	struct planned first, again;

	(void)state;
	whole_only = false;
	device_id = 1;
	flops_per_ns = 40e3;
	first = plan_products(1, 8192, &memory);
	flops_per_ns = 200e3;
	again = plan_products(1, 8192, &memory);
	assert_memory_equal(&again, &first, sizeof first);
	assert_true(plan_products(1, 8190, &memory).us < 0.5 * first.us);
	assert_true(plan_products_on(8192ull * 8192 * 8, 1, 8192, &memory).cut.has_windows);
	device_id = 2;
	assert_true(plan_products(1, 8192, &memory).us < 0.5 * first.us);
	for (unsigned i = 0; i < 64; i++)
		plan_products(1, 8200 + i, &memory);
	device_id = 1;
	assert_true(plan_products(1, 8192, &memory).us < 0.5 * first.us); /* made anew after many others */
	device_id = 0;
}

/* Others wait for a part. */
static void parts_of_streamed_runs_are_short(void **state)
{
	struct memory memory = {.bytes = 1ull << 32, .pin = MEMORY_PINNED};

	(void)state;
	whole_only = false;
	for (flops_per_ns = 1e3; flops_per_ns < 300e3; flops_per_ns *= 1.5) {
		struct planned p = plan_products(1, 8192, &memory);

		assert_true(p.cut.share * p.us <= 1.01 * PART_US);
	}
}

/* On a device a sixth of their size the uploads of 65536x65536 take less time than 2.8 s of computing. */
static void products_larger_than_the_device_are_planned(void **state)
{
	struct memory memory = {.bytes = 1ull << 40, .pin = MEMORY_PINNED};
	const double compute_us = 2 * 65536.0 * 65536 * 65536 / 200e6, room = 16.0 * (1 << 30);

	(void)state;
	whole_only = false;
	flops_per_ns = 200e3;
	for (unsigned n_ops = 1; n_ops <= 2; n_ops++) {
		struct planned p = plan_products_on((uint64_t)room, n_ops, 65536, &memory);

		assert_true(p.cut.has_windows && (double)p.device_bytes <= room);
		assert_true(p.us < 1.1 * compute_us * n_ops && p.cut.share * p.us <= PART_US * n_ops);
	}
}

/* However little the device has, if a part of the least size fits. */
static void any_product_fits(void **state)
{
	struct memory memory = {.bytes = 1ull << 40, .pin = MEMORY_PINNED};
	unsigned n_windows = 0;

	(void)state;
	random_state = seed_of_run();
	whole_only = false;
	flops_per_ns = 1;
	for (unsigned round = 0; round < 300; round++) {
		uint64_t n = 16 + pick(400), bytes = (2 + pick(30)) << 12;
		struct planned p = plan_products_on(bytes, 1 + (unsigned)pick(2), n, &memory);

		memory.pin = pick(2) ? MEMORY_PINNED : MEMORY_PAGEABLE;
		assert_true(p.device_bytes <= bytes);
		n_windows += p.cut.has_windows;
	}
	assert_true(n_windows > 100);
}

/* The device uploads half of them. Plans are kept by what is shared, and how fast. */
static void shared_operands_are_planned_to_be_taken(void **state)
{
	struct memory memory = {.bytes = 1ull << 32, .pin = MEMORY_PINNED};
	const double one_us = 8192.0 * 8192 * 4 / 50e3;
	struct planned alone, one, both, slow;

	(void)state;
	whole_only = false;
	flops_per_ns = 2e6; /* uploads take ten times as long */
	device_id = 4711;
	alone = plan_products(1, 8192, &memory);
	shared_rate = 400e3;
	shared = 1u << 1;
	one = plan_products(1, 8192, &memory);
	shared = 3;
	both = plan_products(1, 8192, &memory);
	shared_rate = 100e3;
	slow = plan_products(1, 8192, &memory);
	shared = 0;
	shared_rate = 0;
	device_id = 0;
	assert_true(one.cut.grows && both.cut.grows && slow.cut.grows);
	assert_true(one.us < alone.us - 0.3 * one_us && one.us > 1.5 * one_us);
	assert_true(both.us < one.us - 0.1 * one_us && both.us > one_us);
	assert_true(slow.us > both.us + 0.2 * one_us && slow.us < alone.us);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(large_products_are_planned_to_stream),
	    cmocka_unit_test(what_is_kept_is_made_once),
	    cmocka_unit_test(other_runs_are_planned_as_a_whole),
	    cmocka_unit_test(plans_of_streams_are_kept_for_their_device),
	    cmocka_unit_test(shared_operands_are_planned_to_be_taken),
	    cmocka_unit_test(parts_of_streamed_runs_are_short),
	    cmocka_unit_test(products_larger_than_the_device_are_planned),
	    cmocka_unit_test(any_product_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
