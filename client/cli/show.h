/* show.h: figures and matrices for people. */
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

/* Text that somebody else chose, or may be long. */
struct show_line {
	char text[256];
};

struct show_text show_us(double us);                  /* "12.3 µs", "4.56 ms", "1.20 s" */
struct show_text show_bytes(uint64_t bytes);          /* "4.00 MiB" */
struct show_text show_flops(double flops, double us); /* "32.7 TFLOP/s"; "" when either is 0 */
struct show_text show_rate(double bytes, double us);  /* "4.29 TB/s"; "" when either is 0 */
/* Columns of UTF-8 text, and the field width in bytes that printf needs to give it `columns` of them. */
int show_width(const char *text);
int show_field(int columns, const char *text);
/* What fits into so many columns, at most 64, with "…" at the end of what does not; nothing in it drives a
 * terminal. */
struct show_line show_cut(const char *text, int columns);

struct show_text show_shape(uint32_t rank, const uint64_t *shape); /* "1024×64" */
/* "gemm f32 4096×4096×1024"; without the size where it is not known. */
struct show_line show_op(const char *op, const kops_op_shape *shape);

/* The same as member "shape", an array. */
void show_shape_json(struct json *json, const kops_view *view);
/* Members "dtype" and "shape"; null and empty where they are not known. */
void show_op_shape_json(struct json *json, const kops_op_shape *shape);

/* Shape, dtype, the top left corner and min, max, mean. */
void show_matrix(FILE *out, const char *name, const struct elements *e);

#endif
