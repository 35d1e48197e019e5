#include "host_memory.h"

#include <stdbool.h>
#include <stdio.h>

#include "kops.h"

static uint64_t claimed_bytes; /* atomic */

/* Of /proc/meminfo. False when it cannot be read. */
static bool read_kib(uint64_t *ret_total, uint64_t *ret_available)
{
	FILE *file = fopen("/proc/meminfo", "re");
	unsigned long long total = 0, available = 0;
	char line[128];

	if (!file)
		return false;
	while (fgets(line, sizeof line, file)) {
		sscanf(line, "MemTotal: %llu", &total);
		sscanf(line, "MemAvailable: %llu", &available);
	}
	fclose(file);
	*ret_total = total;
	*ret_available = available;
	return total > 0;
}

int host_memory_claim(uint64_t bytes)
{
	uint64_t claimed = __atomic_add_fetch(&claimed_bytes, bytes, __ATOMIC_RELAXED);
	uint64_t total, available;

	if (!read_kib(&total, &available))
		return 0; /* no way to know */
	if (available > total / 16 && claimed / 1024 < available - total / 16)
		return 0;
	host_memory_settle(bytes);
	return KOPS_E_NOMEM;
}

void host_memory_settle(uint64_t bytes)
{
	__atomic_sub_fetch(&claimed_bytes, bytes, __ATOMIC_RELAXED);
}
