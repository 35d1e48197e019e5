#include "beside/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static double ratio(double part, double whole)
{
	return whole > 0 ? part / whole : 0;
}

/* The light user's are this process's. */
static unsigned uid_of(const struct beside *b, size_t user)
{
	return user == 0 ? (unsigned)geteuid() : (unsigned)b->heavies[b->n_heavies - 1].uid;
}

/* ---- Text ---- */

static void print_light(const char *beside, struct light_times *t)
{
	printf("%-32s %10.1f %10.1f %10.1f %7.1f %9.0f %9.2f", beside, samples_quantile(&t->wall, 0.5),
	       samples_quantile(&t->wall, 0.99), samples_quantile(&t->wall, 1),
	       100 * ratio((double)t->late, (double)t->wall.n), ratio((double)t->wall.n, t->elapsed_us) * 1e6,
	       100 * ratio(t->device_us, t->elapsed_us));
}

static void print_head_of_two(void)
{
	printf("%-32s %12s %12s %12s %9s %9s %9s\n", "jobs a second", "one alone", "first", "second", "of jobs",
	       "of device", "together");
}

void beside_print_head(struct beside *b)
{
	bool spins = b->bench.cli->flags.spin.value > 0;

	printf("%s; clients that %s; ", b->bench.device->name, spins ? "spin" : "sleep while they wait");
	if (b->two) {
		printf("two heavy users (uid %u and %u) with %u jobs in flight each\n", uid_of(b, 0),
		       uid_of(b, 1), b->out);
		print_head_of_two();
		return;
	}
	printf("a product of %d³ every %" PRIu64 " µs (uid %u), up to %" PRIu64
	       " times, beside a heavy user (uid %u) with %u jobs out\n",
	       LIGHT_SIZE, b->every_us, uid_of(b, 0), b->count, uid_of(b, 1), b->out);
	printf("%-32s %10s %10s %10s %7s %9s %9s %12s %12s %6s\n", "beside", "p50", "p99", "worst", "late %",
	       "a second", "device %", "heavy alone", "heavy beside", "kept");
	print_light("nothing", &b->quiet);
	printf("\n");
}

static void print_two(const struct beside_row *row)
{
	const struct rate *first = &row->beside[0], *second = &row->beside[1];
	double both = first->per_second + second->per_second;

	printf("%-32s %12.2f %12.2f %12.2f %9.3f %9.3f %9.3f\n", row->load.text, row->alone.per_second,
	       first->per_second, second->per_second, ratio(first->per_second, both),
	       ratio(first->device_share, first->device_share + second->device_share),
	       ratio(both, row->alone.per_second));
}

void beside_print_row(struct beside *b, struct beside_row *row)
{
	if (row->why[0]) {
		printf("%-32s %s\n", row->load.text, row->why);
	} else if (b->two) {
		print_two(row);
	} else {
		print_light(row->load.text, &row->light);
		printf(" %12.2f %12.2f %6.3f\n", row->alone.per_second, row->beside[0].per_second,
		       ratio(row->beside[0].per_second, row->alone.per_second));
	}
}

void beside_print_end(const struct beside *b)
{
	if (b->two)
		printf("of jobs, of device: the first user's share of what both had; together: beside one "
		       "alone\n");
	else
		printf("times in µs by the wall clock; late: due before the one before was done; device: what "
		       "the small\njobs took of it; heavy: jobs a second; kept: beside, as a part of alone\n");
}

/* ---- JSON ---- */

static void light_json(struct json *json, const char *key, struct light_times *t)
{
	json_object(json, key);
	json_count(json, "jobs", t->wall.n);
	samples_json(json, "wall", &t->wall);
	json_count(json, "late", t->late);
	json_real(json, "per_second", ratio((double)t->wall.n, t->elapsed_us) * 1e6);
	json_real(json, "device_share", ratio(t->device_us, t->elapsed_us));
	json_close_object(json);
}

static void users_json(struct json *json, const struct beside *b, const struct beside_row *row)
{
	const struct rate *r = row->beside;

	json_array(json, "users");
	for (size_t i = 0; i < HEAVIES_MAX; i++) {
		json_object(json, NULL);
		json_count(json, "uid", uid_of(b, i));
		json_real(json, "per_second", r[i].per_second);
		json_real(json, "share_of_jobs", ratio(r[i].per_second, r[0].per_second + r[1].per_second));
		json_real(json, "share_of_device",
		          ratio(r[i].device_share, r[0].device_share + r[1].device_share));
		json_close_object(json);
	}
	json_close_array(json);
	json_real(json, "together", ratio(r[0].per_second + r[1].per_second, row->alone.per_second));
}

static void beside_light_json(struct json *json, struct beside_row *row)
{
	light_json(json, "light", &row->light);
	json_real(json, "beside_per_second", row->beside[0].per_second);
	json_real(json, "kept", ratio(row->beside[0].per_second, row->alone.per_second));
}

static void row_json(struct json *json, const struct beside *b, struct beside_row *row)
{
	json_object(json, NULL);
	json_text(json, "load", row->load.text);
	json_text(json, "why", row->why[0] ? row->why : NULL);
	if (!row->why[0]) {
		json_text(json, "kernel", row->kernel);
		json_real(json, "alone_per_second", row->alone.per_second);
		if (b->two)
			users_json(json, b, row);
		else
			beside_light_json(json, row);
	}
	json_close_object(json);
}

void beside_json(struct beside *b, bool ok)
{
	struct json json;

	json_begin(&json, stdout, "bench");
	json_text(&json, "bench", "beside");
	json_bool(&json, "ok", ok);
	json_text(&json, "device", b->bench.device->name);
	json_bool(&json, "two", b->two);
	json_count(&json, "uid", uid_of(b, 0));
	json_count(&json, "heavy_uid", uid_of(b, 1));
	json_text(&json, "note", b->note[0] ? b->note : NULL);
	json_count(&json, "out", b->out);
	json_count(&json, "spin_us", b->bench.cli->flags.spin.value);
	if (!b->two) {
		json_count(&json, "size", LIGHT_SIZE);
		json_count(&json, "every_us", b->every_us);
		light_json(&json, "quiet", &b->quiet);
	}
	json_array(&json, "loads");
	for (size_t i = 0; i < b->n_rows; i++)
		row_json(&json, b, &b->rows[i]);
	json_close_array(&json);
	json_end(&json);
	b->bench.cli->printed = true;
}
