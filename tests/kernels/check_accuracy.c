/*
 * check_accuracy: compares the errors of a kernel of gemm, by default `auto`'s for precision f32, with a peer's
 * on the same data.
 *
 * Its largest error may be no larger than the peer's. Its RMS may be no larger than the peer's, or than that of
 * a sequential loop of FMAs. Chance is excused. With a million elements that allows half a percent of the RMS,
 * and twice the peer's largest error for fewer than 20 elements. With 4096 elements it allows 8 percent and 2.7
 * times. contest.c says how this is judged, duel.c what an error is.
 *
 * A case is a shape with layouts and a distribution; every second shape is from a list, the others are random.
 * Each case prints one line with both errors, in units of 2^-24. Cases of few elements are also judged
 * together. NaN, Inf and overflow are a distribution each: elements must be finite, Inf, -Inf or NaN where the
 * peer's are.
 *
 * Exit status: 0 right, 1 wrong, 2 usage, 77 no device.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "accuracy.h"
#include "common/threads.h"
#include "seed.h"

#define UNIT  0x1p-24
#define FEW   4096 /* elements; smaller cases are also judged together */
#define LINES 26   /* rows or columns; smaller cases can only be judged together (contest.c) */
#define LEAST 64   /* elements; smaller cases are drawn several times */
/*
 * Every other random shape has M and N of at least this part of the largest: kernels other than the peer are
 * for large products.
 */
#define LARGE_PART 8
#define EXTENT_MAX 4096
#define BLOCK_MIN  64 /* no block of OpenBLAS is shorter */

struct accuracy_options {
	uint64_t seed, k_max, extent_max, multiple;
	unsigned cases, keep_bits;
	int only_case;                                              /* -1: all */
	const char *kernel, *peer, *distribution, *device, *module; /* distribution: NULL for all */
};

/* Limits on what a case may take. */
struct bounds {
	double products, elements;
};

/* The results of one distribution. */
struct tally {
	unsigned fought, same, refused, failed;
	double worst_max, worst_rms; /* ratios to the peer's, of cases that are not few */
	struct pool peer, sequential;
};

/* ---- Cases ---- */

struct shape {
	uint64_t m, n, k;
};

static const struct shape shapes[] = {
    {512, 512, 4096},  {768, 768, 64}, {1024, 1024, 256}, {1, 1, 65536},     {2048, 2048, 1024},
    {768, 768, 16384}, {300, 200, 1},  {1000, 1000, 16},  {64, 64, 65536},   {4096, 4096, 128},
    {768, 768, 768},   {1, 4096, 300}, {1000, 1000, 999}, {128, 4096, 8192},
};

#define SHAPES (sizeof shapes / sizeof shapes[0])

static uint64_t log_uniform(struct random *r, uint64_t least, uint64_t most)
{
	double span = log(((double)most + 1) / (double)least), x = 0.5 + 0.5 * random_unit(r);
	uint64_t extent = (uint64_t)((double)least * exp(span * x));

	return extent < most ? extent : most;
}

