/* Tests learned.c: which jobs are trials, and which kernel the shape gets. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "device/learned.h"
#include "gemm/gemm.h"

#define OPS_MAX       4 /* most ops of a job here */
#define BEFORE        8 /* jobs of a shape before the trials */
#define TRIALS        3
#define CONFIRMATIONS 2
#define ALL_TRIALS    (2 * TRIALS + CONFIRMATIONS) /* if one rival wins */

enum { FIRST, RIVAL, OTHER, N_KERNELS };

static bool takes_all(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

static const struct kernel kernels[N_KERNELS] = {{.name = "first", .supports = takes_all},
                                                 {.name = "rival", .supports = takes_all},
                                                 {.name = "other", .supports = takes_all}};

static const struct kernel_list *kernels_of(const struct op *op)
{
	static const struct kernel_list list = {kernels, N_KERNELS};

	(void)op;
	return &list;
}

/*
 * One device: the actual and expected times of an op, by kernel; expected 0: never considered. Jobs have n_ops
 * of one shape.
 */
struct fixture {
	double us[N_KERNELS], expected_us[N_KERNELS];
	unsigned n_ops;
	struct learned *learned;
	struct memory memory;
};

static unsigned rivals_of(const struct planner *planner, const struct op_args *args,
                          struct rival ret[RIVALS_MAX])
{
	const struct fixture *f = (const struct fixture *)planner;
	unsigned n = 0;

	(void)args;
	for (size_t i = 0; i < N_KERNELS; i++)
		if (f->expected_us[i] > 0)
			ret[n++] = (struct rival){i, f->expected_us[i] * 1e3};
	return n;
}

static struct learned *new_learned(struct fixture *f)
{
	return learned_new(&(struct learned_owner){kernels_of, rivals_of, (const struct planner *)f});
}

static int set_up(void **state)
{
	static struct fixture f;

	f = (struct fixture){.us = {100, 80, 60}, .expected_us = {100, 100, 0}, .n_ops = 1};
	f.learned = new_learned(&f);
	*state = &f;
	return f.learned ? 0 : -1;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	learned_free(f->learned);
	return 0;
}

static struct op_args gemm_of(struct fixture *f, uint64_t n)
{
	struct op_args args = {.op = op_by_name("gemm"), .params.gemm = {.alpha = 1}};

	for (int i = 0; i < OP_OPERANDS_MAX; i++) {
		args.views[i] =
		    (struct view){.space = &f->memory, .dtype = KOPS_F32, .rank = 2, .shape = {n, n}};
		view_make_dense(&args.views[i]);
	}
	return args;
}

/* Returns the planned kernel: the proposed one, or the first. n_alike: ops in the job; 0: they differ. */
static size_t planned(struct fixture *f, const struct op_args *args, unsigned n_alike)
{
	const struct preference *preferred = learned_find(f->learned, args, n_alike);

	return preferred ? preferred->kernels[0] : FIRST;
}

static bool begin(struct fixture *f, const struct op_args *args, size_t kernel, struct trial *ret_trial)
{
	bool settled;

	struct run_op op[OPS_MAX];

	assert_in_range(f->n_ops, 1, OPS_MAX);
	for (unsigned i = 0; i < f->n_ops; i++)
		op[i] = (struct run_op){.args = *args, .kernel = &kernels[kernel]};
	return learned_begin(f->learned, &(struct run){.ops = op, .n_ops = f->n_ops}, ret_trial, &settled);
}

/* Runs a job from plan to end, and returns its kernel. */
static size_t run(struct fixture *f, const struct op_args *args, bool *ret_is_trial)
{
	size_t kernel = planned(f, args, f->n_ops);
	struct trial trial;

	*ret_is_trial = begin(f, args, kernel, &trial);
	if (*ret_is_trial)
		learned_end(f->learned, &trial, f->us[kernel] * f->n_ops);
	return kernel;
}

/* Expects the next n jobs to run this kernel, as trials or not. */
static void expect(struct fixture *f, const struct op_args *args, unsigned n, size_t kernel, bool are_trials)
{
	for (unsigned i = 0; i < n; i++) {
		bool is_trial;
		assert_int_equal(run(f, args, &is_trial), kernel);
		assert_int_equal(is_trial, are_trials);
	}
}

/* Counts trials among the next n jobs. */
static unsigned count_trials(struct fixture *f, const struct op_args *args, unsigned n)
{
	unsigned trials = 0;

	for (unsigned i = 0; i < n; i++) {
		bool is_trial;
		run(f, args, &is_trial);
		trials += is_trial;
	}
	return trials;
}

static void the_faster_kernel_has_the_shape_after_the_trials(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	expect(f, &args, BEFORE, FIRST, false);
	expect(f, &args, TRIALS, FIRST, true);
	assert_string_equal(learned_find(f->learned, &args, 1)->why,
	                    "on trial for this shape: 100 us by estimate, first took 100 us");
	expect(f, &args, TRIALS, RIVAL, true);
	expect(f, &args, CONFIRMATIONS, FIRST, true);
	expect(f, &args, 100, RIVAL, false);
	assert_string_equal(learned_find(f->learned, &args, 1)->why,
	                    "fastest for this shape: 80 us, first took 100 us");
}

static void the_first_choice_stays_where_a_rival_gains_little(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	f->us[RIVAL] = 98;
	expect(f, &args, BEFORE, FIRST, false);
	assert_int_equal(count_trials(f, &args, 2 * TRIALS), 2 * TRIALS);
	assert_null(learned_find(f->learned, &args, 1));
	expect(f, &args, 100, FIRST, false);
}

static void the_shortest_trial_of_a_kernel_counts(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);
	bool is_trial;

	expect(f, &args, BEFORE, FIRST, false);
	f->us[FIRST] = 1200; /* others use the device, except at the last trial */
	for (unsigned i = 1; i < TRIALS; i++)
		run(f, &args, &is_trial);
	f->us[FIRST] = 81;
	expect(f, &args, 1, FIRST, true);
	expect(f, &args, TRIALS, RIVAL, true);
	expect(f, &args, 100, FIRST, false);
}

