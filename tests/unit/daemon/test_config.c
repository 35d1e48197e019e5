/* Tests settings: every limit, every error, and which source overrides which. */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "config/load.h"
#include "config/print.h"
#include "kops.h"

struct fixture {
	char dir[64];
	char file[96];
	char fragments[100];
};

/* Calls config_load() with --config FILE and up to two more arguments (NULL: none). */
static int load(struct fixture *f, const char *one, const char *two, struct config *ret, char *why)
{
	char *argv[] = {"kopsd", "--config", f->file, (char *)one, (char *)two, NULL};
	enum config_action action;
	int argc = 3 + (one != NULL) + (two != NULL);

	return config_load(argc, argv, ret, &action, why);
}

static void write_file(const char *path, const char *text, size_t len)
{
	FILE *out = fopen(path, "w");

	assert_non_null(out);
	assert_int_equal(fwrite(text, 1, len, out), len);
	assert_int_equal(fclose(out), 0);
}

static void write_main(struct fixture *f, const char *text)
{
	write_file(f->file, text, strlen(text));
}

static void write_fragment(struct fixture *f, const char *name, const char *text)
{
	char path[160];

	snprintf(path, sizeof(path), "%s/%s", f->fragments, name);
	write_file(path, text, strlen(text));
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	snprintf(f->dir, sizeof(f->dir), "/tmp/kops-test-config-XXXXXX");
	if (!mkdtemp(f->dir))
		return -1;
	snprintf(f->file, sizeof(f->file), "%s/k.conf", f->dir);
	snprintf(f->fragments, sizeof(f->fragments), "%s.d", f->file);
	if (mkdir(f->fragments, 0700) < 0)
		return -1;
	write_main(f, "");
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	char command[128];
	int rc;

	snprintf(command, sizeof(command), "rm -rf %s", f->dir);
	rc = system(command);
	free(f);
	return rc;
}

static uint64_t number(const struct config *config, size_t offset)
{
	return *(const uint64_t *)(const void *)((const char *)config + offset);
}

/* ---- Limits: one row for each setting ---------------------------------------------------------------- */

enum kind { IS_TEXT, IS_COUNT, IS_BYTES, IS_MSEC };

static const struct row {
	const char *name;
	enum kind kind;
	uint64_t min, max;
	size_t offset;
} rows[] = {
#define X(name_, type, value, min_, max_, reloadable, help)                                                    \
	{.name = #name_, .kind = IS_##type, .min = min_, .max = max_, .offset = offsetof(struct config, name_)},
#include "config/config.def"
#undef X
};

static void flag_of(const char *name, char ret[64])
{
	snprintf(ret, 64, "--%s", name);
	for (char *p = ret; *p; p++)
		if (*p == '_')
			*p = '-';
}

static void check_number(struct fixture *f, const struct row *row, uint64_t value, bool allowed)
{
	char flag[64], text[32], why[CONFIG_WHY_BYTES] = "";
	struct config config;
	int rc;

	flag_of(row->name, flag);
	snprintf(text, sizeof(text), "%" PRIu64, value);
	rc = load(f, flag, text, &config, why);
	if (allowed) {
		assert_int_equal(rc, 0);
		assert_int_equal(number(&config, row->offset), value);
	} else {
		assert_int_equal(rc, KOPS_E_INVALID);
		assert_non_null(strstr(why, "is out of range ("));
		assert_non_null(strstr(why, flag + 2));
	}
}

static void check_text(struct fixture *f, const struct row *row, size_t len, bool allowed)
{
	char flag[64], text[CONFIG_TEXT_BYTES + 8], why[CONFIG_WHY_BYTES] = "";
	struct config config;

	flag_of(row->name, flag);
	memset(text, strcmp(row->name, "devices") == 0 ? ',' : 'x', len);
	if (text[0] == ',')
		memcpy(text, "cpu", len < 3 ? len : 3);
	text[len] = '\0';
	if (allowed) {
		assert_int_equal(load(f, flag, text, &config, why), 0);
		assert_string_equal((const char *)&config + row->offset, text);
	} else {
		assert_int_equal(load(f, flag, text, &config, why), KOPS_E_INVALID);
		assert_non_null(strstr(why, " bytes, expected "));
	}
}

static void test_limits(void **state)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *row = &rows[i];
		void (*check)(struct fixture *, const struct row *, uint64_t, bool) =
		    row->kind == IS_TEXT ? check_text : check_number;

		check(*state, row, row->min, true);
		check(*state, row, row->max, true);
		if (row->min > 0)
			check(*state, row, row->min - 1, false);
		check(*state, row, row->max + 1, false);
	}
}

