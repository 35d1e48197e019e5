/*
 * width.c: finds out by one call how wide a library's integers are.
 *
 * The file's name does not tell: MKL's libmkl_intel_lp64 has 32-bit integers, and libmkl_rt has what the
 * program chose. So a vector function is called with a length whose lower half is 1 but which is negative as a
 * whole. With 32-bit integers it answers as for one element. With 64-bit integers it answers as for none.
 */
#include "width.h"

#include <dlfcn.h>
#include <fenv.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>

#define LENGTH (1 - (INT64_C(1) << 32))

/* An integer passed by value: a register, or a stack slot. */
typedef intptr_t word;

typedef int index_of_largest(const int64_t *n, const void *x, const int64_t *step);
typedef double sum_of_doubles(word n, const double *x, word step);
typedef float sum_of_floats(word n, const float *x, word step);

static const int64_t length = LENGTH, step = 1;
static const double one = 1;
static const float one_float = 1;

/* Each calls one function, and returns true if it saw no element. */
static bool ask_idamax(void *function)
{
	return ((index_of_largest *)function)(&length, &one, &step) == 0;
}

static bool ask_isamax(void *function)
{
	return ((index_of_largest *)function)(&length, &one_float, &step) == 0;
}

static bool ask_dasum(void *function)
{
	return ((sum_of_doubles *)function)((word)LENGTH, &one, 1) < 0.5;
}

static bool ask_sasum(void *function)
{
	return ((sum_of_floats *)function)((word)LENGTH, &one_float, 1) < 0.5f;
}

static const struct {
	const char *name;
	bool (*ask)(void *function);
} questions[] = {
    {"idamax_", ask_idamax},
    {"isamax_", ask_isamax},
    {"cblas_dasum", ask_dasum},
    {"cblas_sasum", ask_sasum},
};

/* Returns the library of a function, or the process if the program itself has it. dlclose() it when done. */
static void *library_of(const void *function)
{
	Dl_info info;
	struct link_map *map;
	if (!dladdr1(function, &info, (void **)&map, RTLD_DL_LINKMAP))
		return NULL;
	return dlopen(map->l_name && *map->l_name ? map->l_name : NULL, RTLD_LAZY | RTLD_NOLOAD);
}

/*
 * Looks in the library and its dependencies, then in the next library: some have products only, such as NVBLAS.
 */
static void *find(void *library, const char *name)
{
	void *function = library ? dlsym(library, name) : NULL;
	return function ? function : dlsym(RTLD_NEXT, name);
}

static bool ask(void *library)
{
	for (size_t i = 0; i < sizeof questions / sizeof *questions; i++) {
		void *function = find(library, questions[i].name);
		if (function)
			return questions[i].ask(function);
	}
	return false;
}

bool width_is_64(const void *function)
{
	fenv_t flags;
	void *library = library_of(function);
	feholdexcept(&flags);
	bool is_64 = ask(library);
	fesetenv(&flags);
	if (library)
		dlclose(library);
	return is_64;
}