static void a_winner_is_confirmed_against_the_first_choice(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	f->us[FIRST] = 1200; /* others use the device all the time */
	f->us[RIVAL] = f->expected_us[RIVAL] = 1000;
	expect(f, &args, BEFORE, FIRST, false);
	expect(f, &args, TRIALS, FIRST, true);
	expect(f, &args, TRIALS, RIVAL, true);
	f->us[FIRST] = 100;
	expect(f, &args, 1, FIRST, true);
	expect(f, &args, 100, FIRST, false);
}

static void what_is_far_from_the_first_is_not_tried(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	f->expected_us[RIVAL] = 200;
	expect(f, &args, BEFORE, FIRST, false);
	expect(f, &args, TRIALS, FIRST, true);
	expect(f, &args, 100, FIRST, false);
}

static void a_kernel_that_proves_to_be_slow_is_tried_twice(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	f->us[RIVAL] = 5000;
	expect(f, &args, BEFORE, FIRST, false);
	expect(f, &args, TRIALS, FIRST, true);
	expect(f, &args, 2, RIVAL, true); /* the first may have loaded the kernel */
	expect(f, &args, 100, FIRST, false);
}

/* Its estimate is wrong: another trial of 37 ms would show nothing new. */
static void a_kernel_slower_than_any_loading_is_tried_once(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	f->us[FIRST] = f->expected_us[FIRST] = f->expected_us[RIVAL] = 380;
	f->us[RIVAL] = 37000;
	expect(f, &args, BEFORE, FIRST, false);
	expect(f, &args, TRIALS, FIRST, true);
	expect(f, &args, 1, RIVAL, true);
	expect(f, &args, 100, FIRST, false);
}

static void the_first_launch_of_a_kernel_may_be_slow(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	expect(f, &args, BEFORE, FIRST, false);
	expect(f, &args, TRIALS, FIRST, true);
	f->us[RIVAL] = 5000;
	expect(f, &args, 1, RIVAL, true);
	f->us[RIVAL] = 80;
	expect(f, &args, TRIALS - 1, RIVAL, true);
	expect(f, &args, CONFIRMATIONS, FIRST, true);
	expect(f, &args, 100, RIVAL, false);
}

