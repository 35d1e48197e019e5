#include "job/engine.h"

#include <string.h>

struct device *engine_device(const struct engine *e, const char *name, unsigned *ret_index)
{
	for (unsigned i = 0; i < e->n_devices; i++)
		if (!*name || strcmp(e->devices[i].device->name, name) == 0) {
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
