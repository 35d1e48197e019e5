/* load: publishes the arrays of files, so that many processes use one copy of a model's weights. */
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files/npy.h"
#include "files/weights.h"
#include "ids.h"
#include "json.h"
#include "progress.h"
#include "show.h"
#include "verb/commands.h"

#define FILES_MAX   1024
#define STAGE_BYTES (32ull << 20) /* of each of two buffers between a file and a device */
#define NAME_BYTES  800           /* longer than any name that is accepted */
#define RETRY_S     1

struct load {
	struct cli *cli;
	kops_publish_options options;
	struct weights files[FILES_MAX];
	size_t n_files;
	const char *file_name; /* what the present file adds to the name, or "" */
	/* For RESIDENT buffers: a part is copied from one while the next is read into the other. */
	kops_buffer *stages[2];
	kops_job *jobs[2];
	unsigned turn;
	uint64_t published, bytes; /* so far */
	uint64_t withdraw;         /* names that are yet to be withdrawn */
	int status;                /* why it failed, of libkops */
	char why[CLI_WHY_BYTES];
};

/* Keeps the sentence, and returns the status. */
static int fail(struct load *l, int status, const char *name)
{
	l->status = status;
	snprintf(l->why, sizeof(l->why), "%.300s: %.600s", name, kops_error(l->cli->handle));
	return status;
}

static void name_of(const struct load *l, const struct weight *w, char name[NAME_BYTES])
{
	snprintf(name, NAME_BYTES, "%.255s%s%.255s%s%.255s", l->cli->flags.name, l->file_name[0] ? "/" : "",
	         l->file_name, w->name[0] ? "/" : "", w->name);
}

/* ---- Copies to a device ---- */

/* Waits for the copy from this stage, if there is one. */
static int await_stage(struct load *l, unsigned i)
{
	int status = l->jobs[i] ? kops_wait(l->jobs[i], -1) : 0;

	kops_job_free(l->jobs[i]);
	l->jobs[i] = NULL;
	return status;
}

static int make_stages(struct load *l)
{
	int status = 0;

	for (unsigned i = 0; i < 2 && status == 0; i++)
		if (!l->stages[i])
			status = kops_alloc(l->cli->handle, STAGE_BYTES, KOPS_SHARED, NULL, &l->stages[i]);
	return status;
}

static int start_copy(struct load *l, kops_buffer *to, kops_dtype dtype, uint64_t offset, uint64_t elements)
{
	kops_job **job = &l->jobs[l->turn];
	kops_view from = kops_tensor(l->stages[l->turn], 0, dtype, 1, &elements);
	int status = kops_job_new(l->cli->handle, NULL, job);

	if (status == 0)
		status = kops_job_copy(*job, from, kops_tensor(to, offset, dtype, 1, &elements), NULL);
	if (status == 0)
		status = kops_submit(*job, NULL, NULL);
	if (status < 0) {
		kops_job_free(*job);
		*job = NULL;
	}
	l->turn ^= 1;
	return status;
}

static int copy_to_device(struct load *l, const struct weight *w, kops_buffer *to)
{
	kops_dtype dtype = w->dtype ? w->dtype : KOPS_I32; /* bytes move as well in fours */
	size_t size = kops_dtype_size(dtype);
	int status = make_stages(l);

	for (uint64_t at = 0; at < w->bytes && status == 0; at += STAGE_BYTES) {
		uint64_t part = w->bytes - at < STAGE_BYTES ? w->bytes - at : STAGE_BYTES;
		status = await_stage(l, l->turn);
		if (status < 0)
			break;
		memcpy(kops_data(l->stages[l->turn]), w->data + at, part);
		status = start_copy(l, to, dtype, at, (part + size - 1) / size);
	}
	for (unsigned i = 0; i < 2; i++) {
		int ended = await_stage(l, i);
		status = status < 0 ? status : ended;
	}
	return status;
}

/* ---- Buffers ---- */

static int fill(struct load *l, const struct weight *w, kops_buffer *buffer)
{
	if (l->cli->flags.device)
		return copy_to_device(l, w, buffer);
	memcpy(kops_data(buffer), w->data, w->bytes);
	return 0;
}

static int publish(struct load *l, const struct weight *w, const char *name, kops_buffer *buffer)
{
	kops_publish_options options = l->options;

	options.dtype = w->dtype;
	options.rank = w->rank;
	memcpy(options.shape, w->shape, sizeof(w->shape));
	return kops_publish(buffer, name, &options);
}

