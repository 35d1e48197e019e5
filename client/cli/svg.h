/*
 * svg.h: the few shapes that plots are made of, written as SVG. Coordinates in pixels from the top left, with
 * one decimal, so that equal input gives equal bytes.
 */
#ifndef KOPS_CLI_SVG_H
#define KOPS_CLI_SVG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#define SVG_BLACK "#222222"
#define SVG_GREY  "#6b6b6b"
#define SVG_FAINT "#e4e4e4"

struct svg_at {
	double x, y;
};

struct svg_stroke {
	const char *color;
	double width;
	bool dashed;
};

enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END };

struct svg_font {
	double size;
	const char *color;
	enum svg_anchor anchor;
	bool bold;
	double turned; /* degrees, clockwise, around its place */
};

void svg_begin(FILE *out, double width, double height);
void svg_end(FILE *out);
void svg_line(FILE *out, struct svg_at from, struct svg_at to, struct svg_stroke stroke);
void svg_polyline(FILE *out, const struct svg_at *points, size_t n, struct svg_stroke stroke);

/* With a white seam, so that lines behind it do not disturb. */
void svg_text(FILE *out, struct svg_at at, struct svg_font font, const char *text);

/*
 * The i-th of series of data, told apart by color and by marker; the first seven colors the colour-blind tell
 * apart, too (Okabe and Ito's, without the yellow).
 */
#define SVG_SERIES 11
const char *svg_series_color(size_t i);
void svg_marker(FILE *out, size_t series, struct svg_at at, double radius, bool hollow, bool faint);

#endif
