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

struct opening {
	uv_loop_t *loop;
	const struct config *config;
	struct devices *devices;
};

static bool is_there(const struct devices *devices, const char *name)
{
	for (unsigned i = 0; i < devices->n; i++)
		if (strcmp(device_name(devices->list[i]), name) == 0)
			return true;
	return false;
}

static int add_device(const struct opening *o, const struct backend *backend, unsigned index,
                      char why[CONFIG_WHY_BYTES])
{
	char name[16], reason[WHY_BYTES];
	struct device *d;
	int rc;

	if (backend == &backend_cpu)
		snprintf(name, sizeof name, "cpu");
	else
		snprintf(name, sizeof name, "gpu%u", index);
	if (is_there(o->devices, name)) {
		snprintf(why, CONFIG_WHY_BYTES, "devices names %s twice", name);
		return KOPS_E_INVALID;
	}
	if (o->devices->n == DEVICES_MAX) {
		snprintf(why, CONFIG_WHY_BYTES, "more than %d devices", DEVICES_MAX);
		return KOPS_E_INVALID;
	}
	rc = device_open(o->loop, name, backend, index, (unsigned)o->config->cpu_threads, &d, reason);
	if (rc < 0) {
		snprintf(why, CONFIG_WHY_BYTES, "cannot open device %s: %s", name, reason);
		return rc;
	}
	o->devices->list[o->devices->n++] = d;
	log_info("device %s: %s", name, device_info(d)->description);
	if (*device_disabled_kernels(d))
		log_error("device %s: disabled after a failed self-test: %s", name, device_disabled_kernels(d));
	return 0;
}

/* "auto": what works. A GPU that does not open is left out, and the CPU always serves. */
static int add_all(const struct opening *o, unsigned n_gpus, char why[CONFIG_WHY_BYTES])
{
	for (unsigned i = 0; i < n_gpus && o->devices->n < DEVICES_MAX - 1; i++)
		if (add_device(o, o->devices->gpu, i, why) < 0)
			log_error("going on without it: %s", why);
	return add_device(o, &backend_cpu, 0, why);
}

/* One word of the devices setting. */
static int add_named(const struct opening *o, const char *word, unsigned n_gpus, const char *no_gpu,
                     char why[CONFIG_WHY_BYTES])
{
	unsigned index;
	char rest;
	int rc = 0;

	if (strcmp(word, "cpu") == 0)
		return add_device(o, &backend_cpu, 0, why);
	if (strcmp(word, "auto") == 0)
		return add_all(o, n_gpus, why);
	if (strcmp(word, "gpu") == 0) {
		if (n_gpus == 0) {
			snprintf(why, CONFIG_WHY_BYTES, "devices asks for a GPU, but %s", no_gpu);
			return KOPS_E_DEVICE;
		}
		for (index = 0; index < n_gpus && rc == 0; index++)
			rc = add_device(o, o->devices->gpu, index, why);
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
	return add_device(o, o->devices->gpu, index, why);
}

int devices_open(uv_loop_t *loop, const struct config *config, struct devices *ret, char why[CONFIG_WHY_BYTES])
{
	const struct opening o = {loop, config, ret};
	char list[CONFIG_TEXT_BYTES], no_gpu[WHY_BYTES] = "", *save = NULL;
	unsigned n_gpus = 0;
	int rc = 0;

	*ret = (struct devices){.n = 0};
	snprintf(list, sizeof list, "%s", config->devices);
	if (strcmp(list, "cpu") != 0) {
		ret->gpu = load_gpu(&n_gpus, no_gpu);
		if (!ret->gpu)
			log_notice("no GPU: %s", no_gpu);
	}
	for (char *word = strtok_r(list, ", ", &save); word && rc == 0; word = strtok_r(NULL, ", ", &save))
		rc = add_named(&o, word, n_gpus, no_gpu, why);
	if (rc == 0 && ret->n == 0) {
		snprintf(why, CONFIG_WHY_BYTES, "devices names no device");
		rc = KOPS_E_INVALID;
	}
	return rc;
}