static void the_likelier_rival_is_tried_first_and_may_end_it(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	f->us[FIRST] = 300; /* slower than expected, so both are considered */
	f->expected_us[RIVAL] = 200, f->us[RIVAL] = 200;
	f->expected_us[OTHER] = 150;
	expect(f, &args, BEFORE, FIRST, false);
	expect(f, &args, TRIALS, FIRST, true);
	expect(f, &args, TRIALS, OTHER, true); /* 60 us, with no kernel expected near it */
	expect(f, &args, CONFIRMATIONS, FIRST, true);
	expect(f, &args, 100, OTHER, false);
}

static void shapes_without_rivals_have_no_trials(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	f->expected_us[RIVAL] = 0;
	expect(f, &args, 100, FIRST, false);
}

static void one_trial_is_out_at_a_time(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);
	struct trial trial, other;

	expect(f, &args, BEFORE, FIRST, false);
	for (unsigned i = 0; i < ALL_TRIALS; i++) {
		size_t kernel = planned(f, &args, 1);
		assert_int_equal(kernel, i / TRIALS == 1 ? RIVAL : FIRST);
		assert_true(begin(f, &args, kernel, &trial));
		for (unsigned k = 0; k < 10; k++) {
			size_t meanwhile = planned(f, &args, 1);
			assert_int_equal(meanwhile, i > TRIALS ? RIVAL : FIRST); /* the faster one by then */
			assert_false(begin(f, &args, meanwhile, &other));
		}
		learned_end(f->learned, &trial, f->us[kernel]);
	}
	expect(f, &args, 100, RIVAL, false);
}

static void a_trial_that_never_ran_is_repeated(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);
	struct trial trial;

	expect(f, &args, BEFORE, FIRST, false);
	for (unsigned i = 0; i < 10; i++) {
		assert_true(begin(f, &args, FIRST, &trial));
		learned_cancel(f->learned, &trial);
	}
	assert_int_equal(count_trials(f, &args, 100), ALL_TRIALS);
}

static void a_kernel_whose_trial_fails_has_no_other(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);
	struct trial trial;

	expect(f, &args, BEFORE, FIRST, false);
	expect(f, &args, TRIALS, FIRST, true);
	assert_int_equal(planned(f, &args, 1), RIVAL);
	assert_true(begin(f, &args, RIVAL, &trial));
	learned_end(f->learned, &trial, 0);
	expect(f, &args, 100, FIRST, false);
}

static void a_kernel_that_the_device_refuses_is_not_asked_for_again(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	expect(f, &args, BEFORE, FIRST, false);
	expect(f, &args, TRIALS, FIRST, true);
	assert_int_equal(planned(f, &args, 1), RIVAL);
	learned_reject(f->learned, &args, 1);
	expect(f, &args, 100, FIRST, false);
}

static void a_refusal_costs_other_rivals_nothing(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	f->expected_us[RIVAL] = 90;
	f->expected_us[OTHER] = 95;
	expect(f, &args, BEFORE, FIRST, false);
	expect(f, &args, TRIALS, FIRST, true);
	assert_int_equal(planned(f, &args, 1), RIVAL);
	learned_reject(f->learned, &args, 1); /* its job runs another kernel, and is no trial */
	expect(f, &args, TRIALS, OTHER, true);
	expect(f, &args, CONFIRMATIONS, FIRST, true);
	expect(f, &args, 100, OTHER, false);
}

static void a_trial_of_the_first_choice_may_fail(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);
	struct trial trial;

	expect(f, &args, BEFORE, FIRST, false);
	assert_true(begin(f, &args, FIRST, &trial));
	learned_end(f->learned, &trial, 0);
	expect(f, &args, TRIALS - 1, FIRST, true);
	expect(f, &args, TRIALS, RIVAL, true);
	assert_int_equal(planned(f, &args, 1), FIRST);
	assert_true(begin(f, &args, FIRST, &trial));
	learned_end(f->learned, &trial, 0);
	expect(f, &args, CONFIRMATIONS - 1, FIRST, true);
	expect(f, &args, 100, RIVAL, false);
}

