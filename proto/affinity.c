#include "affinity.h"

#include <sched.h>
#include <stddef.h>

#define CPUS_MAX 4096

struct cpus {
	cpu_set_t sets[CPUS_MAX / CPU_SETSIZE];
};

static bool get(struct cpus *ret)
{
	return sched_getaffinity(0, sizeof ret->sets, ret->sets) == 0;
}

static bool set(const struct cpus *cpus)
{
	return sched_setaffinity(0, sizeof cpus->sets, cpus->sets) == 0;
}

unsigned affinity_count(void)
{
	struct cpus cpus = {0};
	int n = get(&cpus) ? CPU_COUNT_S(sizeof cpus.sets, cpus.sets) : 0;

	return n > 0 ? (unsigned)n : 1;
}

bool affinity_leave(int cpu)
{
	struct cpus all = {0}, others;

	if (cpu < 0 || !get(&all))
		return false;
	others = all;
	CPU_CLR_S((size_t)cpu, sizeof others.sets, others.sets);
	if (CPU_COUNT_S(sizeof others.sets, others.sets) == 0 || !set(&others))
		return false;
	set(&all);
	return true;
}
