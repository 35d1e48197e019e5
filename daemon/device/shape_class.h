/*
 * shape_class.h: the class of shapes that an op's operands belong to: those for which one measurement stands.
 *
 * Extents count to the nearest power of two; beside them matter the op, its dtype and precision, which axis of
 * each view has unit stride, and whether every line begins at a multiple of 16 bytes. For any op, from what its
 * check() made of the operands.
 *
 * As text, one word, for the tuning table and for people:
 *
 *     gemm/f32/ieee/1x2048x1024:2/1x1024x512:2/1x2048x512:2
 *     softmax/f16/1024x4096:1/1024x4096:1/unaligned
 *
 * The op; the type of its elements; of ops that have one, the precision; then each input and the output,
 * extents and after a colon the axis of unit stride (counted from 0; '-' for none).
 */
#ifndef KOPS_SHAPE_CLASS_H
#define KOPS_SHAPE_CLASS_H

#include "kernel.h"

#define SHAPE_CLASS_TEXT_BYTES 320 /* three views of four extents of 19 digits, and all names */
#define SHAPE_ALIGNMENT        16  /* bytes: the widest access of one thread, and what TMA asks for */
#define SHAPE_CLASS_NO_AXIS    0xff

/* Bytes only, so that classes compare as memory; what is not used is 0. */
struct shape_class {
	uint8_t op; /* index in ops[] */
	uint8_t dtype, precision;
	uint8_t unaligned;
	struct {
		uint8_t rank, unit_axis;
		uint8_t log2[KOPS_RANK_MAX];
	} views[OP_VIEWS_MAX];
};

/* Given checked args. */
void shape_class_of(const struct op_args *args, struct shape_class *ret);

/* Some total order, as of strcmp(). */
int shape_class_compare(const struct shape_class *a, const struct shape_class *b);

/* Returns text. */
const char *shape_class_format(const struct shape_class *c, char text[SHAPE_CLASS_TEXT_BYTES]);

/* False where the text is not what shape_class_format() writes. */
bool shape_class_parse(const char *text, struct shape_class *ret);

#endif
