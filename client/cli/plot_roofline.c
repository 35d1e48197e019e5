/*
 * The roofline: performance against FLOPs per byte, both logarithmic. Ops that compute nothing count one
 * operation per element moved.
 */
#include <math.h>
#include <string.h>

#include "element.h"
#include "plot.h"
#include "show.h"

#define LEFT_ROOM   14.0  /* a factor, for the names of roofs */
#define RIGHT_ROOM  110.0 /* pixels, for the names of kernels */
#define LINE_HEIGHT 15.0
#define LETTER      7.0 /* pixels, the widest on average */
#define RELAXATIONS 200

struct label {
	struct svg_at point, at; /* of the marker, of the text */
	double wide;
	size_t series;
	bool to_the_left;
};

struct roof {
	const struct plot *plot;
	struct panel panel;
	bool moves; /* the op moves elements and has no FLOPs */
};

/* ---- rows as points ---- */

static double operations(const struct roof *r, const struct bench_row *row)
{
	kops_dtype dtype;

	if (!r->moves)
		return row->flops;
	if (!element_type_by_name(r->plot->table->head.dtype, &dtype))
		return (double)NAN;
	return row->bytes / 2 / (double)kops_dtype_size(dtype);
}

static double intensity(const struct roof *r, const struct bench_row *row)
{
	return operations(r, row) / row->bytes;
}

static double speed(const struct roof *r, const struct bench_row *row)
{
	return operations(r, row) / row->median_us * 1e-3;
}

static bool has_point(const struct roof *r, const struct bench_row *row)
{
	return bench_row_measured(row) && intensity(r, row) > 0;
}

static struct svg_at place(const struct roof *r, double x, double y)
{
	return (struct svg_at){axis_at(&r->panel.x, x), axis_at(&r->panel.y, y)};
}

static bool is_larger(const struct bench_row *a, const struct bench_row *b)
{
	return a->footprint_bytes > b->footprint_bytes ||
	       (a->footprint_bytes == b->footprint_bytes && a->flops > b->flops);
}

/* The row that stands for a kernel: the largest shape, from memory if it was measured so. */
static const struct bench_row *main_row(const struct roof *r, size_t kernel)
{
	const struct bench_row *best = NULL;

	for (size_t i = 0; i < r->plot->table->n; i++) {
		const struct bench_row *row = &r->plot->table->rows[i];
		if (plot_series(r->plot, row) != kernel || !has_point(r, row))
			continue;
		bool colder = best && best->mode == BENCH_WARM && row->mode != BENCH_WARM;
		bool warmer = best && best->mode != BENCH_WARM && row->mode == BENCH_WARM;
		if (best == NULL || colder || (!warmer && is_larger(row, best)))
			best = row;
	}
	return best;
}

/* ---- axes ---- */

static void set_axes(struct roof *r, struct svg_at corner, struct svg_at size)
{
	const struct bench_head *head = &r->plot->table->head;
	double ridge = head->fma_gflops / head->memory_gbytes, x_high = ridge;
	double x_low = fmin(ridge, head->fma_gflops / head->cache_gbytes);
	double y_low = (double)NAN, y_high = head->fma_gflops;
	struct panel *p = &r->panel;

	for (size_t i = 0; i < r->plot->table->n; i++) {
		const struct bench_row *row = &r->plot->table->rows[i];
		if (!has_point(r, row))
			continue;
		x_low = fmin(x_low, intensity(r, row));
		x_high = fmax(x_high, intensity(r, row));
		y_low = fmin(y_low, speed(r, row));
		y_high = fmax(y_high, speed(r, row));
	}
	x_low /= LEFT_ROOM;
	x_high *= pow(x_high / x_low, RIGHT_ROOM / (size.x - RIGHT_ROOM));
	p->x = (struct axis){x_low, x_high, corner.x, corner.x + size.x, true};
	/* Where the memory's roof enters on the left, or lower. */
	if (head->memory_gbytes > 0)
		y_low = fmin(y_low, p->x.low * head->memory_gbytes);
	p->y = (struct axis){y_low / 1.5, y_high * 3, corner.y + size.y, corner.y, true};
	p->x_scale = 1;
	p->y_scale = y_high >= 2000 && y_low >= 1 ? 1e-3 : 1;
	p->title = "Roofline";
	if (r->moves) {
		p->x_title = "operations per byte, one for each element moved";
		p->y_title = p->y_scale < 1 ? "Top/s" : "Gop/s";
	} else {
		p->x_title = "FLOP per byte";
		p->y_title = p->y_scale < 1 ? "TFLOP/s" : "GFLOP/s";
	}
}

/* ---- roofs ---- */

static struct svg_font roof_font(enum svg_anchor anchor)
{
	return (struct svg_font){.size = PLOT_TEXT, .color = SVG_GREY, .anchor = anchor};
}

/* y = rate · x from the edge of the panel to the FMA units' roof, or its top; its name `above` the line or
 * below. */
static void draw_slope(const struct roof *r, double rate, const char *name, bool dashed, double above)
{
	const struct panel *p = &r->panel;
	double fma = r->plot->table->head.fma_gflops, top = fma > 0 ? fma : p->y.high;
	double x0 = fmax(p->x.low, p->y.low / rate), x1 = fmin(top / rate, p->x.high);
	char text[96];

	if (!(rate > 0) || x1 <= x0)
		return;
	struct svg_at from = place(r, x0, x0 * rate), to = place(r, x1, x1 * rate);
	svg_line(r->plot->out, from, to, (struct svg_stroke){SVG_GREY, 1.3, dashed});
	double angle = atan2(to.y - from.y, to.x - from.x);
	struct svg_font font = roof_font(SVG_START);
	font.turned = angle * 180 / 3.14159265358979;
	snprintf(text, sizeof(text), "%s %s", name, show_rate(rate * 1e9, 1e6).text);
	struct svg_at at = {from.x + 10 * cos(angle) + above * sin(angle),
	                    from.y + 10 * sin(angle) - above * cos(angle)};
	svg_text(r->plot->out, at, font, text);
}

