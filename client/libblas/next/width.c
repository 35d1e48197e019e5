/*
 * width.c: one call tells how wide a library takes its integers to be.
 *
 * The file's name does not: MKL's libmkl_intel_lp64 has 32-bit integers, and libmkl_rt has what the program
 * chose. So a function of vectors is called with a length that is 1 in its lower half, and negative as a whole.
 * With 32-bit integers the answer is that of one element. With 64-bit integers it is that of none.
 */
#include "width.h"

#include <dlfcn.h>
#include <fenv.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>

#define LENGTH (1 - (INT64_C(1) << 32))

/* As passed by value: a register, or a place on the stack. */
typedef intptr_t word;

typedef int index_of_largest(const int64_t *n, const void *x, const int64_t *step);
typedef double sum_of_doubles(word n, const double *x, word step);
typedef float sum_of_floats(word n, const float *x, word step);

static const int64_t length = LENGTH, step = 1;
static const double one = 1;
static const float one_float = 1;

/* Each asks one function: whether it saw no element. */
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

/* The library of a function, or this process for what is in the program itself. dlclose() when done. */
static void *library_of(const void *function)
{
	Dl_info info;
	struct link_map *map;
	if (!dladdr1(function, &info, (void **)&map, RTLD_DL_LINKMAP))
		return NULL;
	return dlopen(map->l_name && *map->l_name ? map->l_name : NULL, RTLD_LAZY | RTLD_NOLOAD);
}

/* Of the library or those that it needs; else of the next one, for libraries of products only, as NVBLAS. */
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