static void a_kernel_that_is_refused_during_its_trial_stays_refused(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);
	struct trial trial;

	expect(f, &args, BEFORE, FIRST, false);
	expect(f, &args, TRIALS, FIRST, true);
	expect(f, &args, 1, RIVAL, true);
	assert_true(begin(f, &args, RIVAL, &trial));
	assert_int_equal(planned(f, &args, 1), RIVAL); /* the fastest so far */
	learned_reject(f->learned, &args, 1);
	learned_end(f->learned, &trial, 80);
	expect(f, &args, 100, FIRST, false);
}

static void the_fastest_kernel_is_given_up_where_the_device_refuses_it(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	expect(f, &args, BEFORE, FIRST, false);
	assert_int_equal(count_trials(f, &args, 100), ALL_TRIALS);
	assert_int_equal(planned(f, &args, 0), RIVAL);
	learned_reject(f->learned, &args, 1);
	expect(f, &args, 100, FIRST, false);
}

static void a_kernel_that_is_not_taken_is_not_due_for_ever(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);
	struct trial trial;

	expect(f, &args, BEFORE, FIRST, false);
	expect(f, &args, TRIALS, FIRST, true);
	for (unsigned i = 0; i < TRIALS; i++) {
		assert_int_equal(planned(f, &args, 1), RIVAL);
		assert_false(begin(f, &args, FIRST, &trial));
	}
	expect(f, &args, 100, FIRST, false);
}

static void jobs_of_ops_that_differ_are_no_trials_and_gain_by_them(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	expect(f, &args, BEFORE, FIRST, false);
	expect(f, &args, TRIALS, FIRST, true);
	assert_int_equal(planned(f, &args, 0), FIRST);
	assert_int_equal(planned(f, &args, 1), RIVAL);
	expect(f, &args, 1, RIVAL, true);
	assert_int_equal(planned(f, &args, 0), RIVAL);
}

static void jobs_of_ops_that_differ_take_what_is_clearly_faster(void **state)
{
	static const struct {
		double first_us, rival_us;
		size_t alone, mixed;
	} cases[] = {{1000, 985, FIRST, FIRST}, {1000, 975, RIVAL, FIRST}, {1000, 969, RIVAL, FIRST},
	             {1000, 967, RIVAL, RIVAL}, {10, 9.85, FIRST, FIRST},  {10, 9.4, RIVAL, FIRST},
	             {10, 7.8, RIVAL, FIRST},   {10, 7.6, RIVAL, RIVAL}};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct op_args args = gemm_of(f, 64 + i);
		f->us[FIRST] = cases[i].first_us;
		f->us[RIVAL] = f->expected_us[RIVAL] = cases[i].rival_us;
		expect(f, &args, BEFORE, FIRST, false);
		count_trials(f, &args, 100);
		assert_int_equal(planned(f, &args, 1), cases[i].alone);
		assert_int_equal(planned(f, &args, 0), cases[i].mixed);
	}
}

static void jobs_of_several_ops_have_trials_of_their_own(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	expect(f, &args, BEFORE, FIRST, false);
	f->n_ops = 3;
	expect(f, &args, BEFORE, FIRST, false);
	expect(f, &args, TRIALS, FIRST, true);
	expect(f, &args, TRIALS, RIVAL, true);
	expect(f, &args, CONFIRMATIONS, FIRST, true);
	expect(f, &args, 100, RIVAL, false);
	assert_string_equal(learned_find(f->learned, &args, 3)->why,
	                    "fastest for this shape: 80 us, first took 100 us"); /* per op */
	assert_int_equal(planned(f, &args, 2), RIVAL);                           /* for any number of ops */
	f->n_ops = 1;
	expect(f, &args, TRIALS, FIRST, true);
}

static void an_op_among_others_may_have_another_kernel(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	count_trials(f, &args, 100);
	f->n_ops = 2;
	f->us[RIVAL] = 120;
	count_trials(f, &args, 100);
	assert_int_equal(planned(f, &args, 1), RIVAL);
	assert_int_equal(planned(f, &args, 2), FIRST);
	learned_reject(f->learned, &args, 1);
	assert_int_equal(planned(f, &args, 1), FIRST);
}

