#include "job/engine.h"

#include <string.h>

/* Between looks at what memory there is, which take up to half a millisecond. */
#define LOOK_AT_MEMORY_MS 1000u
/* No look is needed while a 64th of the limit is mapped: host_memory.h keeps more than that free. */
#define AMPLE_ANYWAY 64

bool device_is_meant(const struct device *device, const char *name)
{
	size_t n = strlen(name);

	if (n > 0 && name[n - 1] == '*')
		return strncmp(device->name, name, n - 1) == 0;
	return n == 0 || strcmp(device->name, name) == 0;
}

struct device *engine_device(const struct engine *e, const char *name, unsigned *ret_index)
{
	for (unsigned i = 0; i < e->n_devices; i++)
		if (device_is_meant(e->devices[i].device, name)) {
			if (ret_index)
				*ret_index = i;
			return e->devices[i].device;
		}
	return NULL;
}

const struct device *engine_sick_device(const struct engine *e)
{
	for (unsigned i = 0; i < e->n_devices; i++)
		if (!device_is_healthy(e->devices[i].device, e->config->hang_timeout * 1000000))
			return e->devices[i].device;
	return NULL;
}

bool engine_has_jobs_out(const struct engine *e)
{
	for (unsigned i = 0; i < e->n_devices; i++)
		if (!list_is_empty(&e->devices[i].out))
			return true;
	return false;
}

bool engine_memory_is_ample(struct engine *e)
{
	uint64_t now_ms = uv_now(e->loop);
	uint64_t mapped = e->accounts.bytes[ACCOUNT_MAPPED];
	bool was_ample = e->memory_is_ample;

	if (mapped > e->ample_bytes / AMPLE_ANYWAY && now_ms - e->looked_at_memory_ms >= LOOK_AT_MEMORY_MS) {
		e->looked_at_memory_ms = now_ms;
		e->ample_bytes = host_memory_room() / 4;
	}
	e->memory_is_ample = mapped <= e->ample_bytes;
	if (was_ample && !e->memory_is_ample)
		e->memory_is_short(e);
	return e->memory_is_ample;
}

void engine_take_memory(struct engine *e, uint64_t bytes)
{
	uint64_t less = bytes / 4;

	e->ample_bytes -= less < e->ample_bytes ? less : e->ample_bytes;
	engine_memory_is_ample(e);
}