static void draw_roofs(const struct roof *r)
{
	const struct bench_head *head = &r->plot->table->head;
	const struct panel *p = &r->panel;
	double fastest = fmax(head->memory_gbytes, head->cache_gbytes);
	char text[96];

	draw_slope(r, head->cache_gbytes, "cache", true, 6);
	draw_slope(r, head->memory_gbytes, "memory", false, -14);
	if (!(head->fma_gflops > 0))
		return;
	double x0 = fastest > 0 ? fmax(head->fma_gflops / fastest, p->x.low) : p->x.low;
	svg_line(r->plot->out, place(r, x0, head->fma_gflops), place(r, p->x.high, head->fma_gflops),
	         (struct svg_stroke){SVG_GREY, 1.3, false});
	snprintf(text, sizeof(text), "FMA %s", show_flops(head->fma_gflops * 1e9, 1e6).text);
	/* Behind the ridge, where points are rare and labels are not. */
	double ridge = head->memory_gbytes > 0 ? head->fma_gflops / head->memory_gbytes : p->x.low;
	struct svg_at at = place(r, ridge, head->fma_gflops);
	at.x = fmin(at.x + 10, p->x.to - LETTER * (double)strlen(text));
	at.y -= 6;
	svg_text(r->plot->out, at, roof_font(SVG_START), text);
}

/* ---- points and labels ---- */

static void draw_others(const struct roof *r)
{
	for (size_t i = 0; i < r->plot->table->n; i++) {
		const struct bench_row *row = &r->plot->table->rows[i];
		size_t series = plot_series(r->plot, row);
		if (has_point(r, row) && row != main_row(r, series))
			svg_marker(r->plot->out, series, place(r, intensity(r, row), speed(r, row)), 2.5,
			           row->mode == BENCH_WARM, true);
	}
}

static size_t make_labels(const struct roof *r, struct label *labels)
{
	size_t n = 0;

	for (size_t k = 0; k < r->plot->n_kernels; k++) {
		const struct bench_row *row = main_row(r, k);
		if (row == NULL)
			continue;
		struct svg_at point = place(r, intensity(r, row), speed(r, row));
		double wide = LETTER * (double)strlen(r->plot->kernels[k]);
		bool left = point.x + 16 + wide > r->panel.x.to;
		double x = left ? point.x - 16 : point.x + 16;
		labels[n++] = (struct label){point, {x, point.y}, wide, k, left};
	}
	return n;
}

static bool side_by_side(const struct label *a, const struct label *b)
{
	double a0 = a->to_the_left ? a->at.x - a->wide : a->at.x;
	double b0 = b->to_the_left ? b->at.x - b->wide : b->at.x;

	return a0 + a->wide < b0 || b0 + b->wide < a0;
}

/* Pushes two labels apart by half of what they lack each, in the order of their points. */
static void push_apart(struct label *a, struct label *b)
{
	bool a_above = a->point.y < b->point.y || (a->point.y == b->point.y && a->series > b->series);
	struct label *up = a_above ? a : b, *down = a_above ? b : a;
	double lack = LINE_HEIGHT - (down->at.y - up->at.y);

	if (lack <= 0 || side_by_side(a, b))
		return;
	up->at.y -= lack / 2;
	down->at.y += lack / 2;
}

static void spread(const struct roof *r, struct label *labels, size_t n)
{
	const struct axis *y = &r->panel.y;

	for (unsigned pass = 0; pass < RELAXATIONS; pass++) {
		for (size_t i = 0; i < n; i++)
			for (size_t j = i + 1; j < n; j++)
				push_apart(&labels[i], &labels[j]);
		for (size_t i = 0; i < n; i++)
			labels[i].at.y =
			    fmin(fmax(labels[i].at.y, y->to + LINE_HEIGHT / 2), y->from - LINE_HEIGHT / 2);
	}
}

static void draw_label(const struct roof *r, const struct label *l)
{
	struct svg_font font = {.size = PLOT_TEXT, .color = svg_series_color(l->series)};
	double toward = l->to_the_left ? -1 : 1;

	font.anchor = l->to_the_left ? SVG_END : SVG_START;
	if (fabs(l->at.y - l->point.y) > 4)
		svg_line(r->plot->out, l->point, (struct svg_at){l->at.x - 2 * toward, l->at.y},
		         (struct svg_stroke){font.color, 0.7, false});
	svg_text(r->plot->out, (struct svg_at){l->at.x, l->at.y + 4}, font, r->plot->kernels[l->series]);
	svg_marker(r->plot->out, l->series, l->point, 5, false, false);
}

void plot_roofline(const struct plot *plot, struct svg_at corner, struct svg_at size)
{
	struct roof r = {.plot = plot};
	struct label labels[PLOT_KERNELS_MAX];

	r.moves = strcmp(plot->table->head.op, "transpose") == 0 || strcmp(plot->table->head.op, "copy") == 0;
	set_axes(&r, corner, size);
	plot_panel(plot, &r.panel);
	draw_roofs(&r);
	draw_others(&r);
	size_t n = make_labels(&r, labels);
	spread(&r, labels, n);
	for (size_t i = 0; i < n; i++)
		draw_label(&r, &labels[i]);
}
