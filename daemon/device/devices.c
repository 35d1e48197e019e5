#include "device/devices.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cpu/cpu.h"
#include "log.h"

#define NAME_BYTES 16

struct module {
	const char *kind, *file;
	const struct driver *built_in;
};

static const struct module modules[DEVICE_KINDS] = {
#define X(kind, file, built_in) {#kind, file, built_in},
#include "kinds.def"
#undef X
};

/* The result of loading a module. */
struct loaded {
	const struct driver *driver; /* NULL: none */
	unsigned n;                  /* devices */
	char why[WHY_BYTES];         /* why there is none */
};

struct opening {
	uv_loop_t *loop;
	const struct config *config;
	struct loaded loaded[DEVICE_KINDS];
	struct devices *devices;
	char *why; /* CONFIG_WHY_BYTES */
};

/* ---- Modules ---- */

/*
 * A module is beside the binary in a build tree, and in one fixed directory when installed. kopsd searches
 * nowhere else, because a user who can write there could replace kopsd itself.
 */
static void *open_library(const char *file, char why[WHY_BYTES])
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

/* Loads a module. NULL with a sentence in why. Never unloaded, because CUDA does not support that. */
static const struct driver *load_file(const char *file, char why[WHY_BYTES])
{
	void *handle = open_library(file, why);
	const struct driver *(*entry)(void);
	const struct driver *driver;

	if (!handle)
		return NULL;
	*(void **)&entry = dlsym(handle, DRIVER_ENTRY);
	driver = entry ? entry() : NULL;
	if (driver && driver->abi == DRIVER_ABI)
		return driver;
	snprintf(why, WHY_BYTES, "%s belongs to another version of kopsd; install matching packages", file);
	return NULL;
}

static void load_module(const struct module *module, struct loaded *ret)
{
	*ret = (struct loaded){.driver = module->built_in};
	if (module->file)
		ret->driver = load_file(module->file, ret->why);
	if (ret->driver)
		ret->n = ret->driver->count(ret->why);
	if (ret->n == 0) {
		ret->driver = NULL;
		log_notice("no %s: %s", module->kind, ret->why);
	}
}

/* ---- Devices ---- */

static void name_device(unsigned m, unsigned index, bool is_numbered, char ret[NAME_BYTES])
{
	if (is_numbered)
		snprintf(ret, NAME_BYTES, "%s%u", modules[m].kind, index);
	else
		snprintf(ret, NAME_BYTES, "%s", modules[m].kind);
}

static int add_device(const struct opening *o, unsigned m, unsigned index)
{
	const struct driver *driver = o->loaded[m].driver;
	const struct driver_limits limits = {(unsigned)o->config->cpu_threads, o->config->max_device_memory};
	char name[NAME_BYTES], reason[WHY_BYTES];
	struct device *d;
	int rc;

	name_device(m, index, modules[m].file != NULL, name);
	if (o->devices->n == DEVICES_MAX) {
		snprintf(o->why, CONFIG_WHY_BYTES,
		         "there are more than %d devices, the limit; set devices to those to use", DEVICES_MAX);
		return KOPS_E_INVALID;
	}
	rc = device_open(o->loop, name, driver, index, &limits, &d, reason);
	if (rc < 0) {
		snprintf(o->why, CONFIG_WHY_BYTES, "cannot open device %s: %s", name, reason);
		return rc;
	}
	o->devices->list[o->devices->n++] = d;
	log_info("device %s: %s", name, d->info->description);
	if (*d->disabled_kernels)
		log_error("device %s: disabled after a failed self-test: %s", name, d->disabled_kernels);
	return 0;
}

/* Adds all devices of a kind. */
static int add_kind(const struct opening *o, unsigned m)
{
	int rc = 0;

	for (unsigned i = 0; i < o->loaded[m].n && rc == 0; i++)
		rc = add_device(o, m, i);
	return rc;
}

/* "auto": adds all devices that work. A module's device that does not open is left out; built-in devices always
 * serve. */
static int add_all(const struct opening *o)
{
	int rc = 0;

	for (unsigned m = 0; m < DEVICE_KINDS && rc == 0; m++) {
		if (!modules[m].file)
			rc = add_kind(o, m);
		for (unsigned i = 0; modules[m].file && i < o->loaded[m].n && o->devices->n < DEVICES_MAX - 1;
		     i++)
			if (add_device(o, m, i) < 0)
				log_error("continuing without it: %s", o->why);
	}
	return rc;
}

static int refuse_device(const struct opening *o, const char *what, const char *because)
{
	snprintf(o->why, CONFIG_WHY_BYTES, "devices asks for %s, but %s", what, because);
	return KOPS_E_DEVICE;
}

static int add_named(const struct opening *o, const struct device_word *word)
{
	const struct loaded *loaded = &o->loaded[word->kind];
	char name[NAME_BYTES];

	name_device(word->kind, word->index, word->is_numbered, name);
	if (loaded->n == 0)
		return refuse_device(o, name, loaded->why);
	if (!word->is_numbered)
		return add_kind(o, word->kind);
	if (word->index >= loaded->n)
		return refuse_device(o, name, "this host has fewer (numbers begin at 0)");
	return add_device(o, word->kind, word->index);
}

/* A module that the setting does not name is not loaded: the CUDA driver takes time and memory. */
static bool is_asked_for(const struct device_list *list, enum device_kind kind)
{
	for (unsigned i = 0; i < list->n; i++)
		if (list->words[i].kind == kind || list->words[i].kind == DEVICE_KINDS)
			return true;
	return false;
}

int devices_open(uv_loop_t *loop, const struct config *config, struct devices *ret, char why[CONFIG_WHY_BYTES])
{
	struct opening o = {.loop = loop, .config = config, .devices = ret, .why = why};
	struct device_list list;
	int rc = device_list_parse(config->devices, &list, why, CONFIG_WHY_BYTES);

	*ret = (struct devices){.n = 0};
	for (unsigned m = 0; m < DEVICE_KINDS && rc == 0; m++) {
		if (is_asked_for(&list, m))
			load_module(&modules[m], &o.loaded[m]);
		if (!ret->pinning && o.loaded[m].driver && o.loaded[m].driver->pin)
			ret->pinning = o.loaded[m].driver;
	}
	for (unsigned i = 0; i < list.n && rc == 0; i++)
		rc = list.words[i].kind == DEVICE_KINDS ? add_all(&o) : add_named(&o, &list.words[i]);
	return rc;
}
