/*
 * check_kernels: compares every op × device × kernel with the op's reference, through the table of its driver.
 *
 * Checks the driver of the CPU, or with --module the devices of that module. Every kernel runs the same
 * problems, so a failure can be repeated with --seed and --case. Exit status: 0 right, 1 wrong, 2 usage, 77 no
 * device.
 */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "seed.h"

#define KERNELS_MAX 32
#define OFTEN       100 /* cases after which chance has left no part out; one of as many is large */

struct kernel_result {
	const char *name; /* "" for auto */
	unsigned ran, refused, failed;
	unsigned special; /* cases with NaN or Inf among the inputs */
	double worst;
};

struct table {
	struct kernel_result kernels[KERNELS_MAX];
	unsigned n;
};

/* Returns true if `kernel` is one of the names separated by commas. */
static bool is_left_out(const struct options *o, const char *kernel)
{
	size_t length = strlen(kernel);

	for (const char *at = o->without; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (strncmp(at, kernel, length) == 0 && (at[length] == ',' || at[length] == '\0'))
			return true;
	return false;
}

static void make_table(struct table *table, const struct target *t, const struct options *o,
                       const struct op *op)
{
	const struct kernel_list *list = t->driver->kernels(op);
	bool all = true; /* kernels of the list that may run */

	*table = (struct table){0};
	for (size_t i = 0; i < list->n && table->n < KERNELS_MAX - 1; i++) {
		all = all && !is_left_out(o, list->kernels[i].name);
		if ((!o->kernel || strcmp(o->kernel, list->kernels[i].name) == 0) &&
		    !is_left_out(o, list->kernels[i].name))
			table->kernels[table->n++].name = list->kernels[i].name;
	}
	if (all && (!o->kernel || strcmp(o->kernel, "auto") == 0))
		table->kernels[table->n++].name = "";
}

static void report(const struct target *t, const struct options *o, const struct problem *p, unsigned number,
                   const struct kernel_result *kernel, const char *why)
{
	char text[CHECK_TEXT_BYTES];

	problem_describe(p, text);
	printf("FAILED %s %s kernel %s: %s\n  %s\n  again: --seed %llu --often %u --op %s --case %u%s%s\n",
	       t->name, p->args.op->name, *kernel->name ? kernel->name : "auto", why, text,
	       (unsigned long long)o->seed, o->often, p->args.op->name, number,
	       *kernel->name ? " --kernel " : "", kernel->name);
}

static void check_kernel(struct target *t, const struct options *o, struct problem *p,
                         const struct oracle *oracle, unsigned number, struct kernel_result *kernel)
{
	struct run_op op = {.args = p->args, .pinned = kernel->name};
	struct run run = {.ops = &op, .n_ops = 1, .lane = number % 3};
	struct space *spaces[OP_OPERANDS_MAX];
	struct verdict verdict = {0};

	for (unsigned i = 0; i < p->n_storage; i++)
		spaces[i] = &p->storage[i];
	int rc = target_run(t, &run, spaces, p->n_storage);
	if (rc == KOPS_E_UNSUPPORTED && *kernel->name) {
		kernel->refused++;
		return;
	}
	kernel->ran++;
	kernel->special += p->special;
	if (rc == 0)
		judge(oracle, p, &verdict);
	else
		snprintf(verdict.why, sizeof verdict.why, "status %d: %s", rc, run.error);
	kernel->worst = verdict.worst > kernel->worst ? verdict.worst : kernel->worst;
	if (verdict.right)
		return;
	if (kernel->failed++ < 3)
		report(t, o, p, number, kernel, verdict.why);
}

/*
 * Returns the number of the large problem, from 1 on; 0: it is not large. The CPU's kernels take everything, so
 * large problems would only take long there.
 */
static unsigned large_of(const struct target *t, const struct options *o, unsigned number)
{
	bool large = number % o->often == o->often - 1 && strcmp(t->driver->kind, "cpu") != 0;

	return large ? number / o->often + 1 : 0;
}

/* Runs one problem on every kernel. Returns false if the reference is wrong or there is no memory. */
static bool check_case(struct target *t, const struct options *o, const struct op *op, unsigned number,
                       struct table *table)
{
	struct random r = {o->seed * 1000003 + number};
	struct problem p;
	struct oracle oracle = {0};
	struct kernel_result reference = {.name = "reference"};
	char why[CHECK_TEXT_BYTES] = "out of memory";
	bool made = problem_make(&p, op, large_of(t, o, number), &r) && oracle_make(&oracle, &p, why);

	if (!made)
		report(t, o, &p, number, &reference, why);
	for (unsigned i = 0; made && i < table->n; i++)
		check_kernel(t, o, &p, &oracle, number, &table->kernels[i]);
	oracle_free(&oracle);
	problem_free(&p);
	return made;
}

/* Returns what many problems left unchecked, or NULL. One problem in five has NaN or Inf. */
static const char *find_gap(const struct kernel_result *kernel)
{
	if (kernel->ran == 0 && kernel->refused >= OFTEN)
		return "supports none of the problems";
	return kernel->ran >= OFTEN && kernel->special == 0 ? "no problem with NaN or Inf reached it" : NULL;
}

static unsigned print_table(const struct target *t, const struct options *o, const struct op *op,
                            const struct table *table)
{
	unsigned failed = 0;

	for (unsigned i = 0; i < table->n; i++) {
		const struct kernel_result *kernel = &table->kernels[i];
		const char *gap = o->only_case < 0 ? find_gap(kernel) : NULL;
		failed += kernel->failed + (gap != NULL);
		if (o->quiet && !kernel->failed && !gap)
			continue;
		printf("%-6s %-10s %-12s %6u cases %6u refused %6u failed  worst error / bound %.3f%s%s\n",
		       t->name, op->name, *kernel->name ? kernel->name : "auto", kernel->ran, kernel->refused,
		       kernel->failed, kernel->worst, gap ? "  FAILED: " : "", gap ? gap : "");
	}
	return failed;
}

static unsigned check_op(struct target *t, const struct options *o, const struct op *op)
{
	struct table table;
	unsigned failed = 0;

	make_table(&table, t, o, op);
	for (unsigned number = 0; number < o->cases; number++)
		if (o->only_case < 0 || number == (unsigned)o->only_case)
			failed += !check_case(t, o, op, number, &table);
	return failed + print_table(t, o, op, &table);
}

/* Checks every kernel with launch_together(), on ops that are alike. */
static unsigned check_together(struct target *t, const struct options *o, const struct op *op)
{
	const struct kernel_list *list = t->driver->kernels(op);
	unsigned failed = 0;

	for (size_t i = 0; i < list->n; i++) {
		const struct kernel *kernel = &list->kernels[i];
		if (kernel->launch_together && (!o->kernel || strcmp(o->kernel, kernel->name) == 0) &&
		    !is_left_out(o, kernel->name))
			failed += together_check(t, o, op, kernel);
	}
	return failed;
}

static unsigned check_device(struct target *t, const void *options)
{
	const struct options *o = options;
	unsigned failed = 0;

	if (!o->quiet)
		printf("%s: %s\n", t->name, t->planner.info.description);
	if (o->large)
		return large_check(t, o);
	for (size_t i = 0; i < OP_COUNT; i++)
		if (!o->op || strcmp(o->op, ops[i]->name) == 0)
			failed +=
			    check_op(t, o, ops[i]) + (o->only_case < 0 ? check_together(t, o, ops[i]) : 0);
	if (!o->op && !o->kernel && !o->without && o->only_case < 0)
		failed += chain_check(t, o);
	return failed;
}

static int usage(FILE *to)
{
	fputs("usage: check_kernels [options]\n"
	      "  --seed N       of the problems, or random (default: $KOPS_TEST_SEED, else 1)\n"
	      "  --cases N      problems per op (default 150)\n"
	      "  --case N       this one only\n"
	      "  --op NAME      this op only\n"
	      "  --kernel NAME  this kernel only; auto: none by name\n"
	      "  --without NAMES all kernels but these (a,b), and no choice that might fall on one\n"
	      "  --module PATH  check the devices of this module, not the CPU\n"
	      "  --device NAME  this device only\n"
	      "  --often N      one of so many is large, where not on the CPU (default 100)\n"
	      "  --large        only outputs of more than 2^31 elements; needs 18 GiB on the device\n"
	      "  --quiet        print failures only\n",
	      to);
	return to == stdout ? 0 : 2;
}

static const struct option long_options[] = {
    {"seed", required_argument, NULL, 's'},
    {"cases", required_argument, NULL, 'n'},
    {"case", required_argument, NULL, 'c'},
    {"op", required_argument, NULL, 'o'},
    {"kernel", required_argument, NULL, 'r'},
    {"without", required_argument, NULL, 'w'},
    {"module", required_argument, NULL, 'm'},
    {"device", required_argument, NULL, 'd'},
    {"often", required_argument, NULL, 'f'},
    {"large", no_argument, NULL, 'l'},
    {"quiet", no_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

/* Returns true to go on; else *ret_status is the exit status. */
static bool parse(int argc, char **argv, struct options *o, int *ret_status)
{
	int c;

	while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
		switch (c) {
		case 's':
			o->seed = seed_parse(optarg);
			break;
		case 'n':
			o->cases = (unsigned)strtoul(optarg, NULL, 0);
			break;
		case 'c':
			o->only_case = atoi(optarg);
			o->cases = (unsigned)o->only_case + 1;
			break;
		case 'o':
			o->op = optarg;
			break;
		case 'r':
			o->kernel = optarg;
			break;
		case 'w':
			o->without = optarg;
			break;
		case 'm':
			o->module = optarg;
			break;
		case 'd':
			o->device = optarg;
			break;
		case 'f':
			o->often = (unsigned)strtoul(optarg, NULL, 0);
			break;
		case 'l':
			o->large = true;
			break;
		case 'q':
			o->quiet = true;
			break;
		default:
			*ret_status = usage(c == 'h' ? stdout : stderr);
			return false;
		}
	}
	return true;
}

int main(int argc, char **argv)
{
	struct options o = {.seed = seed_of_run(), .cases = 150, .only_case = -1, .often = OFTEN};
	int status;

	if (!parse(argc, argv, &o, &status))
		return status;
	if (o.often == 0)
		return usage(stderr);
	if (o.op && !op_by_name(o.op)) {
		fprintf(stderr, "there is no op %s\n", o.op);
		return 2;
	}
	printf("seed %llu\n", (unsigned long long)o.seed);
	setvbuf(stdout, NULL, _IOLBF, 0);
	const struct driver *driver = target_driver(o.module);
	if (!driver)
		return 1;
	int failed = target_each(driver, o.device, check_device, &o);
	if (failed < 0)
		return 77;
	printf(failed ? "%d FAILED\n" : "all right\n", failed);
	return failed ? 1 : 0;
}
