/* verb/describe.c: Describe: lists devices and kernels. */
#include "session/reply.h"
#include "session/verbs.h"

enum { KERNELS_MAX = 256 };

static size_t describe_kernels(const struct driver *driver, Kops__V1__Kernel *kernels, size_t used)
{
	for (unsigned i = 0; i < OP_COUNT; i++) {
		const struct kernel_list *list = driver->kernels(ops[i]);
		for (size_t k = 0; k < list->n && used < KERNELS_MAX; k++) {
			kernels[used] = (Kops__V1__Kernel)KOPS__V1__KERNEL__INIT;
			kernels[used].op = (char *)ops[i]->name;
			kernels[used].name = (char *)list->kernels[k].name;
			kernels[used].device = (char *)driver->kind;
			kernels[used].idea = (char *)list->kernels[k].idea;
			kernels[used].dtypes = (char *)list->kernels[k].dtypes;
			kernels[used].takes = (char *)list->kernels[k].takes;
			kernels[used].tensor_cores = list->kernels[k].tensor_cores;
			used++;
		}
	}
	return used;
}

/* Lists the kernels once for each kind of device. */
static size_t describe_all_kernels(const struct engine *e, Kops__V1__Kernel *kernels)
{
	size_t used = 0;

	for (unsigned i = 0; i < e->n_devices; i++) {
		const struct driver *driver = e->devices[i].device->driver;
		bool seen = false;
		for (unsigned j = 0; j < i; j++)
			seen |= e->devices[j].device->driver == driver;
		if (!seen)
			used = describe_kernels(driver, kernels, used);
	}
	return used;
}

int verb_describe(struct request *r)
{
	struct session *session = r->session;
	const struct engine *e = session->engine;
	Kops__V1__Reply reply = KOPS__V1__REPLY__INIT;
	Kops__V1__Description description = KOPS__V1__DESCRIPTION__INIT;
	Kops__V1__Device devices[SCHED_DEVICES_MAX], *device_pointers[SCHED_DEVICES_MAX];
	Kops__V1__Kernel kernels[KERNELS_MAX], *kernel_pointers[KERNELS_MAX];

	for (unsigned i = 0; i < e->n_devices; i++) {
		const struct device *d = e->devices[i].device;
		devices[i] = (Kops__V1__Device)KOPS__V1__DEVICE__INIT;
		devices[i].name = (char *)d->name;
		devices[i].description = (char *)d->info->description;
		devices[i].memory_bytes = d->info->memory_bytes;
		devices[i].cache_bytes = d->info->cache_bytes;
		devices[i].disabled_kernels = (char *)d->disabled_kernels;
		device_pointers[i] = &devices[i];
	}
	description.n_devices = e->n_devices;
	description.devices = device_pointers;
	description.n_kernels = describe_all_kernels(e, kernels);
	for (size_t i = 0; i < description.n_kernels; i++)
		kernel_pointers[i] = &kernels[i];
	description.kernels = kernel_pointers;
	reply.id = r->id;
	reply.body_case = KOPS__V1__REPLY__BODY_DESCRIPTION;
	reply.description = &description;
	reply_send(session, &reply, -1);
	return 0;
}
