#include "tune/tune.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "choice/race.h"
#include "files/sink.h"
#include "random.h"
#include "show.h"
#include "tune/grid.h"
#include "tune/table.h"

#define LIMIT_MS_DEFAULT 60000
#define REPS             5
#define WARMUP           1
#define FOOTPRINT_GPU    (8ull << 30)
#define FOOTPRINT_CPU    (256ull << 20)
#define LAUNCHES         12   /* of one kernel on one shape, roughly */
#define SHARE            8    /* a shape may take this part of the time that is left */
#define GAIN_MIN         1.02 /* less is noise */

/* What came of one op. */
struct sum {
	size_t classes, changed;
	double gain; /* the largest */
	char where[BENCH_CLASS_BYTES], from[64], to[64];
};

struct tune {
	struct bench bench;
	const struct operation *const *ops;
	size_t n_ops;
	const char *path;
	struct sink *sink;
	struct race_field field;
	struct tune_lines lines;
	struct sum sums[OPERATIONS];
	double start_us, end_us, shown_us;
	double us_per_work; /* of the fastest kernel on the last shape; 0: not known */
};

/* ---- Ctrl-C: what is measured stays ---- */

static volatile sig_atomic_t interrupted;
static struct sigaction action_before;

/* The second time it ends the program. */
static void on_interrupt(int number)
{
	interrupted = 1;
	sigaction(number, &action_before, NULL);
}

static void catch_interrupt(void)
{
	struct sigaction action = {.sa_handler = on_interrupt, .sa_flags = SA_RESTART};

	sigaction(SIGINT, NULL, &action_before);
	if (action_before.sa_handler != SIG_IGN) /* a shell's background job goes on */
		sigaction(SIGINT, &action, NULL);
}

/* ---- The file, before and after the work ---- */

/* That what stands there is a table, and another can be put in its place. */
static int prepare_file(struct tune *t)
{
	struct cli *cli = t->bench.cli;
	char why[CLI_WHY_BYTES], *old;

	t->path = cli->flags.output ? cli->flags.output : TUNE_TABLE_PATH;
	int rc = tune_table_read(t->path, &old, why);
	free(old);
	if (rc == KOPS_E_INVALID)
		return cli_fail(cli, CLI_FAILED, "%s", why);
	if (rc == 0)
		t->sink = sink_replace(t->path, why);
	if (t->sink)
		return CLI_OK;
	return cli_fail(cli, CLI_FAILED,
	                "%s; run it as root where kopsd has been started, or give --output FILE and set "
	                "tuning-table = FILE in kopsd.conf",
	                why);
}

static int write_over(struct tune *t, const char *old)
{
	struct cli *cli = t->bench.cli;
	char date[64], *text = NULL;
	time_t now = time(NULL);
	struct tm tm;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);

	if (out == NULL)
		return cli_fail(cli, CLI_FAILED, "out of memory");
	strftime(date, sizeof(date), "%Y-%m-%d %H:%M:%S UTC", gmtime_r(&now, &tm));
	tune_table_write(out, old, t->bench.info->daemon, t->bench.device->description, date, &t->lines);
	int rc = fclose(out) == 0 ? CLI_OK : cli_fail(cli, CLI_FAILED, "out of memory");
	if (rc == CLI_OK && bytes > TUNING_BYTES_MAX)
		rc = cli_fail(cli, CLI_FAILED, "%s would grow beyond the %u bytes that kopsd reads; delete it",
		              t->path, TUNING_BYTES_MAX);
	if (rc == CLI_OK && sink_write_bytes(t->sink, text, bytes, cli->why) < 0)
		rc = CLI_FAILED;
	free(text);
	return rc;
}

/* Reads the table again: what another run wrote in the meantime stays too. */
static int write_file(struct tune *t)
{
	struct cli *cli = t->bench.cli;
	char *old;
	int rc = tune_table_read(t->path, &old, cli->why) == 0 ? write_over(t, old) : CLI_FAILED;

	free(old);
	return rc;
}

/* ---- One shape ---- */

static void show_progress(struct tune *t, const struct sweep *sweep, const struct bench_shape *shape)
{
	double now = cli_now_us();
	char name[64];

	if (!isatty(STDERR_FILENO) || now - t->shown_us < 100e3)
		return;
	t->shown_us = now;
	fprintf(stderr, "\rtune %s %s: %zu classes, %.0f s of %.0f s\033[K", tune_sweep_name(sweep, name),
	        shape->text, t->lines.n, (now - t->start_us) / 1e6, (t->end_us - t->start_us) / 1e6);
}

static void end_progress(const struct tune *t)
{
	if (t->shown_us > 0)
		fputs("\r\033[K", stderr);
}

