/* layer_norm: rules.c has its rules, which it shares with rms_norm. */
#include "layer_norm/rules.h"

LAYER_NORM_OP(
    layer_norm, false, "normalisation of rows to mean 0 and variance 1",
    "y = (x - mean) / sqrt(variance + eps) * weight + bias along the last axis",
    "The variance is that of all elements of the row, not of a sample. A row with NaN or an infinity becomes "
    "NaN; so does one of f64 whose sum leaves the range. With a residual, x + residual takes the place of x, "
    "rounded to their type.");
