/*
 * jump.c: longjmp() and its family. A signal's handler may leave a product by it while kopsd writes the result
 * to the program's memory. Before it does, that memory is made private.
 *
 * <setjmp.h> renames some of these functions, so they are declared here.
 */
#include <dlfcn.h>
#include <stdlib.h>

#include "channel.h"

#pragma GCC visibility push(default)

_Noreturn void longjmp(void *to, int value);
_Noreturn void _longjmp(void *to, int value);
_Noreturn void siglongjmp(void *to, int value);
_Noreturn void __longjmp_chk(void *to, int value);

/* The next library's, found when this library is loaded: a handler of signals cannot look for them. */
#define EXPORT(name)                                                                                           \
	static void (*next_##name)(void *to, int value);                                                       \
                                                                                                               \
	__attribute__((constructor)) static void find_##name(void)                                             \
	{                                                                                                      \
		*(void **)&next_##name = dlsym(RTLD_NEXT, #name);                                              \
	}                                                                                                      \
                                                                                                               \
	_Noreturn void name(void *to, int value)                                                               \
	{                                                                                                      \
		channel_before_jump();                                                                         \
		if (!next_##name)                                                                              \
			find_##name();                                                                         \
		next_##name(to, value);                                                                        \
		abort();                                                                                       \
	}

EXPORT(longjmp)
EXPORT(_longjmp)
EXPORT(siglongjmp)
EXPORT(__longjmp_chk)

#pragma GCC visibility pop