/* A buffer is freed when it is published: its name keeps it, so there may be more than a session may have. */
static int load_weight(const struct weight *w, void *user)
{
	struct load *l = user;
	const char *device = l->cli->flags.device;
	uint64_t bytes = w->bytes > 0 ? (w->bytes + 3) / 4 * 4 : 8;
	char name[NAME_BYTES];
	kops_buffer *buffer;
	int status = kops_alloc(l->cli->handle, bytes, device ? KOPS_RESIDENT : KOPS_SHARED, device, &buffer);

	name_of(l, w, name);
	if (status < 0)
		return fail(l, status, name);
	status = fill(l, w, buffer);
	if (status == 0)
		status = publish(l, w, name, buffer);
	if (status < 0)
		fail(l, status, name);
	kops_free(buffer);
	if (status < 0)
		return status;
	l->published++;
	l->bytes += w->bytes;
	if (cli_shows_progress(l->cli))
		progress_show(name);
	return 0;
}

static int withdraw_weight(const struct weight *w, void *user)
{
	struct load *l = user;
	char name[NAME_BYTES];

	if (l->withdraw == 0 || kops_fd(l->cli->handle) < 0) /* without kopsd there are no names */
		return KOPS_E_CANCELLED;
	l->withdraw--;
	name_of(l, w, name);
	kops_unpublish(l->cli->handle, geteuid(), name);
	return 0;
}

/* ---- Files ---- */

/* Of several .npy files each has its own name: that of the file, without folder and end. */
static void set_file_name(struct load *l, const char *path, char name[NAME_BYTES])
{
	const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
	bool needs_name = l->n_files > 1 && npy_is_name(path);

	snprintf(name, NAME_BYTES, "%.*s", needs_name ? (int)strlen(base) - 4 : 0, base);
	l->file_name = name;
}

static int each_weight(struct load *l, int (*visit)(const struct weight *weight, void *user))
{
	char name[NAME_BYTES];
	int status = 0;

	for (size_t i = 0; i < l->n_files && status == 0; i++) {
		set_file_name(l, l->files[i].path, name);
		status = weights_each(&l->files[i], l->cli->flags.dtype, visit, l, l->why);
	}
	return status;
}

/* Publishes all, or none. Returns a status of libkops. */
static int load_all(struct load *l)
{
	int status;

	l->published = l->bytes = 0;
	l->status = KOPS_E_INVALID; /* of a file, unless a call fails */
	status = each_weight(l, load_weight);
	for (unsigned i = 0; i < 2; i++) {
		kops_free(l->stages[i]);
		l->stages[i] = NULL;
	}
	progress_erase();
	if (status == 0)
		return 0;
	l->withdraw = l->published;
	each_weight(l, withdraw_weight);
	return l->status;
}

static int open_files(struct load *l, char **argv)
{
	struct cli *cli = l->cli;

	for (; argv[l->n_files]; l->n_files++) {
		if (l->n_files == FILES_MAX)
			return cli_fail(cli, CLI_USAGE, "at most %d files can be loaded together", FILES_MAX);
		if (weights_open(argv[l->n_files], &l->files[l->n_files], cli->why) < 0)
			return CLI_FAILED;
	}
	return CLI_OK;
}

/* ---- Holding ---- */

/* Returns true if another try may succeed: kopsd went meanwhile. */
static bool is_passing(int status)
{
	return status == KOPS_E_LOST || status == KOPS_E_INTERRUPTED || status == KOPS_E_CONNECT ||
	       status == KOPS_E_TIMEOUT || status == KOPS_E_SHUTDOWN;
}

/* Returns when the connection is lost. */
static void await_loss(kops *k)
{
	while (kops_fd(k) >= 0) {
		struct pollfd p = {.fd = kops_fd(k), .events = kops_events(k)};
		poll(&p, 1, -1);
		kops_process(k);
	}
}

/* Stays until a signal ends the process, and loads all again when kopsd has restarted. */
static int hold(struct load *l)
{
	int status = 0;

	while (status == 0) {
		await_loss(l->cli->handle);
		fprintf(stderr, "kopsd went: loading again\n");
		while ((status = load_all(l)) < 0 && is_passing(status))
			sleep(RETRY_S);
		if (status == 0)
			fprintf(stderr, "loaded again: %" PRIu64 " buffers\n", l->published);
	}
	return cli_fail_kops(l->cli, status, l->why);
}

