#include "status.h"

#include <stddef.h>

#include "kops_types.h"

#define X(name, code, text) _Static_assert(KOPS_E_##name == -(code), #name " differs from kops_types.h");
#include "status.def"
#undef X

static const struct {
	const char *name;
	const char *text;
} table[] = {
    [0] = {"OK", "success"},
#define X(name, code, text) [code] = {#name, text},
#include "status.def"
#undef X
};

static size_t row(int code)
{
	size_t i = code <= 0 ? (size_t)-code : sizeof table;
	return i < sizeof table / sizeof table[0] && table[i].name ? i : (size_t)-1;
}

const char *status_text(int code)
{
	size_t i = row(code);
	return i == (size_t)-1 ? "unknown error" : table[i].text;
}

const char *status_name(int code)
{
	size_t i = row(code);
	return i == (size_t)-1 ? "UNKNOWN" : table[i].name;
}
