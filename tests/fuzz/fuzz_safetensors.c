/*
 * fuzz_safetensors.c: libFuzzer target. Reads any bytes as a .safetensors file: each tensor lies within the
 * file, or there is a sentence.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/safetensors.h"
#include "options.h"

/* Replaces options.c. */
int why_invalid(char why[CLI_WHY_BYTES], const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(why, CLI_WHY_BYTES, format, args);
	va_end(args);
	return KOPS_E_INVALID;
}

struct file {
	const uint8_t *data;
	size_t len;
	volatile unsigned sum; /* so that all is read */
};

static int visit(const struct safetensor *t, void *user)
{
	struct file *f = user;

	if (t->rank > SAFETENSORS_RANK_MAX || t->offset > f->len || t->bytes > f->len - t->offset ||
	    strlen(t->name) >= sizeof t->name || strlen(t->type) >= sizeof t->type)
		abort();
	for (uint64_t i = 0; i < t->bytes; i++)
		f->sum += f->data[t->offset + i];
	return t->name[0] == '!' ? KOPS_E_CANCELLED : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	char why[CLI_WHY_BYTES] = "";
	struct file f = {data, len, 0};
	int rc = safetensors_read(data, len, visit, &f, why);

	if ((rc == KOPS_E_INVALID) != (why[0] != '\0') ||
	    (rc != 0 && rc != KOPS_E_INVALID && rc != KOPS_E_CANCELLED))
		abort();
	return 0;
}
