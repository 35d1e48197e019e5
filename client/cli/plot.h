/*
 * plot.h: a bench table drawn as SVG, fit for print. On the left speed against size, one line per kernel; on
 * the right the roofline, each kernel a point. The same table gives the same bytes.
 */
#ifndef KOPS_CLI_PLOT_H
#define KOPS_CLI_PLOT_H

#include <stdio.h>

#include "axis.h"
#include "bench_table.h"
#include "svg.h"

#define PLOT_KERNELS_MAX 32
#define PLOT_TEXT        12 /* pixels of the usual text */

struct plot {
	FILE *out;
	const struct bench_table *table;
	const char *kernels[PLOT_KERNELS_MAX]; /* that have a point, in the order of the table: the ladder's */
	size_t n_kernels;
	double joined; /* last extent of the shapes that a line joins; 0: of all */
};

void plot_draw(FILE *out, const struct bench_table *table);

/* ---- between the panels ---- */

/* Of a row's kernel among plot->kernels; n_kernels if it has no place there. */
size_t plot_series(const struct plot *plot, const struct bench_row *row);

/* A frame with ticks, their labels, and titles. scale: of the values that labels show. */
struct panel {
	struct axis x, y;
	const char *title, *x_title, *y_title;
	double x_scale, y_scale;
	bool x_by_twos, x_in_bytes;
};
void plot_panel(const struct plot *plot, const struct panel *panel);

void plot_roofline(const struct plot *plot, struct svg_at corner, struct svg_at size);

#endif
