/* show.h: formats figures and matrices for people. */
#ifndef KOPS_CLI_SHOW_H
#define KOPS_CLI_SHOW_H

#include <stdint.h>
#include <stdio.h>

#include "files/element.h"
#include "json.h"
#include "kops.h"

struct show_text {
	char text[64];
};

/* Text that others chose, or that may be long. */
struct show_line {
	char text[256];
};

struct show_text show_us(double us);                  /* "12.3 µs", "4.56 ms", "1.20 s" */
struct show_text show_bytes(uint64_t bytes);          /* "4.00 MiB" */
struct show_text show_flops(double flops, double us); /* "32.7 TFLOP/s"; "" if either is 0 */
struct show_text show_rate(double bytes, double us);  /* "4.29 TB/s"; "" if either is 0 */
/*
 * Return the columns of UTF-8 text, and the field width in bytes with which printf gives it `columns` columns.
 */
int show_width(const char *text);
int show_field(int columns, const char *text);
/*
 * Cuts the text to so many columns, at most 64, and ends it with "…" if it was longer. Nothing in it controls a
 * terminal.
 */
struct show_line show_cut(const char *text, int columns);

struct show_text show_shape(uint32_t rank, const uint64_t *shape); /* "1024×64" */
/* Formats "gemm f32 4096×4096×1024", without the size if it is unknown. */
struct show_line show_op(const char *op, const kops_op_shape *shape);

/* Writes the shape as member "shape", an array. */
void show_shape_json(struct json *json, const kops_view *view);
/* Writes members "dtype" and "shape"; null and empty if unknown. */
void show_op_shape_json(struct json *json, const kops_op_shape *shape);

/* Prints shape, dtype, the top left corner and min, max, mean. */
void show_matrix(FILE *out, const char *name, const struct elements *e);

#endif