static int by_time(const void *a, const void *b)
{
	double us_a = (*(const struct bench_row *const *)a)->median_us,
	       us_b = (*(const struct bench_row *const *)b)->median_us;

	return us_a < us_b ? -1 : us_a > us_b;
}

/* "CLASS KERNEL US KERNEL US …", the fastest first. */
static char *line_of(const struct race *race)
{
	const struct bench_row *order[BENCH_KERNELS_MAX + 1];
	char *line = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&line, &bytes);

	if (out == NULL)
		return NULL;
	for (size_t i = 0; i < race->n; i++)
		order[i] = &race->rows[i];
	qsort(order, race->n, sizeof(order[0]), by_time);
	fputs(race->shape_class, out);
	for (size_t i = 0; i < race->n && i < TUNING_ROWS_MAX; i++)
		fprintf(out, " %s %.3f", order[i]->kernel, order[i]->median_us);
	if (fclose(out) == 0)
		return line;
	free(line);
	return NULL;
}

static void sum_up(struct sum *sum, const struct race *race)
{
	double gain = 1 + race_loss_percent(race) / 100;

	sum->classes++;
	sum->changed += gain >= GAIN_MIN;
	if (gain <= sum->gain)
		return;
	sum->gain = gain;
	bench_put(sum->where, sizeof(sum->where), race->shape_class);
	bench_put(sum->from, sizeof(sum->from), race->rows[0].kernel);
	bench_put(sum->to, sizeof(sum->to), race->rows[race->best].kernel);
}

/* Where one kernel alone takes part there is nothing to choose. Two shapes may be of one class. */
static int keep(struct tune *t, const struct sweep *sweep, struct race *race)
{
	size_t op = 0, known = t->lines.n;
	char *line;

	if (race->n < 2 || race->shape_class[0] == '\0')
		return 0;
	while (t->ops[op] != sweep->op)
		op++;
	line = line_of(race);
	if (line == NULL || tune_lines_add(&t->lines, line) < 0) {
		bench_put(t->bench.why, sizeof(t->bench.why), "out of memory");
		return KOPS_E_SYSTEM; /* no refusal of the device */
	}
	if (t->lines.n > known)
		sum_up(&t->sums[op], race);
	return 0;
}

/* *ret_alone: there is nothing to choose here, nor on larger shapes. */
static int measure_step(struct tune *t, const struct sweep *sweep, const struct step *step, bool *ret_alone)
{
	struct bench *b = &t->bench;
	struct operands operands = {.n_sets = 0};
	struct race race = {.n = 0};
	/* The CPU's sets would be a gigabyte each time; there, what the cache holds is as good. */
	size_t sets = strcmp(b->kind, "cpu") == 0 ? 1 : operands_cold_sets(b, bench_footprint(step));

	int rc = operands_make(b, step, sets, &operands);
	if (rc == 0)
		rc = race_run(b, &t->field, &operands, REPS, false, &race);
	if (rc == 0 && race.n > 0) {
		const struct bench_row *best = &race.rows[race.best];
		t->us_per_work = best->median_us / (best->flops + best->bytes);
		*ret_alone = race.alone;
		rc = keep(t, sweep, &race);
	}
	race_free(&race);
	operands_free(&operands);
	return bench_is_refusal(rc) ? 0 : rc;
}

/* ---- Sweeps ---- */

static bool is_over(const struct tune *t)
{
	return interrupted || t->lines.n == TUNING_CLASSES_MAX || cli_now_us() >= t->end_us;
}

static double work_of(const struct sweep *sweep, const struct bench_shape *shape, uint64_t footprint)
{
	return (sweep->op->bench.counts_flops ? 2 * bench_shape_product(shape) : 0) + (double)footprint;
}

static bool takes_too_long(const struct tune *t, double work)
{
	return work * t->us_per_work * LAUNCHES > (t->end_us - cli_now_us()) / SHARE;
}

/* Shapes come in the order of their work: what holds of one holds of all that follow. */
static int run_sweep(struct tune *t, const struct sweep *sweep)
{
	struct bench_shape shapes[TUNE_SHAPES_MAX];
	uint64_t most = strcmp(t->bench.kind, "cpu") == 0 ? FOOTPRINT_CPU : FOOTPRINT_GPU;
	size_t n = tune_shapes(sweep, shapes);
	struct step step;
	bool alone = false;
	int rc = 0;

	t->us_per_work = 0;
	for (size_t i = 0; rc == 0 && !alone && i < n && !is_over(t); i++) {
		rc = tune_step(sweep, &shapes[i], &step, t->bench.why);
		if (rc < 0 || bench_footprint(&step) > most)
			continue;
		if (takes_too_long(t, work_of(sweep, &shapes[i], bench_footprint(&step))))
			break;
		show_progress(t, sweep, &shapes[i]);
		rc = measure_step(t, sweep, &step, &alone);
	}
	return rc;
}