static uint64_t least_of(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static struct shape random_shape(struct random *r, const struct accuracy_options *o)
{
	uint64_t least = random_chance(r, 50) ? (o->extent_max + LARGE_PART - 1) / LARGE_PART : 1;

	return (struct shape){log_uniform(r, least, o->extent_max), log_uniform(r, least, o->extent_max),
	                      log_uniform(r, 1, o->k_max)};
}

static bool is_within(const struct shape *s, const struct bounds *most)
{
	double m = (double)s->m, n = (double)s->n, k = (double)s->k;

	return m * n * k <= most->products && m * k + k * n + m * n <= most->elements;
}

static uint64_t rounded(uint64_t extent, uint64_t multiple)
{
	return (extent + multiple - 1) / multiple * multiple;
}

static struct shape limited(struct shape s, const struct bounds *most, const struct accuracy_options *o)
{
	s = (struct shape){least_of(s.m, o->extent_max), least_of(s.n, o->extent_max), least_of(s.k, o->k_max)};
	while (!is_within(&s, most)) {
		uint64_t *largest = s.m >= s.n ? &s.m : &s.n;
		largest = *largest > 1 ? largest : &s.k;
		*largest /= 2;
	}
	return (struct shape){rounded(s.m, o->multiple), rounded(s.n, o->multiple), rounded(s.k, o->multiple)};
}

/* Sanitizers make the loops slow. If the plain loop is the peer, it computes all elements of some cases. */
static struct bounds bounds_of(const struct accuracy_options *o, unsigned distribution)
{
#ifdef KOPS_SANITIZE
	struct bounds host = {0x1p21, 0x1p17};
#else
	struct bounds host = {0x1p25, 0x1p20};
#endif

	if (o->module && !(distribution_is_classes(distribution) && strcmp(o->peer, SEQUENTIAL) == 0))
		return (struct bounds){0x1p38, 0x1p25};
	if (distribution_is_classes(distribution))
		host.products = 0x1p21;
	return host;
}

/*
 * OpenBLAS adds blocks of K to beta C0 one after the other, and scales and rounds each time. A loop that does
 * so once cannot be its peer.
 */
static bool may_scale(const struct duel *d)
{
	return !distribution_is_classes(d->distribution) &&
	       (strcmp(d->peer, SEQUENTIAL) != 0 || d->k <= BLOCK_MIN);
}

static void choose_scalars(struct duel *d, struct random *r)
{
	static const double usual[] = {1, -1, 0.5};

	d->alpha = 1;
	if (!may_scale(d) || random_chance(r, 75))
		return;
	d->alpha = random_chance(r, 50) ? usual[random_below(r, 3)] : (double)(float)(4 * random_unit(r));
	d->beta = random_chance(r, 50) ? usual[random_below(r, 3)] : (double)(float)random_unit(r);
}

/* Numbers the cases by distributions, and for each round of these by shapes. */
static struct duel make_case(const struct accuracy_options *o, unsigned number)
{
	struct random r = {o->seed * 1000003 + number};
	unsigned distribution = number % DISTRIBUTIONS, round = number / DISTRIBUTIONS;
	struct bounds most = bounds_of(o, distribution);
	struct shape s = round % 2 ? random_shape(&r, o) : shapes[(round / 2 + distribution) % SHAPES];
	struct duel d = {.distribution = distribution,
	                 .kernel = strcmp(o->kernel, "auto") == 0 ? "" : o->kernel,
	                 .peer = o->peer,
	                 .keep_bits = o->keep_bits};

	s = limited(s, &most, o);
	d.m = s.m, d.n = s.n, d.k = s.k;
	d.draws = s.m * s.n < LEAST ? (unsigned)((LEAST + s.m * s.n - 1) / (s.m * s.n)) : 1;
	for (unsigned i = 0; i < 3; i++)
		d.transposed[i] = random_chance(&r, i < 2 ? 50 : 20);
	choose_scalars(&d, &r);
	d.seed = random_next(&r);
	return d;
}

/* ---- Judging and telling ---- */

static double ratio(double own, double peer)
{
	return own == peer ? 1 : own / peer;
}

static void print_case(const struct target *t, const struct duel *d, unsigned number, const char *kernel)
{
	static const char letters[2] = {'N', 'T'};

	printf("%s %3u %-10s %llux%llux%llu %c%c>%c", t->name, number, distribution_name(d->distribution),
	       (unsigned long long)d->m, (unsigned long long)d->n, (unsigned long long)d->k,
	       letters[d->transposed[0]], letters[d->transposed[1]], letters[d->transposed[2]]);
	if (d->alpha != 1 || d->beta != 0)
		printf(" alpha %g beta %g", d->alpha, d->beta);
	printf("  %s", kernel);
}

static void print_score(const char *who, const struct score *s)
{
	printf(", %s %.3g %.3g", who, s->peer_max / UNIT, s->peer_rms / UNIT);
}

/* With K = 1 the peer rounds each element once, so its result is as exact as possible. */
static bool is_exact(const struct duel *d)
{
	return d->k == 1 && d->alpha == 1 && d->beta == 0;
}

static bool judge_errors(const struct duel *d, const struct duel_result *result, struct tally *tally)
{
	bool exact = is_exact(d), alternative = result->sequential.n > 0;
	struct score peer, sequential;

	contest_score(&result->peer, &peer);
	contest_score(&result->sequential, &sequential);
	bool max_holds = score_max_holds(&peer, exact);
	bool rms_holds = score_rms_holds(&peer, exact) || (alternative && score_rms_holds(&sequential, exact));

	printf(" max %.3g rms %.3g", peer.own_max / UNIT, peer.own_rms / UNIT);
	print_score(d->peer, &peer);
	printf(", ratios %.3f %.3f", ratio(peer.own_max, peer.peer_max), ratio(peer.own_rms, peer.peer_rms));
	if (alternative)
		print_score(SEQUENTIAL, &sequential);
	printf(" (%llu elements)", (unsigned long long)(alternative ? sequential.n : peer.n));
	if (peer.n < FEW || d->m < LINES || d->n < LINES) {
		pool_add(&tally->peer, &peer);
		pool_add(&tally->sequential, alternative ? &sequential : &peer);
	} else {
		tally->worst_max = fmax(tally->worst_max, ratio(peer.own_max, peer.peer_max));
		tally->worst_rms = fmax(tally->worst_rms, ratio(peer.own_rms, peer.peer_rms));
	}
	printf("%s%s%s\n", max_holds && rms_holds ? ": right" : ": FAILED", max_holds ? "" : " by the largest",
	       rms_holds ? "" : " by the RMS");
	return max_holds && rms_holds;
}

static bool judge_classes(const struct duel_result *result)
{
	if (result->differ == 0)
		printf(": right, %llu elements of the same class\n", (unsigned long long)result->elements);
	else
		printf(": FAILED, %llu of %llu elements of another class: %s\n",
		       (unsigned long long)result->differ, (unsigned long long)result->elements, result->why);
	return result->differ == 0;
}

static bool judge_fought(const struct duel *d, const struct duel_result *result, struct tally *tally)
{
	tally->fought++;
	return distribution_is_classes(d->distribution) ? judge_classes(result)
	                                                : judge_errors(d, result, tally);
}

static void check_case(struct target *t, const struct accuracy_options *o, unsigned number,
                       struct tally tallies[DISTRIBUTIONS])
{
	struct duel d = make_case(o, number);
	struct tally *tally = &tallies[d.distribution];
	struct duel_result result;

	duel_fight(t, &d, &result);
	print_case(t, &d, number, *result.kernel ? result.kernel : o->kernel);
	switch (result.outcome) {
	case DUEL_FOUGHT:
		tally->failed += !judge_fought(&d, &result, tally);
		break;
	case DUEL_SAME_KERNEL:
		tally->same++;
		printf(": the peer itself\n");
		break;
	case DUEL_REFUSED:
		tally->refused++;
		printf(": refused, %s\n", result.why);
		break;
	case DUEL_BROKEN:
		tally->failed++;
		printf(": FAILED, %s\n", result.why);
		break;
	}
	duel_result_free(&result);
}

/* Returns how many verdicts of all its cases are bad. */
static unsigned print_tally(const struct target *t, unsigned distribution, const struct tally *tally)
{
	if (tally->fought + tally->same + tally->refused + tally->failed == 0)
		return 0;
	bool max_holds = pool_max_holds(&tally->peer);
	bool rms_holds = pool_rms_holds(&tally->peer) || pool_rms_holds(&tally->sequential);

	printf("%-6s %-10s %4u compared %4u the peer itself %4u refused %4u failed", t->name,
	       distribution_name(distribution), tally->fought, tally->same, tally->refused, tally->failed);
	if (tally->worst_rms > 0)
		printf("  worst ratios %.3f %.3f", tally->worst_max, tally->worst_rms);
	printf("%s%s\n", max_holds ? "" : "  FAILED: small cases together, by the largest",
	       rms_holds ? "" : "  FAILED: small cases together, by the RMS");
	return tally->failed + !max_holds + !rms_holds;
}

static bool is_wanted(const struct accuracy_options *o, unsigned number)
{
	if (o->only_case >= 0)
		return number == (unsigned)o->only_case;
	return !o->distribution || strcmp(o->distribution, distribution_name(number % DISTRIBUTIONS)) == 0;
}

static unsigned check_device(struct target *t, const void *options)
{
	const struct accuracy_options *o = options;
	struct tally tallies[DISTRIBUTIONS] = {0};
	unsigned failed = 0, met = 0, same = 0;

	printf("%s: %s; errors, max and RMS, in units of 2^-24\n", t->name, t->planner.info.description);
	for (unsigned number = 0; number < o->cases; number++)
		if (is_wanted(o, number))
			check_case(t, o, number, tallies);
	for (unsigned d = 0; d < DISTRIBUTIONS; d++) {
		failed += print_tally(t, d, &tallies[d]);
		met += tallies[d].fought;
		same += tallies[d].same;
	}
	if (met == 0 && same > 0)
		printf("FAILED: nothing was compared, %s is the peer itself in all cases it took\n", o->kernel);
	else if (met == 0)
		printf("FAILED: %s took none of the cases\n", o->kernel);
	return failed + (met == 0);
}

/* ---- Options ---- */

static int usage(FILE *to)
{
	fputs("usage: check_accuracy [options]\n"
	      "  --seed N       of the cases, or random (default: $KOPS_TEST_SEED, else 1)\n"
	      "  --cases N      how many (default 150)\n"
	      "  --case N       this one only\n"
	      "  --kernel NAME  the kernel that is judged (default auto)\n"
	      "  --peer NAME    the kernel it is held against, or \"sequential\", a loop in this program\n"
	      "                 (default cublas, without --module sequential)\n"
	      "  --distribution NAME  cases of this one only, such as lognormal2; --cases counts the others, "
	      "too\n"
	      "  --k-max N      no K above that (default 65536)\n"
	      "  --extent-max N no M or N above that (default 4096)\n"
	      "  --multiple N   extents then rounded up to multiples of that (default 1)\n"
	      "  --module PATH  check the devices of this module, not the CPU\n"
	      "  --device NAME  this device only\n"
	      "  --keep-bits N  give the kernel operands rounded to N bits: to see that it is found out\n",
	      to);
	return to == stdout ? 0 : 2;
}

static const struct option long_options[] = {
    {"seed", required_argument, NULL, 's'},      {"cases", required_argument, NULL, 'n'},
    {"case", required_argument, NULL, 'c'},      {"kernel", required_argument, NULL, 'r'},
    {"peer", required_argument, NULL, 'p'},      {"distribution", required_argument, NULL, 'i'},
    {"k-max", required_argument, NULL, 'k'},     {"extent-max", required_argument, NULL, 'e'},
    {"multiple", required_argument, NULL, 'u'},  {"module", required_argument, NULL, 'm'},
    {"device", required_argument, NULL, 'd'},    {"help", no_argument, NULL, 'h'},
    {"keep-bits", required_argument, NULL, 'b'}, {0},
};

/* Returns true to go on; else *ret_status is the exit status. */
static bool parse(int argc, char **argv, struct accuracy_options *o, int *ret_status)
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
		case 'r':
			o->kernel = optarg;
			break;
		case 'p':
			o->peer = optarg;
			break;
		case 'i':
			o->distribution = optarg;
			break;
		case 'k':
			o->k_max = strtoull(optarg, NULL, 0);
			break;
		case 'e':
			o->extent_max = strtoull(optarg, NULL, 0);
			break;
		case 'u':
			o->multiple = strtoull(optarg, NULL, 0);
			break;
		case 'm':
			o->module = optarg;
			break;
		case 'd':
			o->device = optarg;
			break;
		case 'b':
			o->keep_bits = (unsigned)strtoul(optarg, NULL, 0);
			break;
		default:
			*ret_status = usage(c == 'h' ? stdout : stderr);
			return false;
		}
	}
	return true;
}

/* Without FMA, OpenBLAS rounds each product and each sum, and errs more than the loop here. */
static bool has_fma(void)
{
#ifdef __x86_64__
	return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
#else
	return true;
#endif
}

int main(int argc, char **argv)
{
	struct accuracy_options o = {.seed = seed_of_run(),
	                             .cases = 150,
	                             .only_case = -1,
	                             .k_max = 65536,
	                             .kernel = "auto",
	                             .extent_max = EXTENT_MAX,
	                             .multiple = 1};
	int status;

	if (!parse(argc, argv, &o, &status))
		return status;
	if (o.k_max == 0 || o.extent_max == 0 || o.multiple == 0)
		return usage(stderr);
	if (!o.peer)
		o.peer = o.module ? "cublas" : SEQUENTIAL;
	if (!o.module && !has_fma()) {
		printf("skipped: this CPU has no AVX2 with fused multiply-add\n");
		return 77;
	}
	threads_set((unsigned)sysconf(_SC_NPROCESSORS_ONLN)); /* the driver of the CPU sets its own number */
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
