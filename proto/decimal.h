/*
 * decimal.h: numbers with a fraction, read and written with a point, whatever locale the program has set: a
 * library runs in its caller's.
 */
#ifndef KOPS_DECIMAL_H
#define KOPS_DECIMAL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#define DECIMAL_BYTES 32

/* The whole text as strtod() reads it in the C locale; false: it is no number. */
bool decimal_read(const char *text, double *ret);

/* As %g in the C locale. Returns text. */
const char *decimal_write(char text[DECIMAL_BYTES], double value);

/* vsnprintf() in the C locale. */
__attribute__((format(printf, 3, 0))) int decimal_print(char *text, size_t size, const char *format,
                                                        va_list args);

#endif