static void test_defaults(void **state)
{
	char why[CONFIG_WHY_BYTES] = "";
	struct config config;

	assert_int_equal(load(*state, NULL, NULL, &config, why), 0);
	assert_string_equal(config.socket, "/run/kopsd/kopsd.sock");
	assert_string_equal(config.devices, "auto");
	assert_int_equal(config.pool_cache, 1ull << 30);
	assert_int_equal(config.max_jobs, 256);
	assert_int_equal(config.drain_timeout, 10000);
	for (unsigned i = 0; i < CONFIG_SETTINGS; i++)
		assert_string_equal(config.origin[i], "default");
}

/* ---- Units ------------------------------------------------------------------------------------ */

static void test_units(void **state)
{
	static const struct {
		const char *flag;
		size_t offset;
		uint64_t expected;
	} good[] = {
	    {"--pool-cache=4096", offsetof(struct config, pool_cache), 4096},
	    {"--pool-cache=3K", offsetof(struct config, pool_cache), 3 << 10},
	    {"--pool-cache=3m", offsetof(struct config, pool_cache), 3 << 20},
	    {"--pool-cache=3G", offsetof(struct config, pool_cache), 3ull << 30},
	    {"--pool-cache=3T", offsetof(struct config, pool_cache), 3ull << 40},
	    {"--drain-timeout=250", offsetof(struct config, drain_timeout), 250},
	    {"--drain-timeout=250ms", offsetof(struct config, drain_timeout), 250},
	    {"--drain-timeout=7s", offsetof(struct config, drain_timeout), 7000},
	    {"--drain-timeout=2min", offsetof(struct config, drain_timeout), 120000},
	};
	static const char *const bad[] = {
	    "--pool-cache=", "--pool-cache=G", "--pool-cache=-1", "--pool-cache=1.5G", "--pool-cache=1 G",
	    "--pool-cache=1s", "--pool-cache=1GiB", "--pool-cache=0x10", "--drain-timeout=s", "--max-jobs=1K",
	    "--max-jobs=+1", "--drain-timeout=1h",
	    /* 2^64 and beyond, by digits and by suffix */
	    "--pool-cache=18446744073709551616", "--pool-cache=99999999999999999999999",
	    "--pool-cache=16777216T", "--drain-timeout=18446744073709552s"};
	char why[CONFIG_WHY_BYTES];
	struct config config;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(load(*state, good[i].flag, NULL, &config, why), 0);
		assert_int_equal(number(&config, good[i].offset), good[i].expected);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(load(*state, bad[i], NULL, &config, why), KOPS_E_INVALID);
		assert_non_null(strstr(why, "is not a "));
	}
}

/* ---- Files ------------------------------------------------------------------------------------ */

static void test_file_syntax(void **state)
{
	struct fixture *f = *state;
	char why[CONFIG_WHY_BYTES] = "", origin[160];
	struct config config;

	write_main(f, "# a comment\n"
	              "; another\n"
	              "\n"
	              " [kopsd] # with a comment\r\n"
	              "max-jobs=7\n"
	              "\tdevices \t=  gpu0,cpu  ; both\n"
	              "socket = /tmp/a#b;c.sock\n"
	              "hello-timeout = 2s");
	assert_int_equal(load(f, NULL, NULL, &config, why), 0);
	assert_int_equal(config.max_jobs, 7);
	assert_string_equal(config.devices, "gpu0,cpu");
	assert_string_equal(config.socket, "/tmp/a#b;c.sock");
	assert_int_equal(config.hello_timeout, 2000);
	snprintf(origin, sizeof(origin), "%s:7", f->file);
	assert_string_equal(config.origin[0], origin); /* socket is first in config.def */
}

