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

struct show_text show_us(double us);                  /* "12.3 µs", "4.56 ms", "1.20 s" */
struct show_text show_bytes(uint64_t bytes);          /* "4.00 MiB" */
struct show_text show_flops(double flops, double us); /* "32.7 TFLOP/s"; "" when either is 0 */
struct show_text show_rate(double bytes, double us);  /* "4.29 TB/s"; "" when either is 0 */
/* Columns of UTF-8 text, and the field width in bytes that printf needs to give it `columns` of them. */
int show_width(const char *text);
int show_field(int columns, const char *text);

struct show_text show_shape(uint32_t rank, const uint64_t *shape); /* "1024×64" */

/* The same as member "shape", an array. */
void show_shape_json(struct json *json, const kops_view *view);

/* Shape, dtype, the top left corner and min, max, mean. */
void show_matrix(FILE *out, const char *name, const struct elements *e);

#endif
