#include "svg.h"

#include <math.h>

#define FONTS "DejaVu Sans, Liberation Sans, Arial, sans-serif"

void svg_begin(FILE *out, double width, double height)
{
	fprintf(out,
	        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
	        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f "
	        "%.0f\" font-family=\"%s\">\n"
	        "<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n",
	        width, height, width, height, FONTS);
}

void svg_end(FILE *out)
{
	fputs("</svg>\n", out);
}

static void put_stroke(FILE *out, struct svg_stroke stroke)
{
	fprintf(out, " stroke=\"%s\" stroke-width=\"%.1f\"%s", stroke.color, stroke.width,
	        stroke.dashed ? " stroke-dasharray=\"5 4\"" : "");
}

void svg_line(FILE *out, struct svg_at from, struct svg_at to, struct svg_stroke stroke)
{
	fprintf(out, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"", from.x, from.y, to.x, to.y);
	put_stroke(out, stroke);
	fputs("/>\n", out);
}

void svg_polyline(FILE *out, const struct svg_at *points, size_t n, struct svg_stroke stroke)
{
	fputs("<polyline fill=\"none\" stroke-linejoin=\"round\"", out);
	put_stroke(out, stroke);
	fputs(" points=\"", out);
	for (size_t i = 0; i < n; i++)
		fprintf(out, "%s%.1f,%.1f", i ? " " : "", points[i].x, points[i].y);
	fputs("\"/>\n", out);
}

static void put_escaped(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '<')
			fputs("&lt;", out);
		else if (*text == '&')
			fputs("&amp;", out);
		else if ((unsigned char)*text >= 0x20)
			fputc(*text, out);
	}
}

void svg_text(FILE *out, struct svg_at at, struct svg_font font, const char *text)
{
	static const char *const anchors[] = {"start", "middle", "end"};

	fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%.1f\" text-anchor=\"%s\" fill=\"%s\"", at.x,
	        at.y, font.size, anchors[font.anchor], font.color);
	if (font.bold)
		fputs(" font-weight=\"bold\"", out);
	if (font.turned != 0)
		fprintf(out, " transform=\"rotate(%.1f %.1f %.1f)\"", font.turned, at.x, at.y);
	fputs(" stroke=\"#ffffff\" stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\">", out);
	put_escaped(out, text);
	fputs("</text>\n", out);
}

/* ---- series ---- */

const char *svg_series_color(size_t i)
{
	static const char *const colors[SVG_SERIES] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
	                                               "#e69f00", "#56b4e9", "#222222", "#8a6d3b",
	                                               "#7f7f7f", "#6a3d9a", "#b22222"};

	return colors[i % SVG_SERIES];
}

/* A regular polygon, or a star where `inner` is less than 1; the first corner at `turned` degrees from the top.
 */
static void put_polygon(FILE *out, struct svg_at at, double radius, unsigned corners, double turned,
                        double inner)
{
	unsigned n = inner < 1 ? 2 * corners : corners;

	fputs("<polygon points=\"", out);
	for (unsigned i = 0; i < n; i++) {
		double angle = (turned + 360.0 * i / n) * 3.14159265358979 / 180;
		double r = inner < 1 && i % 2 ? radius * inner : radius;
		fprintf(out, "%s%.1f,%.1f", i ? " " : "", at.x + r * sin(angle), at.y - r * cos(angle));
	}
	fputc('"', out);
}

void svg_marker(FILE *out, size_t series, struct svg_at at, double radius, bool hollow, bool faint)
{
	static const struct {
		unsigned corners; /* 0: a circle */
		double turned, inner, scale;
	} shapes[SVG_SERIES] = {{0, 0, 1, 1},      {4, 45, 1, 1.3},   {3, 0, 1, 1.35}, {4, 0, 1, 1.3},
	                        {3, 180, 1, 1.35}, {5, 0, 0.45, 1.5}, {6, 0, 1, 1.15}, {3, 90, 1, 1.35},
	                        {4, 0, 0.45, 1.5}, {3, 270, 1, 1.35}, {6, 0, 0.5, 1.4}};
	size_t i = series % SVG_SERIES;
	const char *color = svg_series_color(series);

	radius *= shapes[i].scale;
	if (shapes[i].corners == 0)
		fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%.1f\"", at.x, at.y, radius);
	else
		put_polygon(out, at, radius, shapes[i].corners, shapes[i].turned, shapes[i].inner);
	fprintf(out, " fill=\"%s\" stroke=\"%s\" stroke-width=\"%.1f\"%s/>\n", hollow ? "#ffffff" : color,
	        color, hollow ? 1.4 : 0.6, faint ? " opacity=\"0.35\"" : "");
}