/* Every refusal names the line and says what is wrong. */
static void test_file_errors(void **state)
{
	static const struct {
		const char *text, *line, *sentence;
	} bad[] = {
	    {"\nmax-job = 3\n", ":2: ", "unknown setting max-job; did you mean max-jobs?"},
	    {"MAX_JOBS = 3", ":1: ", "did you mean max-jobs?"},
	    {"frobnicate-all = 3", ":1: ", "unknown setting frobnicate-all; kopsd --help lists the known ones"},
	    {"= 3", ":1: ", "unknown setting ;"},
	    {"max-jobs", ":1: ", "\"max-jobs\" is not a setting; write NAME = VALUE"},
	    {"max-jobs =", ":1: ", "max-jobs = \"\" is not a whole number"},
	    {"\n\nmax-jobs = 0", ":3: ", "max-jobs = 0 is out of range (1 to 65536)"},
	    {"max-mapped = 1K", ":1: ", "max-mapped = 1K is out of range (1M to 16T)"},
	    {"hello-timeout = 11min", ":1: ", "(10ms to 10min)"},
	    {"max-jobs = 3\nmax-jobs = 3", ":2: ", "max-jobs is already set in line 1 of this file"},
	    {"[daemon]", ":1: ", "unknown section [daemon]; there are [kopsd], [user NAME] and [group NAME]"},
	    {"[user ]", ":1: ", "unknown section [user ]"},
	    {"[users root]", ":1: ", "unknown section [users root]"},
	    {"[user root] max-jobs-per-uid = 1", ":1: ", "unknown section"},
	    {"[user root]\nmax-jobs = 1", ":2: ", "max-jobs is not a limit of one user; move it to [kopsd]"},
	    {"[user root]\nmax-jobs-per-uid = 0", ":2: ", "is out of range (1 to 1048576)"},
	    {"[user 1]\nmax-jobs-per-uid = 1\n[user 2]\nmax-jobs-per-uid = 1\n[user 1]\nmax-jobs-per-uid = 1",
	     ":6: ", "max-jobs-per-uid is already set in line 2 of this file; keep one"},
	    {"max-jobs = 1\n[user 1]\n[kopsd]\nmax-jobs = 1", ":4: ", "max-jobs is already set in line 1"},
	    {"[kopsd]\n[kopsd]", ":2: ", "duplicate section [kopsd]"},
	    {"socket =", ":1: ", "socket has 0 bytes"},
	    {"devices = a\001b", ":1: ", "holds control characters"},
	    {"devices = cpuu",
	     ":1: ", "devices = \"cpuu\" has \"cpuu\", which is not a device; write auto, or"},
	    {"devices = gpu0,tpu", ":1: ", "has \"tpu\", which is not a device"},
	    {"devices = cpu0", ":1: ", "has \"cpu0\", which is not a device"},
	    {"devices = gpu01", ":1: ", "has \"gpu01\", which is not a device"},
	    {"devices = gpu+1", ":1: ", "has \"gpu+1\", which is not a device"},
	    {"devices = gpu123456", ":1: ", "has \"gpu123456\", which is not a device"},
	    {"devices = GPU", ":1: ", "has \"GPU\", which is not a device"},
	    {"devices = ,,,,", ":1: ", "names no device"},
	    {"devices = cpu,cpu", ":1: ", "names cpu twice"},
	    {"devices = gpu1 gpu0 gpu1", ":1: ", "names gpu1 twice"},
	    {"devices = gpu0,gpu", ":1: ", "names gpu0 twice"},
	    {"devices = gpu,gpu12345", ":1: ", "names gpu12345 twice"},
	    {"devices = auto,cpu", ":1: ", "names cpu twice"},
	    {"devices = gpu3,auto", ":1: ", "names gpu3 twice"},
	    {"devices = auto,auto", ":1: ", "names auto twice"},
	    {"devices = "
	     "gpu0,gpu1,gpu2,gpu3,gpu4,gpu5,gpu6,gpu7,gpu8,gpu9,gpu10,gpu11,gpu12,gpu13,gpu14,gpu15,cpu",
	     ":1: ", "names more than the 16 devices that kopsd can serve"},
	};
	struct fixture *f = *state;
	char why[CONFIG_WHY_BYTES];
	struct config config;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		write_main(f, bad[i].text);
		assert_int_equal(load(f, NULL, NULL, &config, why), KOPS_E_INVALID);
		assert_ptr_equal(strstr(why, f->file), why);
		assert_ptr_equal(strstr(why, bad[i].line), why + strlen(f->file));
		assert_non_null(strstr(why, bad[i].sentence));
	}
	write_file(f->file, "max-jobs = 3\0\n", 14);
	assert_int_equal(load(f, NULL, NULL, &config, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, ":1: holds a NUL byte"));
}