static void report(const struct load *l, double us)
{
	const struct flags *flags = &l->cli->flags;
	struct json json;

	if (flags->json) {
		json_begin(&json, stdout, l->cli->command->name);
		json_bool(&json, "ok", true);
		json_text(&json, "name", flags->name);
		json_text(&json, "device", flags->device);
		json_count(&json, "buffers", l->published);
		json_count(&json, "bytes", l->bytes);
		json_us(&json, "load_us", us);
		json_bool(&json, "keep", flags->keep);
		json_end(&json);
		l->cli->printed = true;
		return;
	}
	printf("%s: %" PRIu64 " buffer%s of %s %s %s in %s%s\n", flags->name, l->published,
	       l->published == 1 ? "" : "s", show_bytes(l->bytes).text, flags->device ? "on" : "in",
	       flags->device ? flags->device : "shared memory", show_us(us).text,
	       flags->keep ? "; kops-client unload ends them" : "; the end of this program ends them");
}

static int load_and_hold(struct load *l)
{
	double start = cli_now_us();
	int status, rc;

	while ((status = load_all(l)) == KOPS_E_LOST || status == KOPS_E_INTERRUPTED)
		sleep(RETRY_S); /* kopsd restarted meanwhile */
	if (status < 0)
		return cli_fail_kops(l->cli, status, l->why);
	report(l, cli_now_us() - start);
	rc = cli_flush(l->cli);
	return rc != CLI_OK || l->cli->flags.keep ? rc : hold(l);
}

/* ---- The verb ---- */

static int read_access(struct load *l)
{
	const struct flags *flags = &l->cli->flags;

	l->options = (kops_publish_options){.size = sizeof(l->options), .keep = flags->keep};
	if (flags->everybody && flags->group)
		return cli_fail(l->cli, CLI_USAGE, "--everybody and --group exclude each other");
	if (flags->everybody)
		l->options.access = KOPS_EVERYBODY;
	if (!flags->group)
		return CLI_OK;
	l->options.access = KOPS_GROUP;
	if (!id_find(true, flags->group, &l->options.group))
		return cli_fail(l->cli, CLI_USAGE, "there is no group \"%.100s\"", flags->group);
	return CLI_OK;
}

static int run(struct cli *cli, char **argv)
{
	struct load *l;
	int rc;

	if (!cli->flags.name)
		return cli_fail(cli, CLI_USAGE, "give a name for what is loaded: --name NAME");
	l = calloc(1, sizeof(*l));
	if (!l)
		return cli_fail(cli, CLI_FAILED, "out of memory");
	l->cli = cli;
	rc = read_access(l);
	if (rc == CLI_OK)
		rc = open_files(l, argv);
	if (rc == CLI_OK)
		rc = cli_open(cli);
	if (rc == CLI_OK)
		rc = load_and_hold(l);
	for (size_t i = 0; i < l->n_files; i++)
		weights_close(&l->files[i]);
	free(l);
	return rc;
}

static const struct option_row options[] = {
    OPTION("name", 0, "NAME", text, name, "the name under which others attach it"),
    OPTION("device", 0, "NAME", device, device,
           "into this device's memory: gpu0, cpu, …; default: shared memory"),
    OPTION("group", 0, "GROUP", text, group,
           "members of this group may attach it, too; default: only the own user"),
    OPTION("everybody", 0, NULL, switch, everybody, "everybody may attach it"),
    OPTION("keep", 0, NULL, switch, keep, "end at once and leave it to kopsd, until `kops-client unload`"),
    OPTION_DTYPE,
    OPTION_TIMEOUT,
    OPTION_JSON,
    OPTIONS_END};

const struct command command_load = {
    .name = "load",
    .summary = "publish the arrays of files, for many processes to use one copy",
    .usage = "[options] --name NAME FILE...",
    .help = "A .npy is published as NAME, or as NAME/FILE if there are several. Each tensor of a .safetensors\n"
            "file is published as NAME/TENSOR. Others attach it by the user's name and this one, for reading:\n"
            "kops_attach() in C, attach() in Python. Nobody can write it meanwhile.\n"
            "The program stays, holds what it published, and loads it again when kopsd has restarted. Ctrl-C,\n"
            "or a service manager, ends that; memory stays while others have it attached. With --keep it ends\n"
            "at once. After a restart of kopsd nothing is then left: load it again.\n"
            "Types that kops does not compute with, such as I64, are published as bytes, whose number is\n"
            "rounded up to a multiple of 4. Of more than 4 axes one is made.\n"
            "\n"
            "Examples:\n"
            "  kops-client load model-*.safetensors --name llama --device gpu0\n"
            "  kops-client load w.npy --name w --group lab --keep\n",
    .min_args = 1,
    .max_args = FILES_MAX,
    .args_are = "files, .safetensors or .npy",
    .args = VALUES_FILES,
    .options = options,
    .run = run,
};
