/*
 * seed.h: seeds of tests' random numbers.
 *
 * A test that runs by default uses one fixed seed, so it gives the same answer every time. KOPS_TEST_SEED names
 * another seed, or "random" for a new one in each run. Tests print the seed, so that a failure can be repeated.
 */
#ifndef KOPS_TESTS_SEED_H
#define KOPS_TESTS_SEED_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEED_DEFAULT 1

/* Reads a number or "random". */
static inline uint64_t seed_parse(const char *text)
{
	struct timespec now;

	if (strcmp(text, "random") != 0)
		return strtoull(text, NULL, 0);
	timespec_get(&now, TIME_UTC);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline uint64_t seed_of_run(void)
{
	const char *text = getenv("KOPS_TEST_SEED");

	return text && *text ? seed_parse(text) : SEED_DEFAULT;
}

#endif