static void test_lists_of_devices(void **state)
{
	static const char *const good[] = {
	    "auto",
	    "cpu",
	    "gpu",
	    "gpu,cpu",
	    "cpu gpu0",
	    "gpu99999,gpu0",
	    " gpu1, cpu,",
	    "gpu0,gpu1,gpu2,gpu3,gpu4,gpu5,gpu6,gpu7,gpu8,gpu9,gpu10,gpu11,gpu12,gpu13,gpu14,cpu"};
	char why[CONFIG_WHY_BYTES] = "";
	struct config config;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(load(*state, "--devices", good[i], &config, why), 0);
		assert_string_equal(config.devices, good[i]);
	}
}

static void test_failure_leaves_outputs(void **state)
{
	struct config config, before;
	char why[CONFIG_WHY_BYTES];

	memset(&config, 0x5a, sizeof(config));
	before = config;
	write_main(*state, "max-jobs = 3\nmax-buffers = 0\n");
	assert_int_equal(load(*state, NULL, NULL, &config, why), KOPS_E_INVALID);
	assert_memory_equal(&config, &before, sizeof(config));
}

static void test_unreadable_files(void **state)
{
	struct fixture *f = *state;
	char why[CONFIG_WHY_BYTES];
	struct config config;

	assert_int_equal(unlink(f->file), 0);
	assert_int_equal(load(f, NULL, NULL, &config, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "cannot open the configuration file"));
	assert_non_null(strstr(why, "No such file"));

	assert_int_equal(mkdir(f->file, 0700), 0);
	assert_int_equal(load(f, NULL, NULL, &config, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "is not a regular file"));

	assert_int_equal(rmdir(f->file), 0);
	assert_int_equal(mkfifo(f->file, 0600), 0); /* nobody writes to it */
	assert_int_equal(load(f, NULL, NULL, &config, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "is not a regular file"));

	assert_int_equal(unlink(f->file), 0);
	assert_int_equal(symlink("/dev/zero", f->file), 0);
	assert_int_equal(load(f, NULL, NULL, &config, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "is not a regular file"));

	assert_int_equal(unlink(f->file), 0);
	assert_int_equal(symlink("/dev/null", f->file), 0);
	assert_int_equal(load(f, NULL, NULL, &config, why), 0);
}

static bool no_memory_for_lines;

/* getline() calls this, which replaces the system's. */
ssize_t __getdelim(char **line, size_t *capacity, int delimiter, FILE *file)
{
	ssize_t (*real)(char **, size_t *, int, FILE *) = dlsym(RTLD_NEXT, "__getdelim");

	if (no_memory_for_lines) {
		errno = ENOMEM;
		return -1;
	}
	return real(line, capacity, delimiter, file);
}

ssize_t getline(char **line, size_t *capacity, FILE *file)
{
	return __getdelim(line, capacity, '\n', file);
}

static int lookup_error; /* the errno of getpwnam(); 0: it works */

struct passwd *getpwnam(const char *name)
{
	struct passwd *(*real)(const char *) = dlsym(RTLD_NEXT, "getpwnam");

	errno = lookup_error;
	return lookup_error ? NULL : real(name);
}

/*
 * A file that cannot be read is neither empty nor without users. Another start may read it, so the error is not
 * KOPS_E_INVALID.
 */
static void test_what_cannot_be_read_just_now(void **state)
{
	struct fixture *f = *state;
	char why[CONFIG_WHY_BYTES];
	struct config config;

	write_main(f, "[kopsd]\nmax-jobs = 7\n[user root]\nmax-jobs-per-uid = 5\n");
	no_memory_for_lines = true;
	assert_int_equal(load(f, NULL, NULL, &config, why), KOPS_E_SYSTEM);
	no_memory_for_lines = false;
	assert_non_null(strstr(why, "cannot read the configuration file"));
	assert_non_null(strstr(why, strerror(ENOMEM)));
	lookup_error = EMFILE;
	assert_int_equal(load(f, NULL, NULL, &config, why), KOPS_E_SYSTEM);
	assert_non_null(strstr(why, "cannot look up [user root]"));
	lookup_error = ENOENT;
	assert_int_equal(load(f, NULL, NULL, &config, why), 0);
	assert_false(config.owners[0].is_known);
	lookup_error = 0;
	assert_int_equal(load(f, NULL, NULL, &config, why), 0);
	assert_true(config.owners[0].is_known);
}

