/*
 * cases.h: makes random problems for kernels on an emulated GPU. Each kind meets what some kernel does
 * differently.
 *
 * They make a problem of the op p->args.op, and return false if memory is short. The caller frees it, made or
 * not.
 */
#ifndef KOPS_CASES_H
#define KOPS_CASES_H

#include "check.h"

/* Views of any strides, for any op. */
bool make_anyhow(struct problem *p, struct random *r);

/* Views that are one run each, and begin alike. */
bool make_runs(struct problem *p, struct random *r);

/* ---- Products ---- */

/* Of f32: any; with a wide range of numbers; with operands aligned as the copy engine requires. */
bool make_ordinary(struct problem *p, struct random *r);
bool make_wide(struct problem *p, struct random *r);
bool make_aligned(struct problem *p, struct random *r);

/* Batches of small ones: of f32, of f64 and of 16-bit numbers. */
bool make_small(struct problem *p, struct random *r);
bool make_small_f64(struct problem *p, struct random *r);
bool make_small_16(struct problem *p, struct random *r);

/* Of complex numbers, conjugated or not: matrices by rows and columns, or of any strides. */
bool make_complex(struct problem *p, struct random *r);
bool make_scaled_complex(struct problem *p, struct random *r); /* of c64, by real factors */
bool make_anyhow_complex(struct problem *p, struct random *r);

/* Few long sums of 16-bit numbers. */
bool make_long_sums(struct problem *p, struct random *r);

/* 16-bit numbers for each form of tile, in lines that begin anywhere or at multiples of 16 bytes. */
bool make_ragged(struct problem *p, struct random *r);

/* All that wgmma takes, in lines that begin at multiples of 16 bytes. */
bool make_narrow(struct problem *p, struct random *r);

/* Several of wgmma's wide tiles for each block, which share operands; that takes long sums. */
bool make_tiles(struct problem *p, struct random *r);

/* The same with lines that begin anywhere. */
bool make_loose_tiles(struct problem *p, struct random *r);

/* Few tiles and long sums, so that wgmma splits K. */
bool make_splits(struct problem *p, struct random *r);

/* ---- Rows ---- */

/* That begin at multiples of 16 bytes, or all equally far behind one. */
bool make_alike_rows(struct problem *p, struct random *r);

/* Of a few elements, many of less than 16 bytes, or of more than the lanes of a warp keep. */
bool make_short_rows(struct problem *p, struct random *r);

/* Of a few pieces, or one row with more pieces than a warp has lanes. */
bool make_long_rows(struct problem *p, struct random *r);

/* More pieces for each block than it keeps at a time. */
bool make_many_rows(struct problem *p, struct random *r);

/* Many for a warp; or longer ones, up to several warps for a row; with or without what layer_norm may have. */
bool make_normed_rows(struct problem *p, struct random *r);

/* ---- Reductions ---- */

/* Of rows, to sum, mean or greatest. */
bool make_reduced_rows(struct problem *p, struct random *r);

/* Means of numbers whose sums leave the range, of rows and of columns. */
bool make_largest_rows(struct problem *p, struct random *r);
bool make_largest_columns(struct problem *p, struct random *r);

/* ---- Tables for gather ---- */

/* With rows that begin anywhere; or where each index and row of y begins at a multiple of 16 bytes, or equally
 * far behind one. */
bool make_table(struct problem *p, struct random *r);
bool make_aligned_table(struct problem *p, struct random *r);

/* ---- top_k ---- */

/* Rows of all the ways, whose elements are side by side. */
bool make_selected(struct problem *p, struct random *r);

/* ---- search ---- */

/* Many rows of a base, which begin at multiples of 16 bytes or anywhere. */
bool make_searched(struct problem *p, struct random *r);

/* Makes what `wgmma` takes: tiles of queries, some that are filtered. */
bool make_mapped_search(struct problem *p, struct random *r);
bool make_refined_search(struct problem *p, struct random *r);

/* ---- Attention ---- */

/* Rows of 16-bit elements that begin at multiples of 16 bytes. */
bool make_attention(struct problem *p, struct random *r);

/* The same, as tensor maps and wgmma take them. */
bool make_mapped_attention(struct problem *p, struct random *r);
bool make_pairs_of_attention(struct problem *p, struct random *r);

#endif
