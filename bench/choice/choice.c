#include "choice/choice.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "choice/race.h"
#include "report/csv.h"
#include "report/samples.h"
#include "show.h"

#define MUCH_PERCENT 5.0

struct result {
	const struct bench_shape *shape;
	struct race race;
};

struct comparison {
	struct bench_plan *plan;
	struct race_field field;
	struct result *results;
	size_t n;
	struct samples losses; /* percent, for shapes that were measured */
	size_t much;
	const struct result *worst;
};

/* ---- CSV: one line per shape and kernel ---- */

static void csv_head(void)
{
	puts("op,dtype,precision,device,description,seed,shape,kernel,samples,launches,sets,flops,"
	     "bytes,min_us,median_us,max_us,larger_errors,auto,fastest,loss_percent,wrong,why");
}

static void csv_row(const struct bench_head *head, const struct result *result, size_t i)
{
	const struct race *race = &result->race;
	const struct bench_row *row = &race->rows[i];

	printf("%s,%s,%s,%s,", head->op, head->dtype, head->precision, head->device);
	bench_csv_text(stdout, head->description);
	printf(",%" PRIu64 ",%s,%s,%" PRIu64 ",%" PRIu64 ",%" PRIu64, head->seed, result->shape->text,
	       row->kernel, row->samples, row->launches, row->sets);
	printf(",%.17g,%.17g,%.3f,%.3f,%.3f,%s,%s,%s,%.3f,%s,", row->flops, row->bytes, row->min_us,
	       row->median_us, row->max_us, row->larger_errors ? "yes" : "no", i == 0 ? "yes" : "no",
	       i == race->best ? "yes" : "no", race_loss_percent(race), row->wrong ? "yes" : "no");
	bench_csv_text(stdout, row->why);
	putchar('\n');
}

/* ---- Text: one line per shape ---- */

static void text_head(const struct comparison *c)
{
	const struct bench_head *head = &c->plan->table.head;

	printf("%s %s on %s: %s\n", head->op, head->dtype, head->device, head->description);
	printf("input and shapes from seed %" PRIu64 "\n\n", head->seed);
	printf("%-*s %-*s %10s  %-*s %10s %7s\n", c->plan->widths.shape, "shape", c->plan->widths.kernel,
	       "auto", "median", c->plan->widths.kernel, "fastest", "median", "loss %");
}

static void text_row(const struct comparison *c, const struct result *result)
{
	const struct race *race = &result->race;
	const struct bench_row *chosen = &race->rows[0], *best = &race->rows[race->best];
	struct show_text chosen_us = show_us(chosen->median_us), best_us = show_us(best->median_us);

	printf("%-*s %-*s %*s  %-*s %*s %7.1f%s%s\n", c->plan->widths.shape, result->shape->text,
	       c->plan->widths.kernel, chosen->kernel, show_field(10, chosen_us.text), chosen_us.text,
	       c->plan->widths.kernel, best->kernel, show_field(10, best_us.text), best_us.text,
	       race_loss_percent(race), chosen->note[0] ? "  " : "", chosen->note);
}

static void report(const struct comparison *c, const struct result *result)
{
	const struct flags *flags = &c->plan->bench.cli->flags;

	if (result->race.n == 0) {
		fprintf(stderr, "kops-bench: %s: %s\n", result->shape->text, result->race.note);
		return;
	}
	if (flags->csv)
		for (size_t i = 0; i < result->race.n; i++)
			csv_row(&c->plan->table.head, result, i);
	else if (!flags->json)
		text_row(c, result);
	fflush(stdout); /* the next one may take a while; cli_flush() checks for errors */
}

/* ---- The summary ---- */

static void count(struct comparison *c, const struct result *result)
{
	if (result->race.n == 0)
		return;
	double loss = race_loss_percent(&result->race);
	samples_add(&c->losses, loss);
	c->much += loss > MUCH_PERCENT;
	if (!c->worst || loss > race_loss_percent(&c->worst->race))
		c->worst = result;
}

/* Goes to stderr if stdout holds CSV. */
static void summarise(struct comparison *c)
{
	FILE *out = c->plan->bench.cli->flags.csv ? stderr : stdout;
	const struct race *race = &c->worst->race;

	fprintf(out,
	        "%skopsd's choice against the fastest kernel it may take, %zu shapes from seed %" PRIu64
	        ": loss median %.1f %%, 95th percentile %.1f %%, largest %.1f %% (%s: %s where %s is fastest); "
	        "more than %.0f %% at %zu\n",
	        out == stdout ? "\n" : "", c->losses.n, c->plan->table.head.seed,
	        samples_quantile(&c->losses, 0.5), samples_quantile(&c->losses, 0.95), race_loss_percent(race),
	        c->worst->shape->text, race->rows[0].kernel, race->rows[race->best].kernel, MUCH_PERCENT,
	        c->much);
}

