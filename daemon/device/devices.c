#include "device/devices.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device/cpu.h"
#include "log.h"

/* The kinds of devices, in the order in which `auto` has them: the first that can do a job does it. */
struct module {
	const char *kind;               /* as its backend says, and as devices are called: gpu0, gpu1, … */
	const char *file;               /* that brings the backend; its devices are numbered */
	const struct backend *built_in; /* instead: one device, called as its kind, which always opens */
};

static const struct module modules[] = {
    {"gpu", "kops-cuda.so", NULL},
    {"cpu", NULL, &backend_cpu},
};
#define N_MODULES (sizeof modules / sizeof *modules)

/* What came of a module. */
struct loaded {
	const struct backend *backend; /* NULL: none */
	unsigned n;                    /* devices */
	char why[WHY_BYTES];           /* there is none */
};

struct opening {
	uv_loop_t *loop;
	const struct config *config;
	struct loaded loaded[N_MODULES];
	struct devices *devices;
	char *why; /* CONFIG_WHY_BYTES */
};

/* ---- Modules ---- */

/*
 * A module lies beside the binary in a build tree and in one fixed directory when installed. Nothing else is
 * searched: who can write there can replace kopsd itself.
 */
static void *open_file(const char *file, char why[WHY_BYTES])
{
	char path[PATH_MAX];
	ssize_t len = readlink("/proc/self/exe", path, sizeof path - NAME_MAX - 1);
	char *slash;
	void *handle;

	path[len > 0 ? len : 0] = '\0';
	slash = strrchr(path, '/');
	if (slash)
		strcpy(slash + 1, file);
	if (!slash || access(path, R_OK) < 0)
		snprintf(path, sizeof path, "%s/%s", KOPS_MODULE_DIR, file);
	if (access(path, R_OK) < 0) {
		snprintf(why, WHY_BYTES, "%.200s is not installed", path);
		return NULL;
	}
	handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		snprintf(why, WHY_BYTES, "%s", dlerror());
	return handle;
}

/* NULL with a sentence in why. Never unloaded: CUDA does not like it. */
static const struct backend *load_file(const char *file, char why[WHY_BYTES])
{
	void *handle = open_file(file, why);
	const struct backend *(*entry)(void);
	const struct backend *backend;

	if (!handle)
		return NULL;
	*(void **)&entry = dlsym(handle, BACKEND_ENTRY);
	backend = entry ? entry() : NULL;
	if (backend && backend->abi == BACKEND_ABI)
		return backend;
	snprintf(why, WHY_BYTES, "%s belongs to another version of kopsd; install matching packages", file);
	return NULL;
}

static void load(const struct module *module, struct loaded *ret)
{
	*ret = (struct loaded){.backend = module->built_in};
	if (module->file)
		ret->backend = load_file(module->file, ret->why);
	if (ret->backend)
		ret->n = ret->backend->count(ret->why);
	if (ret->n == 0) {
		ret->backend = NULL;
		log_notice("no %s: %s", module->kind, ret->why);
	}
}

/* ---- Devices ---- */

static bool is_there(const struct devices *devices, const char *name)
{
	for (unsigned i = 0; i < devices->n; i++)
		if (strcmp(device_name(devices->list[i]), name) == 0)
			return true;
	return false;
}

static int add_device(const struct opening *o, unsigned m, unsigned index)
{
	const struct backend *backend = o->loaded[m].backend;
	char name[16], reason[WHY_BYTES];
	struct device *d;
	int rc;

	if (modules[m].file)
		snprintf(name, sizeof name, "%s%u", modules[m].kind, index);
	else
		snprintf(name, sizeof name, "%s", modules[m].kind);
	if (is_there(o->devices, name)) {
		snprintf(o->why, CONFIG_WHY_BYTES, "devices names %s twice", name);
		return KOPS_E_INVALID;
	}
	if (o->devices->n == DEVICES_MAX) {
		snprintf(o->why, CONFIG_WHY_BYTES, "more than %d devices", DEVICES_MAX);
		return KOPS_E_INVALID;
	}
	rc = device_open(o->loop, name, backend, index, (unsigned)o->config->cpu_threads, &d, reason);
	if (rc < 0) {
		snprintf(o->why, CONFIG_WHY_BYTES, "cannot open device %s: %s", name, reason);
		return rc;
	}
	o->devices->list[o->devices->n++] = d;
	log_info("device %s: %s", name, device_info(d)->description);
	if (*device_disabled_kernels(d))
		log_error("device %s: disabled after a failed self-test: %s", name, device_disabled_kernels(d));
	return 0;
}