static void a_job_that_runs_several_kernels_is_no_trial(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);
	struct run_op op[] = {{.args = args, .kernel = &kernels[FIRST]},
	                      {.args = args, .kernel = &kernels[RIVAL]}};
	struct run run = {.ops = op, .n_ops = 2};
	struct trial trial;
	bool settled;

	f->n_ops = 2;
	for (unsigned i = 0; i < 100; i++) /* looking does not start trials either */
		assert_false(learned_begin(f->learned, &run, &trial, &settled));
	expect(f, &args, BEFORE, FIRST, false);
	expect(f, &args, TRIALS, FIRST, true);
	for (unsigned i = 0; i < TRIALS; i++) {
		assert_int_equal(planned(f, &args, 2), RIVAL);
		assert_false(learned_begin(f->learned, &run, &trial, &settled));
	}
	expect(f, &args, 100, FIRST, false);
}

static void ops_are_alike_that_have_one_shape_and_name_no_kernel(void **state)
{
	struct fixture *f = *state;
	struct run_op op[3];
	struct run run = {.ops = op, .n_ops = 3};

	for (unsigned i = 0; i < 3; i++)
		op[i] = (struct run_op){.args = gemm_of(f, 64), .pinned = ""};
	op[1].args.params.gemm.alpha = 3;
	op[2].args.views[0].offset = 64;
	assert_int_equal(learned_alike(&run), 3);
	op[2].pinned = "rival";
	assert_int_equal(learned_alike(&run), 0);
	op[2].pinned = "";
	op[2].args = gemm_of(f, 65);
	assert_int_equal(learned_alike(&run), 0);
	op[2].args = gemm_of(f, 64);
	op[2].args.op = op_by_name("add");
	assert_int_equal(learned_alike(&run), 0);
	run.n_ops = 1;
	assert_int_equal(learned_alike(&run), 1);
	op[0].pinned = "rival";
	assert_int_equal(learned_alike(&run), 0);
}

static void what_may_gain_for_single_jobs_alone_is_tried(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	f->us[FIRST] = 10;
	f->expected_us[RIVAL] = 13; /* 1.5 times 9.8, not 1.5 times 7.7 */
	f->us[RIVAL] = 9;
	expect(f, &args, BEFORE, FIRST, false);
	assert_int_equal(count_trials(f, &args, 100), ALL_TRIALS);
	assert_int_equal(planned(f, &args, 1), RIVAL);
}

static void a_trial_may_outlast_its_table(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);
	struct trial old, trial;

	expect(f, &args, BEFORE, FIRST, false);
	assert_true(begin(f, &args, FIRST, &old));
	learned_free(f->learned);
	f->learned = new_learned(f);
	learned_cancel(f->learned, &old);
	expect(f, &args, BEFORE, FIRST, false);
	assert_true(begin(f, &args, FIRST, &trial));
	learned_cancel(f->learned, &old);
	learned_end(f->learned, &old, 1);
	learned_end(f->learned, &trial, 100);
	assert_int_equal(count_trials(f, &args, 100), ALL_TRIALS - 1);
	expect(f, &args, 100, RIVAL, false);
}

static void what_a_kernel_may_depend_on_is_another_shape(void **state)
{
	struct fixture *f = *state;
	struct memory resident = {.owner = f}, pinned = {.pin = MEMORY_PINNED};
	struct op_args args = gemm_of(f, 64), others[10];

	for (size_t i = 0; i < 10; i++)
		others[i] = args;
	others[0] = gemm_of(f, 65);
	others[1].views[0].strides[0] = 128;
	others[2].views[1].offset = 4;
	others[3].params.gemm.precision = KOPS_PRECISION_IEEE;
	others[4].params.gemm.beta = 1;
	others[5].views[GEMM_C].space = &resident;
	others[6].op = op_by_name("add");
	for (int i = 0; i < OP_OPERANDS_MAX; i++)
		others[7].views[i].dtype = KOPS_F64;
	others[8].params.gemm.alpha = 0;
	others[9].views[1].space = &pinned;
	expect(f, &args, BEFORE, FIRST, false);
	for (size_t i = 0; i < 10; i++)
		expect(f, &others[i], BEFORE, FIRST, false);
	for (size_t i = 0; i < 10; i++)
		expect(f, &others[i], 1, FIRST, true);
	args.views[0].offset = 64; /* lines are aligned as before */
	args.params.gemm.alpha = 3;
	expect(f, &args, 1, FIRST, true);
}

