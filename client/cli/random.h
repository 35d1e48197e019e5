/* random.h: reproducible random numbers (xorshift64*, Vigna 2016), never for secrets. */
#ifndef KOPS_CLI_RANDOM_H
#define KOPS_CLI_RANDOM_H

#include <stdint.h>
#include <sys/random.h>

struct random {
	uint64_t state;
};

/* Returns a fresh seed from the kernel, at most 32 bits, so that people can copy it. */
static inline uint64_t random_seed(void)
{
	uint32_t seed = 1;

	return getrandom(&seed, sizeof(seed), 0) == (ssize_t)sizeof(seed) ? seed : 1;
}

static inline void random_start(struct random *random, uint64_t seed)
{
	random->state = seed * 0x9e3779b97f4a7c15u + 1;
	if (random->state == 0)
		random->state = 1;
}

static inline uint64_t random_next(struct random *random)
{
	uint64_t x = random->state;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	random->state = x;
	return x * 0x2545f4914f6cdd1du;
}

/* n > 0. The bias is negligible, since n is far below 2^64 here. */
static inline uint64_t random_below(struct random *random, uint64_t n)
{
	return random_next(random) % n;
}

/* Returns a number uniform in [-1, 1). */
static inline double random_unit(struct random *random)
{
	return (double)(int64_t)random_next(random) * 0x1p-63;
}

#endif
