#include "plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "show.h"

#define WIDTH  1240
#define HEIGHT 500
#define TOP    84
#define TALL   346 /* of both panels */

#define LINEAR_MOST                                                                                            \
	40 /* beyond such a ratio of the kernels' best, the slow ones need a logarithm to be seen              \
	    */

/* ---- rows as points ---- */

size_t plot_series(const struct plot *plot, const struct bench_row *row)
{
	size_t i = 0;

	while (i < plot->n_kernels && strcmp(plot->kernels[i], row->kernel) != 0)
		i++;
	return i;
}

static void find_kernels(struct plot *plot)
{
	for (size_t i = 0; i < plot->table->n; i++) {
		const struct bench_row *row = &plot->table->rows[i];
		if (bench_row_measured(row) && plot_series(plot, row) == plot->n_kernels &&
		    plot->n_kernels < PLOT_KERNELS_MAX)
			plot->kernels[plot->n_kernels++] = row->kernel;
	}
}

static bool op_is(const struct plot *plot, const char *name)
{
	return strcmp(plot->table->head.op, name) == 0;
}

/* "MxNxK" into numbers; the last one is *ret_last. */
static void read_extents(const struct bench_row *row, double ret[3], double *ret_last)
{
	const char *text = row->shape;

	*ret_last = 0;
	for (int i = 0; i < 3; i++) {
		char *end;
		ret[i] = strtod(text, &end);
		if (end != text)
			*ret_last = ret[i];
		text = *end == 'x' ? end + 1 : end;
	}
}

static double size_of(const struct plot *plot, const struct bench_row *row)
{
	double extents[3], last;

	read_extents(row, extents, &last);
	if (op_is(plot, "gemm"))
		return sqrt(extents[0] * extents[1]);
	return op_is(plot, "fma") ? last : row->bytes;
}

static double last_extent(const struct bench_row *row)
{
	double extents[3], last;

	read_extents(row, extents, &last);
	return last;
}

/* How many shapes end so. */
static size_t count_shapes(const struct plot *plot, double last)
{
	const struct bench_row *rows = plot->table->rows;
	size_t n = 0;

	for (size_t i = 0; i < plot->table->n; i++) {
		size_t first = 0;
		while (strcmp(rows[first].shape, rows[i].shape) != 0)
			first++;
		n += first == i && last_extent(&rows[i]) == last ? 1 : 0;
	}
	return n;
}

/* A line joins what differs in size alone: products of one K, rows of one length; of those there are most of.
 */
static void find_joined(struct plot *plot)
{
	size_t most = 1;

	if (!op_is(plot, "gemm") && !op_is(plot, "softmax"))
		return;
	for (size_t i = 0; i < plot->table->n; i++) {
		double last = last_extent(&plot->table->rows[i]);
		size_t n = count_shapes(plot, last);
		if (n <= most)
			continue;
		most = n;
		plot->joined = last;
	}
}

static bool is_joined(const struct plot *plot, const struct bench_row *row)
{
	return plot->joined == 0 || last_extent(row) == plot->joined;
}

/* ---- a panel ---- */

