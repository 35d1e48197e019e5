/*
 * next.c: finds the next BLAS in line.
 *
 * dlsym(RTLD_NEXT) sees what the program is linked with. It does not see Python's modules, which are opened
 * with RTLD_LOCAL, so the loaded objects are searched next. They are listed first and opened afterwards:
 * dlopen() within dl_iterate_phdr() takes the loader's locks in an order that can deadlock.
 */
#include "next.h"

#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "width.h"

/* Tried in this order if no BLAS is loaded. */
static const char *const standard[] = {"libopenblas.so.0", "libblas.so.3", "liblapack.so.3"};

static const char *file_of(const void *address)
{
	Dl_info info;
	return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "";
}

/* Returns true for this library or another copy of it: libkops-blas.so and libblas.so.3 may both be loaded. */
static bool is_ours(const void *function)
{
	const char *file = file_of(function);
	return strcmp(file, file_of((const void *)next_find)) == 0 || strstr(file, "/kops-blas/libblas.so") ||
	       strstr(file, "/libkops-blas.so");
}

/* Returns true for a name that does not say how wide its integers are. */
static bool is_plain(const char *name)
{
	return strncmp(name, "scipy_", 6) != 0;
}

static bool is_wide(const char *name, const void *function)
{
	return is_plain(name) && width_is_64(function);
}

struct names {
	char **at;
	size_t n, room;
};

static int add_name(struct dl_phdr_info *info, size_t size, void *data)
{
	struct names *names = data;
	(void)size;
	if (!info->dlpi_name || !*info->dlpi_name)
		return 0;
	if (names->n == names->room) {
		size_t room = names->room ? 2 * names->room : 64;
		char **at = realloc(names->at, room * sizeof *at);
		if (!at)
			return 1;
		names->at = at;
		names->room = room;
	}
	names->at[names->n] = strdup(info->dlpi_name);
	return names->at[names->n++] == NULL;
}

static void free_names(struct names *names)
{
	for (size_t i = 0; i < names->n; i++)
		free(names->at[i]);
	free(names->at);
}

/* Looks for the name in a library and its dependencies; keeps the library open if it is taken. */
static void *look_in(const char *library, int flags, const char *name, bool wide)
{
	void *handle = dlopen(library, flags);
	void *function = handle ? dlsym(handle, name) : NULL;
	if (function && !is_ours(function) && is_wide(name, function) == wide)
		return function;
	if (handle)
		dlclose(handle);
	return NULL;
}

static void *look_in_loaded(const struct names *names, const char *name, bool wide)
{
	void *function = NULL;
	for (size_t i = 0; i < names->n && !function; i++)
		if (names->at[i])
			function = look_in(names->at[i], RTLD_LAZY | RTLD_NOLOAD, name, wide);
	return function;
}

static void *load_standard(const char *name)
{
	void *function = NULL;
	for (size_t i = 0; i < sizeof standard / sizeof *standard && !function; i++)
		function = look_in(standard[i], RTLD_LAZY | RTLD_LOCAL, name, false);
	return function;
}

void *next_find(const char *name, bool *ret_wide)
{
	struct names names = {0};
	void *next = dlsym(RTLD_NEXT, name);
	if (next && !is_ours(next)) {
		*ret_wide = is_wide(name, next);
		return next;
	}
	dl_iterate_phdr(add_name, &names);
	void *narrow = look_in_loaded(&names, name, false);
	void *wide = narrow ? NULL : look_in_loaded(&names, name, true);
	free_names(&names);
	if (!narrow && !wide && is_plain(name))
		narrow = load_standard(name);
	*ret_wide = wide != NULL;
	return narrow ? narrow : wide;
}