static void test_default_file_may_be_absent(void **state)
{
	char *argv[] = {"kopsd", "--max-jobs=9", NULL}, why[CONFIG_WHY_BYTES] = "";
	enum config_action action;
	struct config config;

	(void)state;
	if (access("/etc/kopsd", F_OK) == 0)
		skip(); /* this host's own settings */
	assert_int_equal(config_load(2, argv, &config, &action, why), 0);
	assert_int_equal(action, CONFIG_RUN);
	assert_int_equal(config.max_jobs, 9);
}

/* ---- Which source overrides which --------------------------------------------------------------- */

static void test_fragments_in_order(void **state)
{
	struct fixture *f = *state;
	char why[CONFIG_WHY_BYTES] = "";
	struct config config;

	write_main(f, "max-jobs = 1\nmax-buffers = 1\nmax-sessions = 1\n");
	write_fragment(f, "20-b.conf", "max-jobs = 20\n");
	write_fragment(f, "10-a.conf", "max-jobs = 10\nmax-buffers = 10\n");
	write_fragment(f, "30-c.conf.bak", "nonsense\n");
	write_fragment(f, ".hidden.conf", "nonsense\n");
	assert_int_equal(load(f, NULL, NULL, &config, why), 0);
	assert_int_equal(config.max_jobs, 20);
	assert_int_equal(config.max_buffers, 10);
	assert_int_equal(config.max_sessions, 1);

	write_fragment(f, "15.conf", "\nmax-job = 3\n");
	assert_int_equal(load(f, NULL, NULL, &config, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, "k.conf.d/15.conf:2: unknown setting"));
}

static void test_precedence(void **state)
{
	char why[CONFIG_WHY_BYTES] = "";
	struct config config;

	write_main(*state, "max-jobs = 1\nmax-buffers = 1\nmax-sessions = 1\n");
	setenv("KOPSD_MAX_JOBS", "2", 1);
	setenv("KOPSD_MAX_BUFFERS", "2", 1);
	assert_int_equal(load(*state, "--max-jobs=3", NULL, &config, why), 0);
	unsetenv("KOPSD_MAX_JOBS");
	unsetenv("KOPSD_MAX_BUFFERS");
	assert_int_equal(config.max_jobs, 3);
	assert_int_equal(config.max_buffers, 2);
	assert_int_equal(config.max_sessions, 1);
}

static void test_environment_errors(void **state)
{
	static const struct {
		const char *name, *value, *sentence;
	} bad[] = {
	    {"KOPSD_MAX_JOB", "3", "unknown setting KOPSD_MAX_JOB; did you mean KOPSD_MAX_JOBS?"},
	    {"KOPSD_max_jobs", "3", "did you mean KOPSD_MAX_JOBS?"},
	    {"KOPSD_", "3", "unknown setting KOPSD_;"},
	    {"KOPSD_MAX_JOBS", "many", "KOPSD_MAX_JOBS: max-jobs = \"many\" is not a whole number"},
	    {"KOPSD_MAX_JOBS", "", "is not a whole number"},
	};
	char why[CONFIG_WHY_BYTES];
	struct config config;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int rc;

		setenv(bad[i].name, bad[i].value, 1);
		rc = load(*state, NULL, NULL, &config, why);
		unsetenv(bad[i].name);
		assert_int_equal(rc, KOPS_E_INVALID);
		assert_non_null(strstr(why, bad[i].sentence));
	}
}

/* ---- The command line -------------------------------------------------------------------------- */

static void test_flag_errors(void **state)
{
	static const struct {
		const char *flag, *sentence;
	} bad[] = {
	    {"--max-job=3", "unknown setting --max-job; did you mean --max-jobs?"},
	    {"--chek-config", "did you mean --check-config?"},
	    {"--max-jobs", "--max-jobs needs a value; write --max-jobs=VALUE"},
	    {"--config", "--config needs a value"},
	    {"--check-config=yes", "--check-config takes no value"},
	    {"--", "unknown setting --"},
	    {"-x", "unknown setting -x"},
	    {"start", "unexpected argument \"start\""},
	    {"", "unexpected argument \"\""},
	    {"--max-jobs=65537", "--max-jobs: max-jobs = 65537 is out of range"},
	};
	char why[CONFIG_WHY_BYTES];
	struct config config;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(load(*state, bad[i].flag, NULL, &config, why), KOPS_E_INVALID);
		assert_non_null(strstr(why, bad[i].sentence));
	}
}