static void label_tick(char *text, size_t room, double value, bool in_bytes)
{
	static const char *const units[] = {"", " KiB", " MiB", " GiB", " TiB"};
	size_t unit = 0;

	for (; in_bytes && value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
		value /= 1024;
	snprintf(text, room, "%.6g%s", value, units[unit]);
}

static void draw_x(const struct plot *plot, const struct panel *p)
{
	struct svg_font font = {.size = PLOT_TEXT, .color = SVG_BLACK, .anchor = SVG_MIDDLE};
	double ticks[AXIS_TICKS_MAX], bottom = p->y.from;
	size_t n = p->x_by_twos ? axis_ticks_by_twos(&p->x, ticks) : axis_ticks_by_tens(&p->x, ticks);

	for (size_t i = 0; i < n; i++) {
		double x = axis_at(&p->x, ticks[i]);
		char text[32];
		svg_line(plot->out, (struct svg_at){x, p->y.to}, (struct svg_at){x, bottom},
		         (struct svg_stroke){SVG_FAINT, 1, false});
		label_tick(text, sizeof(text), ticks[i] * p->x_scale, p->x_in_bytes);
		svg_text(plot->out, (struct svg_at){x, bottom + 18}, font, text);
	}
	svg_text(plot->out, (struct svg_at){(p->x.from + p->x.to) / 2, bottom + 40}, font, p->x_title);
}

static void draw_y(const struct plot *plot, const struct panel *p)
{
	struct svg_font font = {.size = PLOT_TEXT, .color = SVG_BLACK, .anchor = SVG_END};
	double ticks[AXIS_TICKS_MAX];
	size_t n = axis_ticks_by_tens(&p->y, ticks);

	for (size_t i = 0; i < n; i++) {
		double y = axis_at(&p->y, ticks[i]);
		char text[32];
		svg_line(plot->out, (struct svg_at){p->x.from, y}, (struct svg_at){p->x.to, y},
		         (struct svg_stroke){SVG_FAINT, 1, false});
		label_tick(text, sizeof(text), ticks[i] * p->y_scale, false);
		svg_text(plot->out, (struct svg_at){p->x.from - 7, y + 4}, font, text);
	}
	font.anchor = SVG_START;
	svg_text(plot->out, (struct svg_at){p->x.from - 44, p->y.to - 10}, font, p->y_title);
}

void plot_panel(const struct plot *plot, const struct panel *p)
{
	struct svg_font title = {.size = 13, .color = SVG_BLACK, .anchor = SVG_END, .bold = true};
	struct svg_stroke frame = {SVG_GREY, 1, false};

	draw_x(plot, p);
	draw_y(plot, p);
	svg_line(plot->out, (struct svg_at){p->x.from, p->y.from}, (struct svg_at){p->x.to, p->y.from}, frame);
	svg_line(plot->out, (struct svg_at){p->x.from, p->y.from}, (struct svg_at){p->x.from, p->y.to}, frame);
	svg_text(plot->out, (struct svg_at){p->x.to, p->y.to - 10}, title, p->title);
}

/* ---- speed against size ---- */

struct range {
	double low, high;
};

static void widen(struct range *range, double value)
{
	if (!isfinite(value) || value <= 0)
		return;
	range->low = range->low > 0 ? fmin(range->low, value) : value;
	range->high = fmax(range->high, value);
}

/* The best speed of each kernel, from the slowest to the fastest. */
static struct range best_speeds(const struct plot *plot)
{
	struct range all = {0, 0};

	for (size_t k = 0; k < plot->n_kernels; k++) {
		struct range one = {0, 0};
		for (size_t i = 0; i < plot->table->n; i++)
			if (plot_series(plot, &plot->table->rows[i]) == k)
				widen(&one, bench_row_speed(&plot->table->head, &plot->table->rows[i]));
		widen(&all, one.high);
	}
	return all;
}

static bool has_mode(const struct plot *plot, enum bench_mode mode)
{
	for (size_t i = 0; i < plot->table->n; i++)
		if (plot->table->rows[i].mode == mode && bench_row_measured(&plot->table->rows[i]))
			return true;
	return false;
}

/* Rates that bound the op: FMA for FLOPs; copies from memory and, where it was looked at, within the cache. */
static size_t ceilings(const struct plot *plot, double ret_rates[2], const char *ret_names[2])
{
	const struct bench_head *head = &plot->table->head;
	size_t n = 0;

	if (bench_counts_flops(head)) {
		ret_rates[n] = head->fma_gflops;
		ret_names[n] = "FMA rate";
		n += head->fma_gflops > 0 ? 1 : 0;
		return n;
	}
	ret_rates[n] = head->memory_gbytes;
	ret_names[n] = "memory rate";
	n += head->memory_gbytes > 0 ? 1 : 0;
	ret_rates[n] = head->cache_gbytes;
	ret_names[n] = "cache rate";
	n += head->cache_gbytes > 0 && has_mode(plot, BENCH_WARM) ? 1 : 0;
	return n;
}

static struct panel size_panel(const struct plot *plot, struct svg_at corner, struct svg_at size)
{
	struct panel p = {.title = "Speed against size", .x_scale = 1, .y_scale = 1, .x_by_twos = true};
	bool flops = bench_counts_flops(&plot->table->head);
	struct range x = {0, 0}, y = {0, 0}, best = best_speeds(plot);
	const char *names[2];
	double rates[2];

	for (size_t i = 0; i < plot->table->n; i++) {
		const struct bench_row *row = &plot->table->rows[i];
		if (bench_row_measured(row))
			widen(&x, size_of(plot, row));
		widen(&y, bench_row_speed(&plot->table->head, row));
	}
	for (size_t i = ceilings(plot, rates, names); i-- > 0;)
		widen(&y, rates[i]);
	p.x = (struct axis){x.low / 1.3, x.high * 1.3, corner.x, corner.x + size.x, true};
	p.y = (struct axis){0, y.high * 1.1, corner.y + size.y, corner.y, false};
	if (best.high > LINEAR_MOST * best.low) {
		p.y.log = true;
		p.y.low = y.low / 1.5;
		p.y.high = y.high * 1.8;
	}
	if (y.high >= 2000 && (y.low >= 1 || !p.y.log))
		p.y_scale = 1e-3;
	p.y_title = flops ? (p.y_scale < 1 ? "TFLOP/s" : "GFLOP/s") : p.y_scale < 1 ? "TB/s" : "GB/s";
	p.x_in_bytes = !op_is(plot, "gemm") && !op_is(plot, "fma");
	p.x_title = op_is(plot, "fma") ? "steps per element" : "bytes read and written";
	return p;
}

/* At the right end above its line; below it and at the left end if the other one has its text there. */
static void label_ceiling(const struct plot *plot, const struct panel *p, double y, double other,
                          const char *text)
{
	struct svg_font font = {.size = PLOT_TEXT, .color = SVG_GREY, .anchor = SVG_END};
	struct svg_at at = {p->x.to, y - 6};

	if (y > other && y < other + 1.5 * PLOT_TEXT) {
		font.anchor = SVG_START;
		at = (struct svg_at){p->x.from + 6, y + 6 + PLOT_TEXT / 2.0};
	}
	svg_text(plot->out, at, font, text);
}

static void draw_ceilings(const struct plot *plot, const struct panel *p)
{
	bool flops = bench_counts_flops(&plot->table->head);
	const char *names[2];
	double rates[2];
	size_t n = ceilings(plot, rates, names);

	for (size_t i = 0; i < n; i++) {
		double y = axis_at(&p->y, rates[i]), other = axis_at(&p->y, rates[n - 1 - i]);
		char text[96];
		svg_line(plot->out, (struct svg_at){p->x.from, y}, (struct svg_at){p->x.to, y},
		         (struct svg_stroke){SVG_GREY, 1.3, i > 0});
		snprintf(text, sizeof(text), "%s %s", names[i],
		         (flops ? show_flops(rates[i] * 1e9, 1e6) : show_rate(rates[i] * 1e9, 1e6)).text);
		label_ceiling(plot, p, y, other, text);
	}
}

static int by_x(const void *a, const void *b)
{
	double x = ((const struct svg_at *)a)->x, y = ((const struct svg_at *)b)->x;

	return (x > y) - (x < y);
}

/* The line of one kernel in one mode, then its markers. */
static void draw_kernel(const struct plot *plot, const struct panel *p, size_t kernel, enum bench_mode mode)
{
	const struct bench_table *t = plot->table;
	struct svg_at *line = calloc(t->n + 1, sizeof(*line));
	size_t n = 0, n_points = 0;

	for (int markers = 0; markers < 2 && line; markers++) {
		for (size_t i = 0; i < t->n; i++) {
			const struct bench_row *row = &t->rows[i];
			if (row->mode != mode || plot_series(plot, row) != kernel || !bench_row_measured(row))
				continue;
			struct svg_at at = {axis_at(&p->x, size_of(plot, row)),
			                    axis_at(&p->y, bench_row_speed(&t->head, row))};
			n_points++;
			if (markers)
				svg_marker(plot->out, kernel, at, 4, mode == BENCH_WARM, false);
			else if (is_joined(plot, row))
				line[n++] = at;
		}
		qsort(line, n, sizeof(*line), by_x);
		if (markers == 0 && n_points > 0)
			svg_polyline(plot->out, line, n,
			             (struct svg_stroke){svg_series_color(kernel), 1.8, mode == BENCH_WARM});
	}
	free(line);
}

static void draw_sizes(const struct plot *plot, struct svg_at corner, struct svg_at size)
{
	struct panel p = size_panel(plot, corner, size);
	char title[96];

	if (op_is(plot, "gemm"))
		p.x_title = "M = N (√MN where they differ)";
	if (plot->joined > 0) {
		snprintf(title, sizeof(title), "%s%s%.0f", p.x_title,
		         op_is(plot, "gemm") ? ", K = " : "; lines join rows of ", plot->joined);
		p.x_title = title;
	}
	plot_panel(plot, &p);
	draw_ceilings(plot, &p);
	for (size_t k = 0; k < plot->n_kernels; k++)
		for (unsigned mode = 0; mode < BENCH_MODES; mode++)
			draw_kernel(plot, &p, k, (enum bench_mode)mode);
}

/* ---- the legend, and all of it ---- */

/* The top of the ladder first, as its line is. */
static void draw_legend(const struct plot *plot, struct svg_at at)
{
	struct svg_font font = {.size = PLOT_TEXT, .color = SVG_BLACK, .anchor = SVG_START};
	struct svg_stroke dashed = {SVG_GREY, 1.8, true};

	for (size_t i = plot->n_kernels; i-- > 0; at.y += 20) {
		struct svg_stroke stroke = {svg_series_color(i), 1.8, false};
		svg_line(plot->out, at, (struct svg_at){at.x + 24, at.y}, stroke);
		svg_marker(plot->out, i, (struct svg_at){at.x + 12, at.y}, 4, false, false);
		svg_text(plot->out, (struct svg_at){at.x + 30, at.y + 4}, font, plot->kernels[i]);
	}
	if (!has_mode(plot, BENCH_WARM))
		return;
	at.y += 12;
	font.color = SVG_GREY;
	svg_line(plot->out, at, (struct svg_at){at.x + 24, at.y}, (struct svg_stroke){SVG_GREY, 1.8, false});
	svg_text(plot->out, (struct svg_at){at.x + 30, at.y + 4}, font, "from memory");
	at.y += 20;
	svg_line(plot->out, at, (struct svg_at){at.x + 24, at.y}, dashed);
	svg_text(plot->out, (struct svg_at){at.x + 30, at.y + 4}, font, "from the cache");
}

static void draw_title(const struct plot *plot)
{
	const struct bench_head *head = &plot->table->head;
	struct svg_font font = {.size = 16, .color = SVG_BLACK, .anchor = SVG_START, .bold = true};
	char text[256];

	snprintf(text, sizeof(text), "%s %s", head->op, head->dtype);
	svg_text(plot->out, (struct svg_at){24, 28}, font, text);
	font = (struct svg_font){.size = PLOT_TEXT, .color = SVG_GREY, .anchor = SVG_START};
	snprintf(text, sizeof(text), "%s%s", head->description,
	         has_mode(plot, BENCH_HOST) ? "; wall time, host to host" : "");
	svg_text(plot->out, (struct svg_at){24, 46}, font, text);
}

void plot_draw(FILE *out, const struct bench_table *table)
{
	struct plot plot = {.out = out, .table = table};

	find_kernels(&plot);
	find_joined(&plot);
	svg_begin(out, WIDTH, HEIGHT);
	draw_title(&plot);
	if (plot.n_kernels > 0) {
		draw_sizes(&plot, (struct svg_at){68, TOP}, (struct svg_at){440, TALL});
		draw_legend(&plot, (struct svg_at){526, TOP + 8});
		plot_roofline(&plot, (struct svg_at){722, TOP}, (struct svg_at){494, TALL});
	}
	svg_end(out);
}