/* An absent operand has no memory to look at. */
static void an_absent_operand_makes_another_shape(void **state)
{
	struct fixture *f = *state;
	struct op_args with = gemm_of(f, 64), without = with;

	without.views[GEMM_BIAS] = (struct view){.rank = 0};
	expect(f, &with, BEFORE, FIRST, false);
	expect(f, &without, BEFORE, FIRST, false);
	expect(f, &without, 1, FIRST, true);
}

/* Returns what a job that begins now would tell its client. */
static bool is_settled(struct fixture *f, const struct op_args *args)
{
	struct run_op op = {.args = *args, .kernel = &kernels[planned(f, args, 1)]};
	struct run run = {.ops = &op, .n_ops = 1};
	struct trial trial;
	bool settled;

	if (learned_begin(f->learned, &run, &trial, &settled))
		learned_end(f->learned, &trial, f->us[trial.kernel]);
	return settled;
}

static void a_shape_is_settled_after_its_last_trial(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64), without_rivals = gemm_of(f, 65);

	for (unsigned i = 0; i < BEFORE + ALL_TRIALS; i++)
		assert_false(is_settled(f, &args));
	assert_true(is_settled(f, &args));
	f->expected_us[RIVAL] = 0;
	for (unsigned i = 0; i < BEFORE; i++)
		assert_false(is_settled(f, &without_rivals));
	assert_true(is_settled(f, &without_rivals));
}

/* ---- Data that change ---- */

enum { SLOW_JOBS = 3, LATER_JOBS = 64 };

static bool note(struct fixture *f, const struct op_args *args, bool is_slow, unsigned n)
{
	struct run_op op = {.args = *args, .kernel = &kernels[planned(f, args, 1)]};

	return learned_note(f->learned, &(struct run){.ops = &op, .n_ops = 1}, is_slow, n);
}

static double usual_us(struct fixture *f, const struct op_args *args)
{
	struct trial trial;

	assert_false(begin(f, args, planned(f, args, f->n_ops), &trial));
	return trial.usual_us;
}

static void jobs_are_compared_with_the_trials(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	assert_true(usual_us(f, &args) <= 0);
	count_trials(f, &args, 100);
	assert_true(usual_us(f, &args) > 79 && usual_us(f, &args) < 81);
	assert_false(learned_is_slow(80, 130));
	assert_true(learned_is_slow(80, 140));
	assert_false(learned_is_slow(8000, 11000));
	assert_true(learned_is_slow(8000, 11300));
	assert_false(learned_is_slow(2, 20)); /* the launch may be in it */
}

static void slow_jobs_in_a_row_begin_the_trials_anew(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	assert_false(note(f, &args, true, 1)); /* unknown yet */
	count_trials(f, &args, 100);
	for (unsigned i = 0; i < 10; i++) {
		assert_false(note(f, &args, true, 1));
		assert_false(note(f, &args, true, 1));
		assert_false(note(f, &args, false, 1));
	}
	for (unsigned i = 1; i < SLOW_JOBS; i++)
		assert_false(note(f, &args, true, 1));
	assert_true(note(f, &args, true, 1));
	f->us[RIVAL] = 300;
	expect(f, &args, TRIALS, FIRST, true);
	assert_in_range(count_trials(f, &args, 100), 1, TRIALS);
	expect(f, &args, 10, FIRST, false);
	/* From now on it takes twice as many. */
	for (unsigned i = 1; i < 2 * SLOW_JOBS; i++)
		assert_false(note(f, &args, true, 1));
	assert_true(note(f, &args, true, 1));
}