static enum config_action action_of(struct fixture *f, const char *flag)
{
	char *argv[] = {"kopsd", "--config", f->file, (char *)flag, NULL}, why[CONFIG_WHY_BYTES] = "";
	enum config_action action;
	struct config config;

	assert_int_equal(config_load(flag ? 4 : 3, argv, &config, &action, why), 0);
	return action;
}

static void test_actions(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(action_of(f, NULL), CONFIG_RUN);
	assert_int_equal(action_of(f, "--check-config"), CONFIG_CHECK);
	/* These must answer even if the file is wrong. */
	write_main(f, "nonsense\n");
	assert_int_equal(action_of(f, "--help"), CONFIG_HELP);
	assert_int_equal(action_of(f, "-h"), CONFIG_HELP);
	assert_int_equal(action_of(f, "--version"), CONFIG_SHOW_VERSION);
	assert_int_equal(action_of(f, "-V"), CONFIG_SHOW_VERSION);
}

/* ---- Users and groups -------------------------------------------------------------------------- */

static const struct config_owner *find_owner(const struct config *config, bool is_group, const char *name)
{
	for (unsigned i = 0; i < config->n_owners; i++)
		if (config->owners[i].is_group == is_group && strcmp(config->owners[i].name, name) == 0)
			return &config->owners[i];
	fail_msg("no section of %s", name);
	return NULL;
}

static void check_limit(const struct config_owner *owner, size_t offset, uint64_t value)
{
	size_t i = offset / sizeof(uint64_t);

	assert_int_equal(owner->limits[i].value, value);
	assert_int_equal(owner->limits[i].origin[0] != '\0', value > 0);
}

#define CHECK_LIMIT(owner, name, value) check_limit(owner, offsetof(struct user_limits, name), value)

/* The main file returns to [kopsd]. The fragment extends a section, whose user it names by number. */
static void test_owners(void **state)
{
	const struct config_owner *root, *group, *number, *nobody;
	struct fixture *f = *state;
	char why[CONFIG_WHY_BYTES] = "";
	struct config config, live;

	write_main(f, "[user root]\nmax-jobs-per-uid = 7\n[group  root ]\nmax-mapped-per-uid = 2G\n"
	              "[kopsd]\nmax-jobs-per-uid = 5\n[user 4711]\nmax-buffers-per-uid = 9\n"
	              "[user no such one]\nmax-jobs-per-uid = 8\n");
	write_fragment(f, "10-more.conf",
	               "[user 0]\nmax-jobs-per-uid = 6\nmax-sessions-per-uid = 3\n[user 4294967295]\n");
	assert_int_equal(load(f, NULL, NULL, &config, why), 0);
	assert_int_equal(config.max_jobs_per_uid, 5);
	assert_int_equal(config.n_owners, 5);

	root = find_owner(&config, false, "root");
	assert_true(root->is_known);
	assert_int_equal(root->id, 0);
	CHECK_LIMIT(root, max_jobs_per_uid, 6);
	CHECK_LIMIT(root, max_sessions_per_uid, 3);
	CHECK_LIMIT(root, max_mapped_per_uid, 0);
	assert_non_null(strstr(root->origin, "k.conf:1"));
	group = find_owner(&config, true, "root");
	assert_true(group->is_known);
	CHECK_LIMIT(group, max_mapped_per_uid, 2ull << 30);
	number = find_owner(&config, false, "4711");
	assert_true(number->is_known);
	assert_int_equal(number->id, 4711);
	nobody = find_owner(&config, false, "no such one");
	assert_false(nobody->is_known);
	assert_false(find_owner(&config, false, "4294967295")->is_known);

	assert_int_equal(load(f, NULL, NULL, &live, why), 0);
	live.n_owners = 0;
	memset(live.owners, 0, sizeof(live.owners));
	assert_false(config_reload(&live, &config, why));
	assert_int_equal(live.n_owners, 5);
	assert_memory_equal(live.owners, config.owners, live.n_owners * sizeof(live.owners[0]));
}

