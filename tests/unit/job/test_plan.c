/* Tests how long a job may take, and keep its device, by its planned time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "job/job.h"
#include "job/plan.h"

/* The planned time of each op, whose elements take equally long and may each be a part. */
static double planned_us;
static uint32_t planned_parts;

static bool supports(const struct op_args *args, const char **ret_why_not)
{
	(void)args;
	(void)ret_why_not;
	return true;
}

static double time_ns(const struct op_args *args)
{
	return (double)view_elements(op_output_const(args)) * planned_us * 1e3 / planned_parts;
}

static const struct kernel_list *kernels_of(const struct op *op)
{
	static const struct kernel kernel = {.name = "whole", .supports = supports, .time_ns = time_ns};
	static const struct kernel_list list = {&kernel, 1};

	(void)op;
	return &list;
}

static void notify(struct device_state *dev, void (*wake)(void *arg), void *arg)
{
	(void)dev;
	(void)wake;
	(void)arg;
}

static const struct driver host = {.kind = "cpu"};
static const struct driver gpu = {.kind = "gpu", .notify = notify};

/* Plans a job of n_ops ops. */
static int try_plan(const struct driver *driver, unsigned n_ops, double us, uint32_t parts, char why[WHY_BYTES])
{
	const struct config config = {.max_hold = 100, .max_run_time = 5000, .hang_timeout = 2000};
	const struct planner planner = {.kernels = kernels_of, .info.memory_bytes = 1 << 30};
	struct device device = {.name = "it", .driver = driver, .planner = &planner, .info = &planner.info};
	struct engine e = {.config = &config, .n_devices = 1, .devices[0].device = &device};
	struct account account = {.refs = 1};
	struct job_queues queues = {0};
	struct job *job = job_new(&e, &account, &queues, 0, n_ops, 0);
	struct planning planning = {.device_name = ""};
	struct memory memory = {.bytes = 1 << 20, .reached_bytes = 1 << 20}; /* no page is new */
	const struct view line = {
	    .space = &memory, .dtype = KOPS_F32, .rank = 1, .shape = {parts}, .strides = {1}};
	int rc;

	assert_non_null(job);
	for (unsigned i = 0; i < n_ops; i++) {
		job->ops[i].args = (struct op_args){.op = op_by_name("copy"), .views = {line, line}};
		job->ops[i].pinned = "";
	}
	planned_us = us;
	planned_parts = parts;
	why[0] = '\0';
	do
		rc = job_plan(job, &planning, why);
	while (rc == PLAN_GOES_ON);
	job_free(job);
	job_queues_forget(&queues);
	return rc;
}

static void an_op_keeps_the_device_for_so_long(void **state)
{
	char why[WHY_BYTES];

	(void)state;
	assert_int_equal(try_plan(&host, 1, 100000, 1, why), 0);
	assert_int_equal(try_plan(&host, 2, 100001, 1, why), KOPS_E_QUOTA);
	assert_string_equal(
	    why, "op 1 of 2 (copy, kernel whole) cannot be paused, and its estimated run time of 0.1 s "
	         "exceeds the limit of 0.1 s (max-hold); split the op, or choose another kernel");
	assert_int_equal(try_plan(&host, 1, 1000000, 10, why), 0);
	assert_int_equal(try_plan(&host, 1, 1001000, 10, why), KOPS_E_QUOTA);
}

static void a_job_takes_so_long(void **state)
{
	char why[WHY_BYTES];

	(void)state;
	assert_int_equal(try_plan(&host, 10, 500000, 50, why), 0);
	assert_int_equal(try_plan(&host, 10, 500001, 50, why), KOPS_E_QUOTA);
	assert_string_equal(
	    why, "the job's estimated run time of 5 s exceeds the limit of 5 s (max-run-time); split the job");
	/* A larger max-hold would not help. */
	assert_int_equal(try_plan(&host, 1, 6000000, 1, why), KOPS_E_QUOTA);
	assert_string_equal(
	    why, "the job's estimated run time of 6 s exceeds the limit of 5 s (max-run-time); split the job");
}

/* A GPU whose job takes longer would seem to hang. */
static void a_job_of_a_gpu_is_not_taken_for_a_hang(void **state)
{
	char why[WHY_BYTES];

	(void)state;
	assert_int_equal(try_plan(&gpu, 10, 200000, 50, why), 0);
	assert_int_equal(try_plan(&gpu, 10, 200001, 50, why), KOPS_E_QUOTA);
	assert_string_equal(
	    why, "the job's estimated run time of 2 s exceeds the limit of 2 s (hang-timeout); split the job");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
	    cmocka_unit_test(an_op_keeps_the_device_for_so_long),
	    cmocka_unit_test(a_job_takes_so_long),
	    cmocka_unit_test(a_job_of_a_gpu_is_not_taken_for_a_hang),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