static void after_that_they_begin_anew_by_themselves(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	count_trials(f, &args, 100);
	assert_false(note(f, &args, false, 1000000)); /* nothing has changed yet */
	for (unsigned i = 0; i < SLOW_JOBS; i++)
		note(f, &args, true, 1);
	f->us[RIVAL] = 300;
	count_trials(f, &args, 100);
	assert_int_equal(planned(f, &args, 1), FIRST);
	f->us[RIVAL] = 80; /* the data are as before */
	for (unsigned times = 2; times <= 16; times *= 2) {
		assert_false(note(f, &args, false, times * LATER_JOBS - 1));
		assert_true(note(f, &args, false, 1));
		count_trials(f, &args, 100);
		assert_int_equal(planned(f, &args, 1), RIVAL);
	}
}

/* Fast jobs that are noted with a slow one end a row of slow ones, and count as jobs. */
static void a_slow_job_may_be_noted_with_those_before(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	count_trials(f, &args, 100);
	for (unsigned i = 1; i < SLOW_JOBS; i++)
		assert_false(note(f, &args, true, 1));
	assert_false(note(f, &args, true, 2));
	for (unsigned i = 2; i < SLOW_JOBS; i++)
		assert_false(note(f, &args, true, 1));
	assert_true(note(f, &args, true, 1));
	count_trials(f, &args, 100);
	assert_true(note(f, &args, true, 2 * LATER_JOBS));
}

static void what_cannot_run_is_not_tried_anew(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);

	count_trials(f, &args, 100);
	learned_reject(f->learned, &args, 1);
	assert_int_equal(planned(f, &args, 1), FIRST);
	for (unsigned i = 0; i < SLOW_JOBS; i++)
		note(f, &args, true, 1);
	expect(f, &args, TRIALS, FIRST, true);
	expect(f, &args, 100, FIRST, false);
}

/* Returns a copy as another process would read it. */
static struct learned *copy_of(struct fixture *f)
{
	struct learned_shape *shapes;
	struct learned *copy = new_learned(f);
	size_t n;

	assert_int_equal(learned_export(f->learned, &shapes, &n), 0);
	for (size_t i = 0; i < n; i++)
		assert_true(learned_import(copy, &shapes[i]));
	free(shapes);
	return copy;
}

static void what_was_shown_is_exported_and_imported(void **state)
{
	struct fixture *f = *state;
	struct op_args done = gemm_of(f, 64), begun = gemm_of(f, 65), seen = gemm_of(f, 66);
	uint64_t before = learned_changes(f->learned);

	assert_int_equal(count_trials(f, &done, 100), ALL_TRIALS);
	assert_int_equal(count_trials(f, &begun, BEFORE + 4), 4);
	assert_int_equal(count_trials(f, &seen, BEFORE), 0);
	assert_true(learned_changes(f->learned) > before);
	struct learned *copy = copy_of(f);
	learned_free(f->learned);
	f->learned = copy;
	assert_int_equal(planned(f, &done, 1), RIVAL);
	assert_true(is_settled(f, &done));
	assert_int_equal(count_trials(f, &begun, 100), ALL_TRIALS - 4);
	assert_int_equal(count_trials(f, &seen, BEFORE), 0);
	before = learned_changes(f->learned);
	expect(f, &done, 10, RIVAL, false);
	assert_int_equal(learned_changes(f->learned), before);
}

static void what_makes_no_sense_is_not_imported(void **state)
{
	struct fixture *f = *state;
	struct learned_shape good = {.op = op_by_name("gemm"), .hash = 7, .n = 2}, bad[8];

	good.candidates[0] = (struct learned_candidate){FIRST, 0, 10, TRIALS};
	good.candidates[1] = (struct learned_candidate){RIVAL, 5, 0, 0};
	for (unsigned i = 0; i < 8; i++)
		bad[i] = good;
	bad[0].n = 1;
	bad[1].n = LEARNED_CANDIDATES_MAX + 1;
	bad[2].candidates[1].kernel = N_KERNELS;
	bad[3].candidates[1].kernel = FIRST;
	bad[4].candidates[1].least_us = -1;
	bad[5].candidates[1].expected_us = NAN;
	bad[6].candidates[0].trials = TRIALS + CONFIRMATIONS + 1;
	bad[7].candidates[0].least_us = 1e300;
	for (unsigned i = 0; i < 8; i++)
		assert_false(learned_import(f->learned, &bad[i]));
	assert_true(learned_import(f->learned, &good));
}

