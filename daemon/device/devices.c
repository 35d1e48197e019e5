#include "device/devices.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device/cpu.h"
#include "log.h"

#define MODULE_FILE "kops-cuda.so"

/*
 * The module lies beside the binary in a build tree and in one fixed directory when installed. Nothing else is
 * searched: who can write there can replace kopsd itself.
 */
static void *open_module(char why[WHY_BYTES])
{
	char path[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", path, sizeof path - sizeof MODULE_FILE - 1);
	char *slash;
	void *module;

	path[len > 0 ? len : 0] = '\0';
	slash = strrchr(path, '/');
	if (slash)
		strcpy(slash + 1, MODULE_FILE);
	if (!slash || access(path, R_OK) < 0)
		snprintf(path, sizeof path, "%s", KOPS_MODULE_DIR "/" MODULE_FILE);
	if (access(path, R_OK) < 0) {
		snprintf(why, WHY_BYTES, "%.200s is not installed", path);
		return NULL;
	}
	module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!module)
		snprintf(why, WHY_BYTES, "%s", dlerror());
	return module;
}

/* The GPU backend and how many devices it has; NULL with a sentence in why. Never unloaded: CUDA does not like
 * it. */
static const struct backend *load_gpu(unsigned *ret_count, char why[WHY_BYTES])
{
	void *module = open_module(why);
	const struct backend *(*entry)(void);
	const struct backend *gpu;

	if (!module)
		return NULL;
	*(void **)&entry = dlsym(module, BACKEND_ENTRY);
	gpu = entry ? entry() : NULL;
	if (!gpu || gpu->abi != BACKEND_ABI) {
		snprintf(why, WHY_BYTES,
		         MODULE_FILE " belongs to another version of kopsd; install matching packages");
		return NULL;
	}
	*ret_count = gpu->count(why);
	return *ret_count ? gpu : NULL;
}

static int add_device(struct server *s, const struct backend *backend, unsigned index,
                      char why[CONFIG_WHY_BYTES])
{
	char name[16], reason[WHY_BYTES];
	struct device *d;
	int rc;

	if (backend == &backend_cpu)
		snprintf(name, sizeof name, "cpu");
	else
		snprintf(name, sizeof name, "gpu%u", index);
	if (server_device(s, name, NULL)) {
		snprintf(why, CONFIG_WHY_BYTES, "devices names %s twice", name);
		return KOPS_E_INVALID;
	}
	if (s->n_devices == SCHED_DEVICES_MAX) {
		snprintf(why, CONFIG_WHY_BYTES, "more than %d devices", SCHED_DEVICES_MAX);
		return KOPS_E_INVALID;
	}
	rc = device_open(&s->loop, name, backend, index, (unsigned)s->config.cpu_threads, &d, reason);
	if (rc < 0) {
		snprintf(why, CONFIG_WHY_BYTES, "cannot open device %s: %s", name, reason);
		return rc;
	}
	s->devices[s->n_devices++] = d;
	log_info("device %s: %s", name, device_info(d)->description);
	if (*device_disabled_rows(d))
		log_error("device %s: disabled after a failed self-test: %s", name, device_disabled_rows(d));
	return 0;
}

/* "auto": what works. A GPU that does not open is left out, and the CPU always serves. */
static int add_all(struct server *s, unsigned n_gpus, char why[CONFIG_WHY_BYTES])
{
	for (unsigned i = 0; i < n_gpus && s->n_devices < SCHED_DEVICES_MAX - 1; i++)
		if (add_device(s, s->gpu, i, why) < 0)
			log_error("going on without it: %s", why);
	return add_device(s, &backend_cpu, 0, why);
}

/* One word of the devices setting. */
static int add_named(struct server *s, const char *word, unsigned n_gpus, const char *no_gpu,
                     char why[CONFIG_WHY_BYTES])
{
	unsigned index;
	char rest;
	int rc = 0;

	if (strcmp(word, "cpu") == 0)
		return add_device(s, &backend_cpu, 0, why);
	if (strcmp(word, "auto") == 0)
		return add_all(s, n_gpus, why);
	if (strcmp(word, "gpu") == 0) {
		if (n_gpus == 0) {
			snprintf(why, CONFIG_WHY_BYTES, "devices asks for a GPU, but %s", no_gpu);
			return KOPS_E_DEVICE;
		}
		for (index = 0; index < n_gpus && rc == 0; index++)
			rc = add_device(s, s->gpu, index, why);
		return rc;
	}
	if (sscanf(word, "gpu%u%c", &index, &rest) != 1) {
		snprintf(why, CONFIG_WHY_BYTES, "devices: \"%.32s\" is none of auto, cpu, gpu, gpu0, gpu1, …",
		         word);
		return KOPS_E_INVALID;
	}
	if (index >= n_gpus) {
		snprintf(why, CONFIG_WHY_BYTES, "devices asks for %s, but %s", word,
		         n_gpus ? "there are fewer GPUs (counting from gpu0)" : no_gpu);
		return KOPS_E_DEVICE;
	}
	return add_device(s, s->gpu, index, why);
}

int devices_open(struct server *s, char why[CONFIG_WHY_BYTES])
{
	char list[CONFIG_TEXT_BYTES], no_gpu[WHY_BYTES] = "", *save = NULL;
	unsigned n_gpus = 0;
	int rc = 0;

	snprintf(list, sizeof list, "%s", s->config.devices);
	if (strcmp(list, "cpu") != 0) {
		s->gpu = load_gpu(&n_gpus, no_gpu);
		if (!s->gpu)
			log_notice("no GPU: %s", no_gpu);
	}
	for (char *word = strtok_r(list, ", ", &save); word && rc == 0; word = strtok_r(NULL, ", ", &save))
		rc = add_named(s, word, n_gpus, no_gpu, why);
	if (rc == 0 && s->n_devices == 0) {
		snprintf(why, CONFIG_WHY_BYTES, "devices names no device");
		rc = KOPS_E_INVALID;
	}
	return rc;
}