static int run_sweeps(struct tune *t)
{
	struct cli *cli = t->bench.cli;
	struct sweep sweep;
	int rc = 0;

	for (size_t i = 0; rc == 0 && !is_over(t) && tune_sweep(t->ops, t->n_ops, i, &sweep); i++) {
		if (bench_kernels_read(t->bench.info, t->bench.kind, sweep.op->name, "all", &t->field.kernels,
		                       cli->why) < 0 ||
		    t->field.kernels.n < 2)
			continue;
		race_field_reset(&t->field);
		cli->flags.op.precision = sweep.precision;
		rc = run_sweep(t, &sweep);
	}
	end_progress(t);
	return rc;
}

/* ---- The report ---- */

static void report_text(const struct tune *t)
{
	printf("%-10s %8s %8s  %s\n", "op", "classes", "changed", "largest gain");
	for (size_t i = 0; i < t->n_ops; i++) {
		const struct sum *s = &t->sums[i];
		printf("%-10s %8zu %8zu", t->ops[i]->name, s->classes, s->changed);
		if (s->changed)
			printf("  %.2f times as fast with %s as with %s: %s", s->gain, s->to, s->from,
			       s->where);
		putchar('\n');
	}
	printf("changed: where another kernel than the one that kopsd took is at least 2 %% faster\n"
	       "%s: written; %s`systemctl reload kopsd`, or SIGHUP, applies it\n",
	       t->path, t->bench.cli->flags.output ? "where tuning-table in kopsd.conf names it, " : "");
}

static void report_json(const struct tune *t)
{
	struct json json;

	json_begin(&json, stdout, "tune");
	json_bool(&json, "ok", true);
	json_text(&json, "device", t->bench.device->name);
	json_text(&json, "output", t->path);
	json_bool(&json, "interrupted", interrupted != 0);
	json_array(&json, "ops");
	for (size_t i = 0; i < t->n_ops; i++) {
		const struct sum *s = &t->sums[i];
		json_object(&json, NULL);
		json_text(&json, "op", t->ops[i]->name);
		json_count(&json, "classes", s->classes);
		json_count(&json, "changed", s->changed);
		json_real(&json, "largest_gain", s->gain);
		json_text(&json, "largest_gain_class", s->where);
		json_close_object(&json);
	}
	json_close_array(&json);
	json_end(&json);
	t->bench.cli->printed = true;
}

/* ---- All of it ---- */

static int fail_empty(struct tune *t)
{
	if (interrupted)
		return cli_fail(t->bench.cli, CLI_FAILED,
		                "interrupted before any class of shapes was measured; nothing is written");
	return cli_fail(t->bench.cli, CLI_FAILED,
	                "no class of shapes was measured with more than one kernel on %s; allow it more time "
	                "(--time-limit)",
	                t->bench.device->name);
}

/* What was measured before a failure is kept too. */
static int finish(struct tune *t, int status)
{
	struct cli *cli = t->bench.cli;
	int rc = status < 0 ? cli_fail_kops(cli, status, t->bench.why) : CLI_OK;
	char why[CLI_WHY_BYTES];

	memcpy(why, cli->why, sizeof(why));
	if (t->lines.n == 0)
		return rc != CLI_OK ? rc : fail_empty(t);
	int written = write_file(t);
	if (written != CLI_OK)
		return written;
	if (rc != CLI_OK)
		return cli_fail(cli, (enum cli_exit)rc, "%s; what was measured before is in %s", why, t->path);
	if (cli->flags.json)
		report_json(t);
	else
		report_text(t);
	return cli_flush(cli);
}

static int run(struct tune *t)
{
	uint32_t limit_ms = t->bench.cli->flags.time_limit_ms;
	int rc = prepare_file(t);

	if (rc == CLI_OK)
		rc = bench_open(&t->bench);
	if (rc != CLI_OK)
		return rc;
	t->bench.warmup = WARMUP;
	t->bench.seed = random_seed();
	t->start_us = cli_now_us();
	t->end_us = t->start_us + (limit_ms ? limit_ms : LIMIT_MS_DEFAULT) * 1e3;
	catch_interrupt();
	return finish(t, run_sweeps(t));
}

int tune(struct cli *cli, const struct operation *const *ops, size_t n_ops)
{
	struct tune *t = calloc(1, sizeof(*t));

	if (t == NULL)
		return cli_fail(cli, CLI_FAILED, "out of memory");
	t->bench.cli = cli;
	t->ops = ops;
	t->n_ops = n_ops;
	int rc = run(t);
	bench_close(&t->bench);
	sink_close(t->sink);
	tune_lines_free(&t->lines);
	free(t);
	return rc;
}
