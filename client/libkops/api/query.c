/* query.c: asks the daemon about health, devices, kernels and statistics. */
#include <stdlib.h>
#include <string.h>

#include "libkops/base/base.h"
#include "libkops/session/await.h"

int kops_ping(kops *k)
{
	return client_ping(k, client_until_us(k));
}

/* ---- kops_query(): one block holds the kops_info and all that it points to ---- */

static size_t description_bytes(const Kops__V1__Description *from)
{
	size_t n = from->n_devices * sizeof(kops_device_info) + from->n_kernels * sizeof(kops_kernel_info);
	for (size_t i = 0; i < from->n_devices; i++) {
		const Kops__V1__Device *d = from->devices[i];
		n += strlen(d->name) + strlen(d->description) + strlen(d->disabled_kernels) + 3;
	}
	for (size_t i = 0; i < from->n_kernels; i++) {
		const Kops__V1__Kernel *kernel = from->kernels[i];
		n += strlen(kernel->op) + strlen(kernel->name) + strlen(kernel->device) + strlen(kernel->idea) +
		     strlen(kernel->dtypes) + strlen(kernel->takes) + 6;
	}
	return n;
}

static const char *put_text(char **at, const char *text)
{
	const char *put = *at;
	*at = stpcpy(*at, text) + 1;
	return put;
}

struct info {
	kops_info shown; /* the first member: callers have its address */
	kops_device_info *devices;
	kops_kernel_info *kernels;
};

static struct info *copy_description(const kops *k, const Kops__V1__Description *from)
{
	struct info *info = calloc(1, sizeof *info + description_bytes(from) + strlen(k->session.daemon) + 1);
	if (!info)
		return NULL;
	kops_device_info *devices = (kops_device_info *)(info + 1);
	kops_kernel_info *kernels = (kops_kernel_info *)(devices + from->n_devices);
	char *text = (char *)(kernels + from->n_kernels);
	for (size_t i = 0; i < from->n_devices; i++) {
		const Kops__V1__Device *d = from->devices[i];
		devices[i].name = put_text(&text, d->name);
		devices[i].description = put_text(&text, d->description);
		devices[i].disabled_kernels = put_text(&text, d->disabled_kernels);
		devices[i].memory_bytes = d->memory_bytes;
		devices[i].cache_bytes = d->cache_bytes;
	}
	for (size_t i = 0; i < from->n_kernels; i++) {
		const Kops__V1__Kernel *kernel = from->kernels[i];
		kernels[i].op = put_text(&text, kernel->op);
		kernels[i].name = put_text(&text, kernel->name);
		kernels[i].device_kind = put_text(&text, kernel->device);
		kernels[i].idea = put_text(&text, kernel->idea);
		kernels[i].dtypes = put_text(&text, kernel->dtypes);
		kernels[i].takes = put_text(&text, kernel->takes);
		kernels[i].tensor_cores = kernel->tensor_cores;
	}
	info->shown.daemon = put_text(&text, k->session.daemon);
	info->shown.n_devices = from->n_devices;
	info->shown.n_kernels = from->n_kernels;
	info->devices = devices;
	info->kernels = kernels;
	return info;
}

static void add_device_statistics(struct info *info, const Kops__V1__DeviceStats *from)
{
	kops_device_info *devices = info->devices;
	for (size_t i = 0; i < info->shown.n_devices; i++) {
		if (strcmp(devices[i].name, from->name) != 0)
			continue;
		devices[i].jobs_done = from->jobs_done;
		devices[i].jobs_failed = from->jobs_failed;
		devices[i].queued = from->queued;
		devices[i].running = from->running;
		devices[i].resident_bytes = from->resident_bytes;
		devices[i].canary_age_us = from->canary_age_us;
		devices[i].busy_us = from->busy_us;
		devices[i].temperature_c = from->temperature_c;
		devices[i].power_w = from->power_w;
		devices[i].power_limit_w = from->power_limit_w;
		devices[i].memory_used_bytes = from->memory_used_bytes;
		devices[i].memory_free_bytes = from->memory_free_bytes;
		bool is_older = from->memory_used_bytes == 0 && from->memory_free_bytes == 0;
		devices[i].utilization = is_older ? -1 : from->utilization;
	}
}

static void add_statistics(struct info *info, const Kops__V1__Statistics *from)
{
	kops_info *shown = &info->shown;
	shown->uptime_us = from->uptime_us;
	shown->sessions = from->sessions;
	shown->buffers = from->buffers;
	shown->mapped_bytes = from->mapped_bytes;
	shown->pinned_bytes = from->pinned_bytes;
	shown->pool_bytes = from->pool_bytes;
	for (size_t i = 0; i < from->n_devices; i++)
		add_device_statistics(info, from->devices[i]);
}

static int describe(kops *k, int64_t until_us, struct info **ret_info)
{
	struct call call = {.verb = KOPS__V1__REQUEST__BODY_DESCRIBE};
	int status = client_ask(k, &call, until_us);
	if (status < 0)
		return status;
	if (call.waiter.reply->body_case != KOPS__V1__REPLY__BODY_DESCRIPTION)
		return client_fail(k, KOPS_E_PROTOCOL, "kopsd's answer to Describe is empty");
	struct info *info = copy_description(k, call.waiter.reply->description);
	if (!info)
		return client_fail(k, KOPS_E_NOMEM, "out of memory for the description");
	*ret_info = info;
	return 0;
}

int kops_query(kops *k, kops_info **ret_info)
{
	struct info *info = NULL;
	struct call call = {.verb = KOPS__V1__REQUEST__BODY_STATS};
	int64_t until_us = client_until_us(k);
	int status = describe(k, until_us, &info);
	if (status < 0)
		return status;
	status = client_ask(k, &call, until_us);
	if (status == 0 && call.waiter.reply->body_case != KOPS__V1__REPLY__BODY_STATISTICS)
		status = client_fail(k, KOPS_E_PROTOCOL, "kopsd answered Stats without Statistics");
	if (status < 0) {
		free(info);
		return status;
	}
	add_statistics(info, call.waiter.reply->statistics);
	*ret_info = &info->shown;
	return 0;
}

void kops_info_free(kops_info *info)
{
	free(info);
}

const kops_device_info *kops_info_device(const kops_info *info, size_t i)
{
	return i < info->n_devices ? &((const struct info *)info)->devices[i] : NULL;
}

const kops_kernel_info *kops_info_kernel(const kops_info *info, size_t i)
{
	return i < info->n_kernels ? &((const struct info *)info)->kernels[i] : NULL;
}
