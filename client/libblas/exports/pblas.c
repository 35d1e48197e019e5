/*
 * pblas.c: how many columns ScaLAPACK's products (PBLAS) take at a time.
 *
 * PBLAS asks pilaenv_(), and ScaLAPACK's own always answers 32: products with k = 32, which move more than they
 * compute. When preloaded, this one comes first. All ranks must answer alike, so no measurement decides.
 */
#include <stddef.h>
#include <stdint.h>

#include "settings.h"

#pragma GCC visibility push(default)

int32_t pilaenv_(const int32_t *context, const char *precision, size_t length);

int32_t pilaenv_(const int32_t *context, const char *precision, size_t length)
{
	(void)context;
	(void)precision;
	(void)length;
	return settings_get()->pblas_block;
}

#pragma GCC visibility pop