/* All of a kind. */
static int add_kind(const struct opening *o, unsigned m)
{
	int rc = 0;

	for (unsigned i = 0; i < o->loaded[m].n && rc == 0; i++)
		rc = add_device(o, m, i);
	return rc;
}

/* "auto": what works. A device of a module that does not open is left out; what is built in always serves. */
static int add_all(const struct opening *o)
{
	int rc = 0;

	for (unsigned m = 0; m < N_MODULES && rc == 0; m++) {
		if (!modules[m].file)
			rc = add_kind(o, m);
		for (unsigned i = 0; modules[m].file && i < o->loaded[m].n && o->devices->n < DEVICES_MAX - 1;
		     i++)
			if (add_device(o, m, i) < 0)
				log_error("going on without it: %s", o->why);
	}
	return rc;
}

/* One of a kind by number, as in gpu1. */
static int add_numbered(const struct opening *o, unsigned m, const char *word, unsigned index)
{
	if (index < o->loaded[m].n)
		return add_device(o, m, index);
	snprintf(o->why, CONFIG_WHY_BYTES, "devices asks for %s, but %s", word,
	         o->loaded[m].n ? "there are fewer (counting from 0)" : o->loaded[m].why);
	return KOPS_E_DEVICE;
}

static int refuse_word(const struct opening *o, const char *word)
{
	size_t used = (size_t)snprintf(o->why, CONFIG_WHY_BYTES, "devices: \"%.32s\" is none of auto", word);

	for (unsigned m = 0; m < N_MODULES && used < CONFIG_WHY_BYTES; m++)
		used += (size_t)snprintf(o->why + used, CONFIG_WHY_BYTES - used,
		                         modules[m].file ? ", %s, %s0, %s1, …" : ", %s", modules[m].kind,
		                         modules[m].kind, modules[m].kind);
	return KOPS_E_INVALID;
}

/* One word of the devices setting. */
static int add_named(const struct opening *o, const char *word)
{
	if (strcmp(word, "auto") == 0)
		return add_all(o);
	for (unsigned m = 0; m < N_MODULES; m++) {
		size_t n = strlen(modules[m].kind);
		unsigned index;
		char rest;

		if (strncmp(word, modules[m].kind, n) != 0)
			continue;
		if (word[n] == '\0' && o->loaded[m].n > 0)
			return add_kind(o, m);
		if (word[n] == '\0') {
			snprintf(o->why, CONFIG_WHY_BYTES, "devices asks for %s, but %s", modules[m].kind,
			         o->loaded[m].why);
			return KOPS_E_DEVICE;
		}
		if (modules[m].file && sscanf(word + n, "%u%c", &index, &rest) == 1)
			return add_numbered(o, m, word, index);
	}
	return refuse_word(o, word);
}

/* A module that the setting does not ask for is not loaded: the CUDA driver takes its time and memory. */
static bool is_asked_for(const struct config *config, const struct module *module)
{
	return strstr(config->devices, "auto") || strstr(config->devices, module->kind);
}

int devices_open(uv_loop_t *loop, const struct config *config, struct devices *ret, char why[CONFIG_WHY_BYTES])
{
	struct opening o = {.loop = loop, .config = config, .devices = ret, .why = why};
	char list[CONFIG_TEXT_BYTES], *save = NULL;
	int rc = 0;

	*ret = (struct devices){.n = 0};
	for (unsigned m = 0; m < N_MODULES; m++) {
		if (is_asked_for(config, &modules[m]))
			load(&modules[m], &o.loaded[m]);
		if (!ret->pinning && o.loaded[m].backend && o.loaded[m].backend->pin)
			ret->pinning = o.loaded[m].backend;
	}
	snprintf(list, sizeof list, "%s", config->devices);
	for (char *word = strtok_r(list, ", ", &save); word && rc == 0; word = strtok_r(NULL, ", ", &save))
		rc = add_named(&o, word);
	if (rc == 0 && ret->n == 0) {
		snprintf(why, CONFIG_WHY_BYTES, "devices names no device");
		rc = KOPS_E_INVALID;
	}
	return rc;
}