static void new_shapes_take_the_places_of_the_oldest(void **state)
{
	struct fixture *f = *state;
	struct op_args args = gemm_of(f, 64);
	struct trial trial;

	expect(f, &args, BEFORE, FIRST, false);
	assert_true(begin(f, &args, FIRST, &trial));
	for (uint64_t n = 1000; n < 21000; n++) {
		struct op_args passing = gemm_of(f, n);
		expect(f, &passing, 1, FIRST, false);
	}
	learned_end(f->learned, &trial, 1); /* the question is obsolete */
	expect(f, &args, BEFORE, FIRST, false);
	assert_int_equal(count_trials(f, &args, 100), ALL_TRIALS);
	for (uint64_t n = 21000; n < 41000; n++) { /* used shapes stay, even for jobs of many ops */
		struct op_args passing = gemm_of(f, n);
		expect(f, &passing, 1, FIRST, false);
		assert_int_equal(planned(f, &args, 0), RIVAL);
	}
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	const struct CMUnitTest tests[] = {
	    TEST(the_faster_kernel_has_the_shape_after_the_trials),
	    TEST(the_first_choice_stays_where_a_rival_gains_little),
	    TEST(the_shortest_trial_of_a_kernel_counts),
	    TEST(a_winner_is_confirmed_against_the_first_choice),
	    TEST(what_is_far_from_the_first_is_not_tried),
	    TEST(a_kernel_that_proves_to_be_slow_is_tried_twice),
	    TEST(a_kernel_slower_than_any_loading_is_tried_once),
	    TEST(the_first_launch_of_a_kernel_may_be_slow),
	    TEST(the_likelier_rival_is_tried_first_and_may_end_it),
	    TEST(shapes_without_rivals_have_no_trials),
	    TEST(one_trial_is_out_at_a_time),
	    TEST(a_trial_that_never_ran_is_repeated),
	    TEST(a_kernel_whose_trial_fails_has_no_other),
	    TEST(a_kernel_that_the_device_refuses_is_not_asked_for_again),
	    TEST(a_refusal_costs_other_rivals_nothing),
	    TEST(a_trial_of_the_first_choice_may_fail),
	    TEST(a_kernel_that_is_refused_during_its_trial_stays_refused),
	    TEST(the_fastest_kernel_is_given_up_where_the_device_refuses_it),
	    TEST(a_kernel_that_is_not_taken_is_not_due_for_ever),
	    TEST(jobs_of_ops_that_differ_are_no_trials_and_gain_by_them),
	    TEST(jobs_of_ops_that_differ_take_what_is_clearly_faster),
	    TEST(jobs_of_several_ops_have_trials_of_their_own),
	    TEST(an_op_among_others_may_have_another_kernel),
	    TEST(a_job_that_runs_several_kernels_is_no_trial),
	    TEST(ops_are_alike_that_have_one_shape_and_name_no_kernel),
	    TEST(what_may_gain_for_single_jobs_alone_is_tried),
	    TEST(a_trial_may_outlast_its_table),
	    TEST(what_a_kernel_may_depend_on_is_another_shape),
	    TEST(an_absent_operand_makes_another_shape),
	    TEST(a_shape_is_settled_after_its_last_trial),
	    TEST(jobs_are_compared_with_the_trials),
	    TEST(slow_jobs_in_a_row_begin_the_trials_anew),
	    TEST(after_that_they_begin_anew_by_themselves),
	    TEST(a_slow_job_may_be_noted_with_those_before),
	    TEST(what_cannot_run_is_not_tried_anew),
	    TEST(what_was_shown_is_exported_and_imported),
	    TEST(what_makes_no_sense_is_not_imported),
	    TEST(new_shapes_take_the_places_of_the_oldest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
