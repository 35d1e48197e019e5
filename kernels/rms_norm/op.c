/* rms_norm: layer_norm without the mean; layer_norm/rules.c has the rules. */
#include "layer_norm/rules.h"

LAYER_NORM_OP(
    rms_norm, true, "normalisation of rows to a mean square of 1",
    "y = x / sqrt(mean of x^2 + eps) * weight + bias along the last axis",
    "A row with NaN becomes NaN. An infinity becomes NaN, and what is finite in its row 0. With a residual, "
    "x + residual takes the place of x, rounded to their type.");
