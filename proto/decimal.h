/*
 * decimal.h: reads and writes numbers with a decimal point, whatever locale the program has set; a library runs
 * in its caller's locale.
 */
#ifndef KOPS_DECIMAL_H
#define KOPS_DECIMAL_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#define DECIMAL_BYTES 32

/* Reads the whole text like strtod() in the C locale. Returns false if it is no number. */
bool decimal_read(const char *text, double *ret);

/* Writes like %g in the C locale. Returns text. */
const char *decimal_write(char text[DECIMAL_BYTES], double value);

/* vsnprintf() in the C locale. */
__attribute__((format(printf, 3, 0))) int decimal_print(char *text, size_t size, const char *format,
                                                        va_list args);

#endif