static void json_result(struct json *json, const struct result *result)
{
	const struct race *race = &result->race;

	json_object(json, NULL);
	json_text(json, "shape", result->shape->text);
	json_text(json, "note", race->note);
	json_text(json, "auto", race->n ? race->rows[0].kernel : NULL);
	json_text(json, "why", race->n ? race->rows[0].why : NULL);
	json_text(json, "fastest", race->n ? race->rows[race->best].kernel : NULL);
	json_real(json, "loss_percent", race->n ? race_loss_percent(race) : (double)NAN);
	json_array(json, "kernels");
	for (size_t i = 0; i < race->n; i++) {
		json_object(json, NULL);
		json_text(json, "kernel", race->rows[i].kernel);
		json_us(json, "median_us", race->rows[i].median_us);
		json_count(json, "samples", race->rows[i].samples);
		json_count(json, "launches", race->rows[i].launches);
		json_bool(json, "larger_errors", race->rows[i].larger_errors);
		json_bool(json, "wrong", race->rows[i].wrong);
		json_close_object(json);
	}
	json_close_array(json);
	json_close_object(json);
}

static void report_json(struct comparison *c, bool ok)
{
	const struct bench_head *head = &c->plan->table.head;
	struct json json;

	json_begin(&json, stdout, "bench");
	json_bool(&json, "ok", ok);
	json_text(&json, "op", head->op);
	json_text(&json, "dtype", head->dtype);
	json_text(&json, "precision", head->precision);
	json_text(&json, "device", head->device);
	json_text(&json, "description", head->description);
	json_count(&json, "seed", head->seed);
	json_count(&json, "measured", c->losses.n);
	json_real(&json, "median_loss_percent", samples_quantile(&c->losses, 0.5));
	json_real(&json, "p95_loss_percent", samples_quantile(&c->losses, 0.95));
	json_real(&json, "max_loss_percent", samples_quantile(&c->losses, 1));
	json_count(&json, "more_than_5_percent", c->much);
	json_array(&json, "shapes");
	for (size_t i = 0; i < c->n; i++)
		json_result(&json, &c->results[i]);
	json_close_array(&json);
	json_end(&json);
	c->plan->bench.cli->printed = true;
}

/* ---- The work ---- */

static int race_shape(struct comparison *c, struct result *result)
{
	struct bench_plan *p = c->plan;
	struct bench *b = &p->bench;
	struct operands operands = {.n_sets = 0};
	struct step step;

	int rc = plan_step(p, result->shape, &step, b->why);
	if (rc == 0)
		rc = operands_make(b, &step, operands_cold_sets(b, bench_footprint(&step)), &operands);
	if (rc == 0)
		rc = race_run(b, &c->field, &operands, b->reps, p->check, &result->race);
	else if (bench_is_refusal(rc))
		bench_put(result->race.note, sizeof(result->race.note), b->why);
	for (size_t i = 0; i < result->race.n; i++)
		bench_put(result->race.rows[i].shape, sizeof(result->race.rows[i].shape), result->shape->text);
	operands_free(&operands);
	return bench_is_refusal(rc) ? 0 : rc;
}

static int race_shapes(struct comparison *c)
{
	const struct flags *flags = &c->plan->bench.cli->flags;

	if (flags->csv)
		csv_head();
	else if (!flags->json)
		text_head(c);
	for (; c->n < c->plan->shapes.n; c->n++) {
		struct result *result = &c->results[c->n];
		result->shape = &c->plan->shapes.list[c->n];
		int rc = race_shape(c, result);
		if (rc < 0)
			return rc;
		report(c, result);
		count(c, result);
	}
	return 0;
}

static const struct bench_row *find_wrong(const struct comparison *c)
{
	for (size_t i = 0; i < c->n; i++)
		for (size_t k = 0; k < c->results[i].race.n; k++)
			if (c->results[i].race.rows[k].wrong)
				return &c->results[i].race.rows[k];
	return NULL;
}

static int finish(struct comparison *c)
{
	struct cli *cli = c->plan->bench.cli;
	const struct bench_row *wrong = find_wrong(c);

	if (c->losses.n == 0)
		return cli_fail(cli, CLI_FAILED, "no kernel did any of this%s%s", c->n ? ": " : "",
		                c->n ? c->results[0].race.note : "");
	if (cli->flags.json)
		report_json(c, wrong == NULL);
	else
		summarise(c);
	int rc = cli_flush(cli);
	if (rc == CLI_OK && wrong)
		rc = cli_fail(cli, CLI_CHECK_FAILED, "%s, kernel %s: %s", wrong->shape, wrong->kernel,
		              wrong->note);
	return rc;
}

static int run(struct comparison *c)
{
	struct bench *b = &c->plan->bench;
	int rc = plan_prepare(c->plan);

	if (rc != CLI_OK)
		return rc;
	c->field.kernels = c->plan->kernels;
	c->field.settled = true;
	rc = race_shapes(c);
	return rc < 0 ? cli_fail_kops(b->cli, rc, b->why) : finish(c);
}

int bench_choice(struct bench_plan *plan)
{
	size_t n = (size_t)plan->bench.cli->flags.random.value;
	struct comparison *c = calloc(1, sizeof(*c));
	int rc = CLI_FAILED;

	if (c)
		c->results = calloc(n, sizeof(*c->results));
	if (c == NULL || c->results == NULL || samples_init(&c->losses, n) < 0) {
		cli_fail(plan->bench.cli, CLI_FAILED, "out of memory");
	} else {
		c->plan = plan;
		rc = run(c);
	}
	for (size_t i = 0; c && c->results && i < n; i++)
		race_free(&c->results[i].race);
	if (c) {
		samples_free(&c->losses);
		free(c->results);
	}
	free(c);
	return rc;
}