static void test_owners_have_a_limit(void **state)
{
	struct fixture *f = *state;
	char why[CONFIG_WHY_BYTES] = "", text[32 * (CONFIG_OWNERS_MAX + 1)] = "";
	struct config config;

	for (unsigned i = 1; i <= CONFIG_OWNERS_MAX; i++)
		sprintf(text + strlen(text), "[user %u]\n", i);
	write_main(f, text);
	assert_int_equal(load(f, NULL, NULL, &config, why), 0);
	strcat(text, "[user 1]\n[group 1]\n");
	write_main(f, text);
	assert_int_equal(load(f, NULL, NULL, &config, why), KOPS_E_INVALID);
	assert_non_null(strstr(why, ":66: [group 1] exceeds the limit of 64 user and group sections"));
}

/* ---- Reload ------------------------------------------------------------------------------------ */

static void test_reload(void **state)
{
	char why[CONFIG_WHY_BYTES] = "", names[CONFIG_WHY_BYTES];
	struct config live, fresh;

	assert_int_equal(load(*state, NULL, NULL, &live, why), 0);
	fresh = live;
	assert_false(config_reload(&live, &fresh, names));

	assert_int_equal(load(*state, "--max-jobs=5", "--log-level=7", &fresh, why), 0);
	assert_false(config_reload(&live, &fresh, names));
	assert_string_equal(names, "");
	assert_int_equal(live.max_jobs, 5);
	assert_int_equal(live.log_level, 7);
	assert_memory_equal(live.origin, fresh.origin, sizeof(live.origin));

	/* Settings that need a restart are not changed, neither text nor number. */
	assert_int_equal(load(*state, "--socket=/elsewhere", "--max-jobs=6", &fresh, why), 0);
	assert_true(config_reload(&live, &fresh, names));
	assert_string_equal(names, "socket");
	assert_string_equal(live.socket, "/run/kopsd/kopsd.sock");
	assert_string_equal(live.origin[0], "default");
	assert_int_equal(live.max_jobs, 6);
	assert_int_equal(load(*state, "--cpu-threads=3", "--socket=/elsewhere", &fresh, why), 0);
	assert_true(config_reload(&live, &fresh, names));
	assert_string_equal(names, "socket, cpu-threads");
	assert_int_equal(live.cpu_threads, 0);
}

/* The output of --check-config can be read back and means the same. */
static void test_print_round_trip(void **state)
{
	struct fixture *f = *state;
	char why[CONFIG_WHY_BYTES] = "";
	struct config config, again;
	int saved = dup(STDOUT_FILENO);

	write_fragment(f, "10-owners.conf",
	               "[user root]\nmax-jobs-per-uid = 7\n[group no such]\nmax-pinned-per-uid = 3M\n");
	assert_int_equal(load(f, "--pool-cache=1536M", "--drain-timeout=1500", &config, why), 0);
	assert_true(saved >= 0);
	fflush(stdout);
	assert_non_null(freopen(f->file, "w", stdout));
	config_print(&config);
	fflush(stdout);
	assert_true(dup2(saved, STDOUT_FILENO) >= 0);
	close(saved);

	write_fragment(f, "10-owners.conf", "");
	assert_int_equal(load(f, NULL, NULL, &again, why), 0);
	assert_memory_equal(&config, &again, offsetof(struct config, origin));
	assert_int_equal(again.n_owners, 2);
	CHECK_LIMIT(find_owner(&again, false, "root"), max_jobs_per_uid, 7);
	CHECK_LIMIT(find_owner(&again, true, "no such"), max_pinned_per_uid, 3 << 20);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
	    TEST(test_limits),
	    TEST(test_defaults),
	    TEST(test_units),
	    TEST(test_file_syntax),
	    TEST(test_file_errors),
	    TEST(test_what_cannot_be_read_just_now),
	    TEST(test_failure_leaves_outputs),
	    TEST(test_lists_of_devices),
	    TEST(test_unreadable_files),
	    TEST(test_default_file_may_be_absent),
	    TEST(test_fragments_in_order),
	    TEST(test_precedence),
	    TEST(test_environment_errors),
	    TEST(test_flag_errors),
	    TEST(test_actions),
	    TEST(test_owners),
	    TEST(test_owners_have_a_limit),
	    TEST(test_reload),
	    TEST(test_print_round_trip),
	};

	unsetenv("XDG_RUNTIME_DIR"); /* it changes a default */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
